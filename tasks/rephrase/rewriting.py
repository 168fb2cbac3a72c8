"""The rephrasing stage: documents chosen by seed, rewritten with several in flight, written batch by batch.

A batch is some chosen documents of one part of the corpus. It is written when its last document is done; answers to
the requests of an unfinished one are kept in a journal, so that a killed run asks nothing twice. What a document
becomes depends on the document, the configuration and the engine alone, never on its neighbours, on the number of
slots or on how often the run was killed.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from model.engines.choice import open_engine
from model.engines.engine import Completion, Engine, EngineError, Prompt
from model.engines.journal import Journal
from tasks.artifact import Artifact, Part, Step
from tasks.progress import Progress
from tasks.rephrase.alignment.limits import thresholds
from tasks.rephrase.alignment.stack import NAMES
from tasks.rephrase.alignment.words import Embedder
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.document import Job, Outcome, draw, rewrite_document
from tasks.rephrase.ledger import Ledger, add, statistics
from tasks.rephrase.prompts import styles

log = logging.getLogger(__name__)

COLUMNS = ("id", "text", "source", "url", "domain", "language", "licence", "meta")
REWRITES = pa.schema(
    [(name, pa.string()) for name in ("id", "source_id", "style", "text")]
    + [(name, pa.string()) for name in ("source", "url", "domain", "language", "licence", "meta")]
    + [
        (
            "segments",
            pa.list_(
                pa.struct([("index", pa.int32()), ("start", pa.int64()), ("end", pa.int64()), ("action", pa.string())])
            ),
        )
    ]
)
SEGMENTS = pa.schema(
    [
        ("source_id", pa.string()),
        ("style", pa.string()),
        ("domain", pa.string()),
        ("index", pa.int32()),
        ("attempt", pa.int32()),
        ("prompt_hash", pa.string()),
        ("engine", pa.string()),
        ("model", pa.string()),
        ("seed", pa.int64()),
        ("source_text", pa.string()),
        ("rewrite_text", pa.string()),
        ("accepted", pa.bool_()),
        ("reason", pa.string()),
        ("why", pa.string()),
        ("finish", pa.string()),
        ("prompt_tokens", pa.int32()),
        ("generated_tokens", pa.int32()),
        ("scores", pa.struct([(name, pa.float64()) for name in NAMES])),
    ]
)


@dataclass(frozen=True)
class Batch:
    """Chosen documents of one part of the corpus, in the order in which they lie there."""

    key: str
    part: Part | None
    """None only in the batch of a run that chose nothing."""
    ids: tuple[str, ...]


def build(step: Step, corpus: Artifact, engine_url: str | None = None, slots: int = 2) -> Artifact:
    """Rewrite what the step's configuration chooses of `corpus` and publish it.

    `slots`: requests in flight, of the embedded engine also threads. Raises EngineError where the engine cannot be
    had or keeps failing; what was answered until then is kept.
    """
    config = step.config
    assert isinstance(config, RephraseConfig)
    _known(config)
    batches = choose(config, corpus)
    pending = [batch for batch in batches if not all(step.part(key) for key in _keys(batch))]
    if any(batch.ids for batch in pending):
        # Imported here: torch and transformers take seconds that a finished stage must not cost.
        from model.engines.embedding import MiniLM

        with open_engine(config, engine_url, slots, "rephrase", "engine_url") as engine:
            _run(step, config, corpus, batches, pending, engine, MiniLM())
    else:
        for batch in pending:
            _write(step, batch, [])
    counts: dict[str, Any] = {}
    for part in step.recorded("segments"):
        add(counts, part.statistics)
    limits = thresholds(config.alignment, styles())
    return step.publish(statistics(counts) | {"thresholds": limits}, keep="rewrites,segments")


def _known(config: RephraseConfig) -> None:
    fitting = {name for name, style in styles().items() if "knowledge" in style.domains}
    if unknown := sorted(set(config.styles) - fitting):
        raise ValueError(
            f"`rephrase.styles` names {', '.join(unknown)}: for knowledge there are {', '.join(sorted(fitting))}"
        )
    if config.rewrites > len(config.styles or fitting):
        raise ValueError("`rephrase.rewrites` asks for more rewrites of a document than there are styles to draw from")


def choose(config: RephraseConfig, corpus: Artifact) -> list[Batch]:
    """The documents to rewrite, in batches: for each domain those whose hash with the seed is smallest, so that the
    choice depends neither on how the corpus is cut into parts nor on its order. Never empty: a run that chooses nothing
    has one batch of nothing."""
    parts = corpus.parts("documents")
    chosen: set[tuple[int, str]] = set()
    for domain, count in (("knowledge", config.documents), ("math", config.math_documents)):
        ranked = (
            (draw(config.seed, "choice", identity), identity, number)
            for number, part in enumerate(parts)
            for identity in _eligible(config, corpus, part, domain)
        )
        if count != 0:
            best = ranked if count is None else heapq.nsmallest(count, ranked)
            chosen |= {(number, identity) for _, identity, number in best}
    batches = []
    for number, part in enumerate(parts):
        wanted = {identity for place, identity in chosen if place == number}
        if wanted:
            frame = pl.scan_parquet(corpus.file(part)).select("id").filter(pl.col("id").is_in(wanted)).collect()
            ids = frame["id"].to_list()
            for piece, first in enumerate(range(0, len(ids), config.part)):
                batches.append(Batch(f"{number:05d}-{piece:03d}", part, tuple(ids[first : first + config.part])))
    return batches or [Batch("00000-000", None, ())]


def draw_styles(config: RephraseConfig, identity: str, domain: str) -> list[str]:
    """The styles of one document, drawn by seed: `rewrites` of them for knowledge, one for mathematics."""
    known = styles()
    wanted = config.styles if config.styles and domain != "math" else known
    fitting = [name for name in wanted if domain in known[name].domains]
    ranked = sorted(fitting, key=lambda name: (draw(config.seed, "style", identity, name), name))
    return ranked[: 1 if domain == "math" else config.rewrites]


def _eligible(config: RephraseConfig, corpus: Artifact, part: Part, domain: str) -> list[str]:
    least, most = config.characters
    frame = pl.scan_parquet(corpus.file(part)).filter(
        pl.col("domain") == domain,
        pl.col("language").is_in(config.languages),
        pl.col("text").str.len_chars().is_between(least, most),
    )
    return frame.select("id").collect()["id"].to_list()


def _keys(batch: Batch) -> tuple[str, str]:
    return f"rewrites/{batch.key}", f"segments/{batch.key}"


def _jobs(config: RephraseConfig, corpus: Artifact, batch: Batch) -> Iterator[Job]:
    if batch.part is None:
        return
    known = styles()
    frame = pl.scan_parquet(corpus.file(batch.part)).select(COLUMNS).filter(pl.col("id").is_in(batch.ids)).collect()
    for document in frame.iter_rows(named=True):
        for name in draw_styles(config, document["id"], document["domain"]):
            yield Job(document, name, known[name])


def _run(
    step: Step,
    config: RephraseConfig,
    corpus: Artifact,
    batches: list[Batch],
    pending: list[Batch],
    engine: Engine,
    embedder: Embedder,
) -> None:
    """Rewrite every pending batch, the next ones begun while the last document of one is still being written."""
    folder = step.workspace() / "requests"
    stop = threading.Event()
    total, left = (sum(len(batch.ids) for batch in some) for some in (batches, pending))
    seen, lock = Ledger(), threading.Lock()
    begun: deque[tuple[Batch, Journal, list[Future[Outcome]]]] = deque()

    def work(job: Job, journal: Journal) -> Outcome:
        def ask(prompt: Prompt) -> Completion:
            if stop.is_set():
                raise EngineError("the run was stopped")
            return journal.complete(engine, prompt)

        outcome = rewrite_document(job, config, engine, ask, embedder)
        with lock:
            add(seen.counts, outcome.ledger.counts)
            rate = seen.counts.get("accepted", 0) / max(seen.counts.get("segments", 0), 1)
        progress.advance(1, note=f"{rate:.0%} of segments accepted")
        return outcome

    def finish() -> None:
        batch, journal, futures = begun.popleft()
        _write(step, batch, [future.result() for future in futures])
        journal.remove()

    with (
        Progress("rephrase", total=total, unit="documents", first=total - left) as progress,
        ThreadPoolExecutor(engine.slots, thread_name_prefix="rephrase") as pool,
    ):
        try:
            for batch in pending:
                journal = Journal(folder / f"{batch.key}.jsonl")
                futures = [pool.submit(work, job, journal) for job in _jobs(config, corpus, batch)]
                begun.append((batch, journal, futures))
                while sum(not future.done() for *_, some in begun for future in some) > 2 * engine.slots:
                    finish()
            while begun:
                finish()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            for _, journal, _ in begun:
                journal.close()


def _write(step: Step, batch: Batch, outcomes: list[Outcome]) -> None:
    """The two parts of one batch, the rows in the order of the documents."""
    total = Ledger()
    for outcome in outcomes:
        add(total.counts, outcome.ledger.counts)
    rows = [row for outcome in outcomes for row in outcome.rows]
    rewrites = [outcome.rewrite for outcome in outcomes if outcome.rewrite is not None]
    rewrite_key, segment_key = _keys(batch)
    _put(step, segment_key, rows, SEGMENTS, total.counts)
    _put(step, rewrite_key, rewrites, REWRITES, {})


def _put(step: Step, key: str, rows: list[dict[str, Any]], schema: pa.Schema, counts: dict[str, Any]) -> None:
    table = pa.Table.from_pylist(rows, schema=schema)
    step.put(key, ".parquet", lambda path: pq.write_table(table, path, compression="zstd"), len(rows), counts)
