"""`openk2 calibrate-alignment`: what is asked is measured, shown and written; the test set's texts stay unread."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from flows import cli
from flows.calibration import asking, cores
from model.engines.engine import Completion, Message, Prompt, Sampling
from tasks.launch import Execution
from tasks.rephrase.calibration.pairs import load
from tasks.rephrase.config import FidelityJudgeConfig

RECORD = {
    "id": "own-1",
    "language": "en",
    "domain": "history",
    "source": "The mill by the river burnt down in 1871. Nobody was hurt, because the workers had gone home at noon.",
    "faithful": [
        "In 1871 fire destroyed the riverside mill. Its workers had left at noon, which is why no one was hurt."
    ],
    "defects": [
        {
            "kind": "number",
            "rewrite": "In 1817 fire destroyed the riverside mill. Its workers had left at noon, so no one was hurt.",
            "wrong": "1817 instead of 1871",
        }
    ],
}


def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["openk2", "calibrate-alignment", "--corpus", "0", "--workers", "1", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr()
    return int(end.value.code or 0), " ".join((told.out + told.err).split())


def test_pairs_of_ones_own(monkeypatch, capsys, tmp_path: Path):
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps(RECORD), encoding="utf-8")
    written = [str(tmp_path / "new" / name) for name in ("out.json", "out.html", "out.md")]
    options = ["--json", written[0], "--html", written[1], "--markdown", written[2]]
    code, told = called(monkeypatch, capsys, "--root", str(tmp_path), "--pairs", str(own), *options)
    assert code == 0
    assert "1 sources, 2 rewrites" in told
    assert all(f"Written: {path}" in told for path in written)
    found = json.loads(Path(written[0]).read_bytes())
    assert found["right_by_kind"]["number"]["count"] == 1
    assert found["checks"]["numbers"]["refused_defects"]["count"] == 1
    assert found["cpu_milliseconds"] > 0
    assert {"threshold", "accepted_faithful", "accepted_defects"} <= set(found["curve"][0])
    assert Path(written[1]).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "all defects" in Path(written[2]).read_text(encoding="utf-8")


@pytest.mark.parametrize("pairs", [[], ["--pairs", "test"], ["--pairs", "dev", "--pairs", "test"]])
def test_failures_of_the_test_set_are_refused(monkeypatch, capsys, pairs: list[str]):
    code, told = called(monkeypatch, capsys, "--failures", "hedge", *pairs)
    assert code == 1
    assert "nobody reads the test set" in told
    assert not any(row.rewrite[:60] in told for row in load(["test"]))


def test_cores_are_counted_where_no_affinity_is_told(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)  # macOS
    assert cores() >= 1


def test_failures_of_pairs_that_may_be_read(monkeypatch, capsys, tmp_path: Path):
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps(RECORD), encoding="utf-8")
    code, told = called(monkeypatch, capsys, "--pairs", str(own), "--failures", "number")
    assert code == 0
    assert "Number that passes 0 of 1: a number, date or amount." in told


class Judging:
    """An engine that counts what it is asked."""

    name, model, slots = "judging", "by-hand", 1

    def __init__(self) -> None:
        self.asked = 0

    def __enter__(self) -> Judging:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.asked += len(prompts)
        return [Completion("yes", "stop", 9, 0, 1, 0.1) for _ in prompts]


@pytest.mark.parametrize(("kept", "asked"), [(1 << 20, 1), (0, 2)])
def test_what_the_judge_answered_a_run_that_ended_is_not_asked_again(
    monkeypatch, tmp_path: Path, kept: int, asked: int
):
    engine = Judging()
    monkeypatch.setattr("model.engines.choice.open_engine", lambda *_: engine)
    question = Prompt((Message("user", "Is it so?"),), Sampling(temperature=0), 1, 0)
    for _ in range(2):
        with asking(FidelityJudgeConfig(), Execution(answers_bytes=kept), str(tmp_path)) as (ask, _slots):
            assert ask(question).text == "yes"
    assert engine.asked == asked


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--failures", "colour"], "there is no kind 'colour'"),
        (["--failures", "formula", "--pairs", "dev"], "these pairs have none of kind 'formula'"),
        (["--failures", "hedge", "--pairs", "dev", "--html", "page.html"], "--html writes the figures"),
        (["--pairs", "/nowhere.jsonl"], "cannot be read"),
        (["--set", "rephrase.alignment.fidelity=7"], "fidelity"),
        (["--set", "rephrase.alignment.judge={engine: endpoint, model: x}"], "execution.judge_url"),
    ],
)
def test_what_is_wrong_is_one_sentence(monkeypatch, capsys, arguments: list[str], told: str):
    code, said = called(monkeypatch, capsys, *arguments)
    assert code == 1
    assert told in said
    assert "Traceback" not in said
