"""SIGKILL in the middle of a real run with the embedded model, then the same command: the same bytes, nothing twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.engines.answers import FILE
from model.engines.embedding import MiniLM
from tasks.artifact import Artifact, Step
from tasks.rephrase import rewriting
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tests.tasks.rephrase.conftest import row, write_corpus
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = RephraseConfig(
    documents=2,
    math_documents=0,
    characters=(50, 1000),
    segments=SegmentsConfig(tokens=48, window=128),
    context=640,
    answer=0.2,
    rewritten=0.0,
)
RUN = """
import sys
from tasks.artifact import Artifact, Step
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.rewriting import build
from tests.endless import without_end
without_end("rewrites")
step = Step("rewrites", RephraseConfig.model_validate_json(sys.argv[2]), sys.argv[1])
build(step, Artifact.load(sys.argv[3]), slots=1)
"""


def test_a_killed_run_continues_and_ends_in_the_same_bytes(
    tmp_path: Path, embedder: MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.rephrase.alignment.networks.Networks", lambda _: embedder)
    corpus = write_corpus(tmp_path / "corpus", [row(PARAPHRASES[0][0]), row(PARAPHRASES[5][0])], parts=1)
    before = _killed_after_its_first_answer(tmp_path / "killed", corpus)
    again = rewriting.build(Step("rewrites", CONFIG, str(tmp_path / "killed")), corpus, slots=2)
    whole = rewriting.build(Step("rewrites", CONFIG, str(tmp_path / "whole")), corpus, slots=1)
    assert again.manifest["content"] == whole.manifest["content"]
    paid = sum(json.loads(data)["seconds"] for data in before)
    assert again.statistics["seconds_generating"] >= paid - 0.01  # the cost of what was kept stays on the books
    differing = ("seconds", "tokens_cached", "comparison", "prediction")  # the second one had what the first measured
    same = [name for name in whole.statistics if not name.startswith(differing)]
    assert {name: again.statistics[name] for name in same} == {name: whole.statistics[name] for name in same}


def _killed_after_its_first_answer(root: Path, corpus: Artifact) -> list[bytes]:
    """Run the stage in a process of its own, SIGKILL it, and return the answers that it kept."""
    command = [sys.executable, "-c", RUN, str(root), CONFIG.model_dump_json(), corpus.uri]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3], env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 500
    while not _answers(root) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    return _answers(root)


def _answers(root: Path) -> list[bytes]:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{next(root.rglob(FILE))}?mode=ro", uri=True)) as db:
            return [row[0] for row in db.execute("SELECT answer FROM answers")]
    except (StopIteration, sqlite3.OperationalError):
        return []  # not begun yet
