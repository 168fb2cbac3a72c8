"""Scripts that run for minutes or hours before they come to what others have changed meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks import int4_study, kernels, tokens
from benchmarks.random_tokens import random_tokens


def test_documents_of_our_shards_are_compared_with_others(tmp_path):
    uri = random_tokens(tmp_path, {"train/web/a/0": 1500}, 100, 1)
    assert [len(document) for document in tokens.our_documents(uri)] == [700, 700, 100]


def test_compression_asks_for_its_ranks_before_it_learns(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["tokens", "compression", "--corpus", "nowhere"])
    with pytest.raises(SystemExit):
        tokens.main()
    assert "--ranks" in capsys.readouterr().err


def test_a_model_of_the_study_is_measured(monkeypatch):
    """By `tasks.evaluate`, whose replies are rows of a table."""
    calls = dict.fromkeys(("trigger_f1", "schema_accuracy", "exact"))
    stand_ins = {
        "load_chat": None,
        "load_dialogues": SimpleNamespace(problems=[]),
        "answer": [{"sampled": 0.25, "greedy": 1.0}, {"sampled": 0.5, "greedy": 0.0}],
        "tool_turns": [],
        "try_tools": [],
        "tool_call_fidelity": calls,
        "heldout_loss": {"web": {"nats": 2.0}},
    }
    for name, gives in stand_ins.items():
        monkeypatch.setattr(int4_study, name, lambda *_, gives=gives: gives)
    config = SimpleNamespace(problems=2, tool_dialogues=0, max_new_tokens=1)
    made = {name: SimpleNamespace(uri="") for name in ("tokenizer", "dialogues", "tokens")}
    found = int4_study.figures(None, made, config)
    assert found == {"heldout": 2.0, "sampled": 0.375, "greedy": 0.5} | dict.fromkeys(calls, "")


def test_a_stage_that_has_no_job_is_told(tmp_path):
    for stage in ("base", "bsae"):
        with pytest.raises(SystemExit, match="has no job of a stage"):
            kernels.trainer_of(tmp_path, stage, tmp_path)
