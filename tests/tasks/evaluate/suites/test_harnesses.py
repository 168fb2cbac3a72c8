"""The two harnesses, with programs in their place that take the same arguments and write files of the same form: the
forms are those of mini-swe-agent 2.4, swebench 5.0 and tau2-bench 1.0."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model.engines.openai import OpenAI
from tasks.evaluate.suites import external
from tasks.evaluate.suites.config import External
from tasks.evaluate.suites.harnesses import swe_bench_rows, tau2_rows
from tasks.evaluate.suites.item import SuiteError
from tasks.evaluate.suites.subject import Endpoint
from training.intervals import mean, wilson

HARNESSES = Path(external.__file__).with_name("harnesses.py")

BEGIN = """#!{python}
import argparse, json, os, pathlib
parser = argparse.ArgumentParser(allow_abbrev=False)
def take(*names):
    for name in names:
        parser.add_argument(name, action="append" if name == "--config" else "store", required=name != "--slice")
"""
MINI = """
parser.add_argument("command", choices=["swebench"])
take("--subset", "--split", "--workers", "--output", "--model", "--config", "--slice")
told = parser.parse_args()
assert told.config[0] == "swebench.yaml" and told.slice == "0:4", told
assert os.environ["OPENAI_BASE_URL"].endswith("/v1")
folder = pathlib.Path(told.output)
folder.mkdir()
names = ["solved", "broken", "empty", "stopped"]
of = {{name: {{"model_name_or_path": told.model, "instance_id": name, "model_patch": "x"}} for name in names}}
(folder / "preds.json").write_text(json.dumps(of))
"""
SWEBENCH = """
parser.add_argument("command", choices=["eval"])
parser.add_argument("dataset")
take("--split", "--predictions", "--run-id", "--workers", "--report-dir")
told = parser.parse_args()
of = json.loads(pathlib.Path(told.predictions).read_text())
report = {{
    "total_instances": 500, "submitted_ids": sorted(of), "completed_ids": ["broken", "solved"],
    "resolved_ids": ["solved"], "unresolved_ids": ["broken"], "empty_patch_ids": ["empty"],
    "error_ids": ["stopped"], "failure_reasons": {{"stopped": "image not found"}}, "schema_version": 2,
}}
name = of["solved"]["model_name_or_path"].replace("/", "__")
pathlib.Path(told.report_dir, f"{{name}}.{{told.run_id}}.json").write_text(json.dumps(report))
"""
TAU2 = """
parser.add_argument("command", choices=["run"])
take("--domain", "--agent-llm", "--user-llm", "--num-trials", "--max-concurrency", "--seed", "--save-to")
parser.add_argument("--auto-resume", action="store_true")
told = parser.parse_args()
assert told.agent_llm == "hosted_vllm/far", told
assert os.environ["HOSTED_VLLM_API_BASE"] == "http://127.0.0.1:9/v1"
assert os.environ["HOSTED_VLLM_API_KEY"] == "the key of an endpoint"
assert os.environ["OPENAI_API_KEY"] == "the key of the user's model"
assert "OPENAI_BASE_URL" not in os.environ
assert os.environ["TAU2_DATA_DIR"] == "/opt/tau2/data"
def trial(task, reward, end="user_stop"):
    judged = None if reward is None else {{"reward": reward}}
    return {{"task_id": task, "reward_info": judged, "termination_reason": end}}
trials = [trial("0", 1.0), trial("0", 0.0), trial("1", 1.0), trial("1", 1.0), trial("2", None, "max_steps"),
          trial("2", None, "infrastructure_error"), trial("3", None, "infrastructure_error")]
folder = pathlib.Path(told.save_to)
assert folder.is_absolute()
folder.mkdir()
(folder / "results.json").write_text(json.dumps({{"simulations": trials}}))
"""


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Path:
    """The folder of the programs."""
    monkeypatch.setenv("OPENK2_ENGINE_KEY", "the key of an endpoint")
    for name, body in (("mini-extra", MINI), ("swebench", SWEBENCH), ("tau2", TAU2)):
        path = tmp_path / name
        path.write_text((BEGIN + body).format(python=sys.executable))
        path.chmod(0o755)
    return tmp_path


def run(programs: Path, *arguments: str, environment: tuple[str, ...] = ()) -> external.Measured:
    command = (sys.executable, str(HARNESSES), *arguments, "--bin", str(programs))
    suite = External(kind="external", name="h", command=command, environment=environment)
    return external.measure(suite, Endpoint(OpenAI("http://127.0.0.1:9/v1", "far")), (), 0)


def test_swe_bench_counts_what_is_resolved_of_what_was_tried(programs):
    found = run(programs, "swe-bench", "--slice", "0:4")
    assert (found.measure, found.score) == ("resolved", wilson(1, 4))
    assert {one.id: one.why for one in found.scored} == {
        "solved": "", "broken": "tests fail", "empty": "no patch", "stopped": "image not found"
    }  # fmt: skip


def test_tau2_gives_the_model_our_key_and_the_user_another(programs, monkeypatch):
    monkeypatch.setenv("USERS", "the key of the user's model")
    more = ("--data", "/opt/tau2/data", "--user-model", "openai/gpt-4.1", "--user-key-variable", "USERS")
    found = run(programs, "tau2", *more, environment=("USERS",))
    assert found.measure == "pass^1"
    assert {one.id: one.score for one in found.scored} == {"0": 0.5, "1": 1.0, "2": 0.0}
    assert found.score == mean([0.5, 1.0, 0.0])


def test_a_harness_whose_program_fails_is_an_error_and_no_score(programs):
    with pytest.raises(SuiteError, match=r"its last words: .*AssertionError.* mini-extra ended with exit code 1$"):
        run(programs, "swe-bench", "--slice", "0:5")
    with pytest.raises(KeyError):
        swe_bench_rows({"resolved_ids": []})
    with pytest.raises(KeyError):
        tau2_rows({})
