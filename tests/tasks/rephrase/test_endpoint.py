"""The stage against a simulated endpoint over HTTP: many in flight, failures of every kind, SIGKILL, new thresholds."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.endpoint import Behaviour, serving
from model.engines.answers import Answers
from model.engines.engine import EngineError, Price, RequestLimits
from tasks.artifact import Artifact, Step
from tasks.rephrase import rewriting
from tasks.rephrase.choice import DocumentBatch
from tasks.rephrase.config import AlignmentConfig, RephraseConfig, SegmentsConfig
from tasks.rephrase.document import Job, Outcome
from tests.tasks.rephrase.conftest import Remembering, row, write_corpus
from tests.tasks.rephrase.pairs import PARAPHRASES

PAIRS = {" ".join(source.split()): rewrite for source, rewrite in PARAPHRASES}
CONFIG = RephraseConfig(
    engine="endpoint",
    model="simulated",
    documents=None,
    math_documents=0,
    characters=(50, 10_000),
    segments=SegmentsConfig(tokens=60, window=1024),
    rewritten=0.0,
    part=4,
)
LIMITS = RequestLimits(answer_seconds=3.0, backoff_seconds=0.01, patience_seconds=20, attempts=20)
RUN = """
import sys
from pathlib import Path
from typing import Any
from model.engines.engine import RequestLimits
from tasks.artifact import Artifact, Step
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.rewriting import build
from tests.endless import without_end
without_end("rewrites")
config = RephraseConfig.model_validate_json(sys.argv[2])
build(Step("rewrites", config, sys.argv[1]), Artifact.load(sys.argv[3]), sys.argv[4], 8, answers=Path(sys.argv[5]))
"""


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: Remembering) -> Artifact:
    """Twelve documents of two paragraphs."""
    monkeypatch.setattr("tasks.rephrase.alignment.networks.Networks", lambda _: once)
    texts = [source for source, _ in PARAPHRASES[:4]]
    rows = [row(f"{one}\n\n{other}") for one in texts for other in texts if one != other]
    return write_corpus(tmp_path / "corpus", rows, parts=3)


def build(root: Path, corpus: Artifact, url: str, config: RephraseConfig = CONFIG, **options) -> Artifact:
    options = {"limits": LIMITS, "answers": root.parent / "answers"} | options
    return rewriting.build(Step("rewrites", config, str(root)), corpus, url, 16, **options)


def test_no_failure_loses_a_document_or_asks_twice(tmp_path: Path, corpus: Artifact) -> None:
    fail = dict.fromkeys(("die", "html", "error_500", "error_429", "truncated", "huge", "hang"), 0.04)
    patient = LIMITS.model_copy(update={"answer_seconds": 60.0})
    with serving(Behaviour(first=1.0, pairs=PAIRS)) as server:  # so long that a busy machine too has sent that many
        whole = build(tmp_path / "whole", corpus, server.url, answers=None, limits=patient)
        assert server.counts["most"] >= 8
    assert not list(Path(whole.uri).rglob("answers*"))  # kept for this stage alone, and gone with it
    with serving(Behaviour(first=0.01, pairs=PAIRS, fail=fail)) as server:
        done = build(tmp_path / "failing", corpus, server.url)
        assert server.counts["repeated"] == 0
        assert sum(server.counts[way] for way in fail) > 0
    assert done.manifest["content"] == whole.manifest["content"]
    assert done.statistics["documents_tried"] == 12
    assert done.statistics["requests"] == done.statistics["segments"]


def test_a_restart_after_sigkill_repeats_no_finished_request(tmp_path: Path, corpus: Artifact) -> None:
    with serving(Behaviour(first=0.05, pairs=PAIRS)) as server:
        arguments = [CONFIG.model_dump_json(), corpus.uri, server.url, str(tmp_path / "answers")]
        command = [sys.executable, "-c", RUN, str(tmp_path / "killed"), *arguments]
        run = subprocess.Popen(command, cwd=Path(__file__).parents[3])
        while server.counts["answered"] < 12 and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert run.returncode == -signal.SIGKILL, "the run ended before it could be killed"
        while server.flying:
            time.sleep(0.01)
        with closing(Answers(tmp_path / "answers")) as kept:
            known = len(kept)
        # Of 8 in flight and 2 documents more each may have been answered without having written it down.
        assert known >= server.counts["answered"] - (8 + 8 // rewriting.SPARE)
        before = server.counts["requests"]
        again = build(tmp_path / "killed", corpus, server.url)
        assert server.counts["requests"] - before == again.statistics["requests"] - known
        assert again.statistics["requests_reused"] == 0  # this step paid for all of it, in two attempts
    with serving(Behaviour(pairs=PAIRS)) as server:
        whole = build(tmp_path / "whole", corpus, server.url, answers=None)
    assert again.manifest["content"] == whole.manifest["content"]


def test_other_thresholds_ask_nothing_again(tmp_path: Path, corpus: Artifact) -> None:
    price = Price(prompt=2.0, cached=0.5, generated=8.0)
    with serving(Behaviour(pairs=PAIRS)) as server:
        first = build(tmp_path / "root", corpus, server.url, price=price)
        asked = server.counts["requests"]
        laxer = CONFIG.model_copy(update={"alignment": AlignmentConfig(cosine=0.01)})
        step = Step("rewrites", laxer, str(tmp_path / "root"))
        outlook = rewriting.predict_run(step, corpus, server.url, 16, price, tmp_path / "answers")
        assert (outlook.answers_kept, outlook.written, outlook.prediction.documents) == (True, 0, 12)
        second = build(tmp_path / "root", corpus, server.url, laxer, price=price)
        assert server.counts["requests"] == asked
    assert second.fingerprint != first.fingerprint
    told = second.statistics
    assert told["requests_reused"] == told["requests"] == first.statistics["requests"] > 0
    assert told["money"] == 0 < first.statistics["money"]
    spent = first.statistics
    cost = (2 * (spent["tokens_prompt"] - spent["tokens_cached"]) + 0.5 * spent["tokens_cached"]) / 1e6
    assert first.statistics["money"] == pytest.approx(cost + 8 * spent["tokens_generated"] / 1e6, abs=1e-6)
    assert first.manifest["cost"] == {"money": first.statistics["money"]}
    assert second.statistics["prediction"]["basis"] == "measured"
    ratios = {name: entry["ratio"] for name, entry in first.statistics["comparison"].items()}
    assert 0.5 < ratios["requests"] < 2
    assert 0.4 < ratios["tokens_prompt"] < 2.5


def test_an_endpoint_that_dies_stops_the_stage_at_once_and_keeps_what_was_answered(
    tmp_path: Path, corpus: Artifact
) -> None:
    limits = RequestLimits(answer_seconds=600, backoff_seconds=0.01, patience_seconds=0.2)
    with serving(Behaviour(pairs=PAIRS, model="another")) as server:
        with pytest.raises(EngineError, match="serves another and no 'simulated'"):
            build(tmp_path / "root", corpus, server.url, limits=limits)
    with serving(Behaviour(first=0.01, pairs=PAIRS, fail={"hang": 0.3, "error_401": 0.2})) as server:
        began = time.monotonic()
        with pytest.raises(EngineError, match="OPENK2_ENGINE_KEY"):
            build(tmp_path / "root", corpus, server.url, limits=limits)
        assert time.monotonic() - began < 300  # and not the ten minutes that the hanging ones may take
        with closing(Answers(tmp_path / "answers")) as kept:
            answered = len(kept)
    with serving(Behaviour(pairs=PAIRS)) as server:
        done = build(tmp_path / "root", corpus, server.url)
        assert server.counts["requests"] == done.statistics["requests"] - answered


def test_a_slow_document_holds_up_no_other_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: Artifact
) -> None:
    written: list[str] = []
    write, rewritten = rewriting._write, rewriting._rewritten

    def slowly(job: Job, *others: Any) -> Outcome:
        if not slow:
            slow.append(job.document["id"])
        while job.document["id"] == slow[0] and len(written) < 2:
            time.sleep(0.01)
        return rewritten(job, *others)

    def writing(step: Step, batch: DocumentBatch, outcomes: list[Outcome]) -> None:
        written.append(batch.key)
        write(step, batch, outcomes)

    slow: list[str] = []
    monkeypatch.setattr(rewriting, "_rewritten", slowly)
    monkeypatch.setattr(rewriting, "_write", writing)
    with serving(Behaviour(pairs=PAIRS)) as server:
        build(tmp_path / "root", corpus, server.url, CONFIG.model_copy(update={"part": 2}))
    assert len(written) > 2
    assert written != sorted(written)


def test_rates_and_retries_are_told_by_style_and_domain(tmp_path: Path, corpus: Artifact) -> None:
    with serving(Behaviour(pairs=PAIRS, fail={"refusal": 0.4})) as server:
        done = build(tmp_path / "root", corpus, server.url)
    told = done.statistics
    rows = pl.concat([pl.read_parquet(path) for path in done.files("segments")])
    places = rows.group_by("source_id", "style", "index").agg(
        tries=pl.len(), first=pl.col("accepted").sort_by("attempt").first(), any=pl.col("accepted").any()
    )
    assert told["asked"] == places.height
    assert told["retried"] == places.filter(pl.col("tries") > 1).height > 0
    assert told["accepted_first"] == places["first"].sum()
    assert told["accepted"] == told["accepted_first"] + told["accepted_retry"] == places["any"].sum()
    assert told["asked"] == told["accepted"] + told["failed"]
    assert told["final_rate"] >= told["first_rate"] > 0
    for name in ("segments", "accepted", "asked", "retried", "failed", "fallbacks", "documents_tried"):
        for split in (
            told["by_style"],
            told["by_domain"],
            {k: v["knowledge"] for k, v in told["by_style_domain"].items()},
        ):
            assert sum(cell[name] for cell in split.values()) == told[name]
    assert sum(told["rejected_by_check"].values()) == told["segments"] - told["accepted"]
