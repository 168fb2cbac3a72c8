from __future__ import annotations

import time
from types import SimpleNamespace

import polars as pl
import pytest
from prefect import flow
from prefect.client.orchestration import get_client

import expectations.gate
from expectations.gate import GateFailed
from tasks import artifact
from tasks.artifact import Step
from tasks.gate import verdict
from tasks.launch import Execution
from tasks.stage import make
from tests.expectations.data import CORPUS_GATE, corpus

pytestmark = pytest.mark.prefect


@flow
def judged(gate: Step) -> str:
    return make(gate, Execution()).fingerprint


def gate_of(subject: Step) -> Step:
    return Step("corpus-gate", CORPUS_GATE, subject.root, (subject,), module="tasks.gate")


def artifacts(kind: str) -> list:
    with get_client(sync_client=True) as client:
        return [item for item in client.read_artifacts() if item.key == kind]


def test_a_gate_s_time_is_that_of_the_judging(server, tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, strftime=time.strftime, gmtime=time.gmtime, now=0.0)
    monkeypatch.setattr(artifact, "time", clock)
    validate = expectations.gate.validate

    def slowly(*arguments, **options):
        clock.now += 100.0
        return validate(*arguments, **options)

    monkeypatch.setattr(expectations.gate, "validate", slowly)
    subject = corpus(tmp_path / "good")
    step = gate_of(subject)
    judged(step)
    assert step.require().manifest["seconds"] == 100.0


def test_a_run_stops_at_a_failed_gate_and_shows_why(server, tmp_path):
    good = corpus(tmp_path / "good")
    step = gate_of(good)
    assert judged(step) == step.fingerprint
    assert "every expectation holds" in artifacts("corpus-gate")[-1].data

    bad = corpus(tmp_path / "bad", lambda frame: frame.filter(pl.col("domain") != "math"))
    with pytest.raises(GateFailed, match="math 0 documents"):
        judged(gate_of(bad))
    shown = [item.data for item in artifacts("corpus-gate") if "expectations failed" in item.data]
    assert len(shown) == 1, "judged once, never retried"
    assert "Every domain that the recipe names is there" in shown[0]


def test_what_to_do_is_said_as_it_is_typed():
    remedy = "look with `openk2 inspect --source NAME`"
    failed = {"success": False, "sentence": "Every source gave documents", "expected": "1", "observed": "0"}
    text = verdict("corpus-gate", {"expectations": [failed | {"remedy": remedy}]}, "index.html")
    assert "observed 0. Look with `openk2 inspect --source NAME`." in text
