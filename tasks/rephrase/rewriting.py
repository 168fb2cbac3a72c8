"""The rephrasing stage: documents chosen by seed, rewritten with several in flight, written batch by batch.

A batch is some chosen documents of one part of the corpus. It is written as soon as its last document is done, whatever
the ones before it do; so many documents are open at once as the engine answers requests, and memory does not grow with
the corpus. Every answer is kept, so that neither a killed run nor one that checks its answers otherwise asks anything
twice. What a document becomes depends on the document, the configuration and the engine alone, never on its neighbours,
on the number of slots or on how often the run was killed.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.engines.answers import FILE, Answers
from model.engines.choice import open_engine
from model.engines.engine import Completion, Engine, EngineError, Message, Price, Prompt, RequestLimits
from tasks.accounts import Balance, rows_of
from tasks.artifact import Artifact, Step
from tasks.launch import Execution
from tasks.progress import Progress
from tasks.rephrase.alignment import joints
from tasks.rephrase.alignment.judge import Judge
from tasks.rephrase.alignment.limits import thresholds
from tasks.rephrase.alignment.reading import Readers
from tasks.rephrase.alignment.stack import RECORDED
from tasks.rephrase.choice import Chosen, DocumentBatch, drawable, read
from tasks.rephrase.config import FidelityJudgeConfig, RephraseConfig
from tasks.rephrase.document import Job, Outcome, rewrite_document
from tasks.rephrase.ledger import Ledger, add
from tasks.rephrase.prediction import (
    Outlook,
    Prediction,
    Rates,
    Survey,
    answer_weight,
    known_rates,
    predicted,
    shared,
    survey,
    weigh,
)
from tasks.rephrase.prompts import styles
from tasks.rephrase.run import OUTCOME, REWRITE, SEGMENT, Run, keys_of
from tasks.rephrase.segments import estimate_tokens

VERSION = 14  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

SPARE = 4
"""Of so many requests in flight at an endpoint, one more document is open."""


def _columns(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names]


SPAN = pa.struct([("index", pa.int32()), ("start", pa.int64()), ("end", pa.int64()), ("action", pa.string())])
REWRITES = pa.schema(
    [
        *_columns(pa.string(), "id", "source_id", "style", "perspective", "detail", "text", "source", "url"),
        *_columns(pa.string(), "domain", "language", "licence", "meta"),
        ("segments", pa.list_(SPAN)),
    ]
)
SEGMENTS = pa.schema(
    [
        *_columns(pa.string(), "source_id", "style", "perspective", "detail", "domain"),
        *_columns(pa.int32(), "index", "attempt", "candidate"),
        *_columns(pa.string(), "prompt_hash", "engine", "model"),
        ("seed", pa.int64()),
        *_columns(pa.string(), "source_text", "rewrite_text", "question"),
        ("accepted", pa.bool_()),
        *_columns(pa.string(), "reason", "why", "source_sentence", "rewrite_sentence"),
        ("margin", pa.float64()),
        ("finish", pa.string()),
        *_columns(pa.int32(), "prompt_tokens", "generated_tokens"),
        ("scores", pa.struct(_columns(pa.float64(), *RECORDED))),
    ]
)
OUTCOMES = pa.schema(
    [
        *_columns(pa.string(), "source_id", "style", "perspective", "detail", "domain", "language"),
        *_columns(pa.int32(), "segments", "rewritten"),
        ("accepted", pa.bool_()),
        *_columns(pa.string(), "reason", "why"),
        ("scores", pa.struct(_columns(pa.float64(), *joints.NAMES))),
    ]
)
"""What became of every document that was tried, accepted or not: none is lost."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: rewrite the chosen documents with the engine that `execution` names."""
    assert isinstance(step.config, RephraseConfig)
    return build(
        *(step, step.input("corpus"), execution.engine_url, execution.slots(step.config.engine)),
        judge_url=execution.judge_url,
        limits=execution.engine_requests,
        price=execution.engine_price,
        answers=execution.answers_folder(step.root),
        answers_bytes=execution.answers_bytes,
    )


def build(
    step: Step,
    corpus: Artifact,
    engine_url: str | None = None,
    slots: int = 2,
    *,
    judge_url: str | None = None,
    limits: RequestLimits | None = None,
    price: Price | None = None,
    answers: Path | None = None,
    answers_bytes: int = 0,
) -> Artifact:
    """Rewrite what the step's configuration chooses of `corpus` and publish it.

    `slots`: requests in flight, of the embedded engine also processes. `judge_url`: the endpoint of the alignment's
    judge, where it is one. `answers`: folder of the answers that all runs share, at most `answers_bytes` large (0:
    unbounded); None keeps them only until the step is done. Raises EngineError where the engine cannot be had or keeps
    failing; what was answered until then is kept.
    """
    config = step.config
    assert isinstance(config, RephraseConfig)
    drawable(config)
    batches = Chosen(config, corpus)
    seen = survey(config, batches, partial(_written, step))
    run, engine = Run(step, price or Price()), None
    if seen.written < seen.documents:
        # Imported here: torch and transformers take seconds that a finished stage must not cost.
        from tasks.rephrase.alignment.networks import Networks

        networks = Networks(config.alignment)
        engine = open_engine(config, engine_url, slots, "rephrase", "engine_url", limits)
        folder = answers or run.folder / "answers"
        store = Answers(folder, step.fingerprint, answers_bytes)
        try:
            if not run.predicted:
                rates = known_rates(folder, engine.name, engine.model)
                run.expect(predicted(config, corpus, seen, rates, run.price))
            judging = _judging(config.alignment.judge, judge_url, slots, limits)
            _run(run, config, corpus, batches, seen, engine, networks, judging, store)
        finally:
            store.close()
    elif not seen.documents:
        for batch in batches:
            _write(step, batch, [])
    outcomes = step.parts(f"{OUTCOME}/{key}" for key in seen.batches)
    documents = rows_of(corpus.parts("documents"))
    rewritten, refused = (sum(part.statistics[name] for part in outcomes) for name in ("rewritten", "refused"))
    balance = Balance("documents", documents, out=rewritten, rejected=refused, dropped=documents - seen.documents)
    artifact = run.publish(engine, answers, seen.batches, balance, thresholds(config.alignment, styles()))
    shutil.rmtree(run.folder / "answers", ignore_errors=True)
    return artifact


def predict_run(
    step: Step, corpus: Artifact, engine_url: str | None, slots: int, price: Price, answers: Path | None
) -> Outlook:
    """What a run of the stage would take. Nothing is started."""
    config = step.config
    assert isinstance(config, RephraseConfig)
    drawable(config)
    engine = open_engine(config, engine_url, slots, "rephrase", "engine_url")
    seen = survey(config, Chosen(config, corpus), partial(_written, step))
    rates = known_rates(answers, engine.name, engine.model) if answers else Rates()
    kept = answers is not None and (answers / FILE).exists()
    return Outlook(predicted(config, corpus, seen, rates, price), seen.written, kept)


def _judging(
    config: FidelityJudgeConfig | None, url: str | None, slots: int, limits: RequestLimits | None
) -> Engine | None:
    """The engine of the alignment's judge. Raises EngineError where it cannot be had."""
    if config is None:
        return None
    url = url if config.engine == "endpoint" else None  # `scores.judge` may have its own use of it
    return open_engine(config, url, slots, "rephrase.alignment.judge", "judge_url", limits)


def _written(step: Step, batch: DocumentBatch) -> bool:
    return all(step.part(key) for key in keys_of([batch.key]))


def _run(
    run: Run,
    config: RephraseConfig,
    corpus: Artifact,
    batches: Iterable[DocumentBatch],
    seen: Survey,
    engine: Engine,
    networks: Readers,
    judging: Engine | None,
    answers: Answers,
) -> None:
    """Rewrite every batch that is not written; each is written as soon as its last document is done."""
    # While one document's answer is checked, another's request takes its place at an endpoint, which never idles so.
    # The embedded servers keep one document's prefix each: another document between would cost more than the check.
    at_once = engine.slots + engine.slots // SPARE if config.engine == "endpoint" else engine.slots
    told, lock, began = Ledger(), threading.Lock(), time.monotonic()
    waiting: list[tuple[DocumentBatch, list[Future[Outcome]]]] = []
    stop, failures = threading.Event(), list[BaseException]()

    def work(job: Job, share: float) -> Outcome:
        try:
            outcome = _rewritten(job, config, engine, networks, judging, answers, stop)
        except BaseException as error:
            failures.append(error)  # before the others are told to stop: what they then end with is no cause
            stop.set()
            raise
        with lock:
            add(told.counts, outcome.ledger.counts)
            rate = told.counts.get("accepted", 0) / max(told.counts.get("segments", 0), 1)
            speed = told.counts.get("tokens_generated", 0) / max(time.monotonic() - began, 0.001)
        progress.advance(share, note=f"{rate:.0%} of attempts accepted, {speed:,.0f} tokens/s")
        return outcome

    def settle(most: int) -> None:
        """Write every finished batch until at most `most` jobs are unfinished. Raises what a job failed with."""
        while True:
            unfinished = [job for _, jobs in waiting for job in jobs if not job.done()]
            finished = [each for each in waiting if all(job.done() for job in each[1])]
            if failures:  # a job that was stopped for one is done after it
                raise failures[0]
            for some in finished:
                waiting.remove(some)
                _write(run.step, some[0], [job.result() for job in some[1]])
                run.tick()
            if len(unfinished) <= most:
                return
            wait(unfinished, return_when=FIRST_COMPLETED)

    progress = Progress("rephrase", total=seen.documents, unit="documents", first=seen.written)
    progress.note = f"predicted: {Prediction(**run.predicted).sentence()}"
    with (
        progress,
        ThreadPoolExecutor(at_once, thread_name_prefix="rephrase") as pool,
        engine,  # both closed before the pool waits: that ends what is in flight where the run fails
        judging or nullcontext(),
        run.clock(),
    ):
        try:
            pending = (batch for batch in batches if not _written(run.step, batch))
            for batch, found in read(config, corpus, pending):
                settle(2 * at_once)
                waiting.append((batch, [pool.submit(work, job, share) for job, share in found]))
            settle(0)
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if answers.unreadable:
        log.warning("%d kept answers could not be read and were asked for again", answers.unreadable)


def _rewritten(
    job: Job,
    config: RephraseConfig,
    engine: Engine,
    networks: Readers,
    judging: Engine | None,
    answers: Answers,
    stop: threading.Event,
) -> Outcome:
    """One document, with all that its requests cost in its ledger."""
    spent, before = Ledger(), ()  # type: tuple[Ledger, tuple[Message, ...]]
    measured: list[bool] = []  # of each answer

    def asked(who: Engine, prompt: Prompt) -> tuple[Completion, bool]:
        if stop.is_set():
            raise EngineError("the run was stopped")
        return answers.complete(who, prompt)

    def ask(prompt: Prompt) -> Completion:
        nonlocal before
        answer, reused = asked(engine, prompt)
        spent.request(answer, reused)
        measured.append(not answer.estimated)
        if not answer.estimated:
            sizes = {
                "estimated_prompt": weigh(prompt.messages),
                "measured_prompt": answer.prompt_tokens,
                "estimated_cached": shared(before, prompt.messages),
                "measured_cached": answer.cached_tokens,
                "estimated_generated": estimate_tokens(answer.text),
                "measured_generated": answer.generated_tokens,
            }
            add(spent.counts, sizes)
        before = (*prompt.messages, Message("assistant", answer.text))
        return answer

    def opinion(prompt: Prompt) -> Completion:
        assert judging is not None
        answer, reused = asked(judging, prompt)
        spent.judged(answer, reused)
        return answer

    judge = Judge(config.alignment.judge, opinion) if config.alignment.judge else None
    outcome = rewrite_document(job, config, engine, ask, networks, judge)
    ledger = outcome.ledger
    add(ledger.counts, spent.counts)
    ledger.retries(job.name, job.document["domain"], outcome.rows)
    sources = [row["source_text"] for row in outcome.rows if row["finish"] != "refused"]
    expected = sum(answer_weight(job.style, source) for source, counts in zip(sources, measured, strict=True) if counts)
    add(ledger.counts, {"expected_generated": round(expected, 1)})
    return outcome


def _write(step: Step, batch: DocumentBatch, outcomes: list[Outcome]) -> None:
    """The three parts of one batch, the rows in the order of the documents."""
    total = Ledger()
    for outcome in outcomes:
        add(total.counts, outcome.ledger.counts)
    rows = [row for outcome in outcomes for row in outcome.rows]
    rewrites = [outcome.rewrite for outcome in outcomes if outcome.rewrite is not None]
    verdicts = [outcome.verdict for outcome in outcomes]
    tried = {verdict["source_id"] for verdict in verdicts}
    kept = {rewrite["source_id"] for rewrite in rewrites}
    _put(step, f"{SEGMENT}/{batch.key}", rows, SEGMENTS, total.counts)
    _put(step, f"{OUTCOME}/{batch.key}", verdicts, OUTCOMES, {"rewritten": len(kept), "refused": len(tried - kept)})
    _put(step, f"{REWRITE}/{batch.key}", rewrites, REWRITES, {})


def _put(step: Step, key: str, rows: list[dict[str, Any]], schema: pa.Schema, counts: dict[str, Any]) -> None:
    table = pa.Table.from_pylist(rows, schema=schema)
    step.put(key, ".parquet", lambda path: pq.write_table(table, path, compression="zstd"), len(rows), counts)
