"""What rewriting would take, were it started now: a sample of its documents is read, nobody is asked."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from model.engines.answers import FILE
from model.engines.engine import Engine, Price
from tasks.artifact import Artifact
from tasks.rephrase.choice import DocumentBatch, read
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.document import draw
from tasks.rephrase.prediction import SAMPLE, Prediction, Rates, known_rates, predict


@dataclass(frozen=True)
class Outlook:
    """What a run of the stage would take, were it started now."""

    prediction: Prediction
    """Of the documents that are not written yet."""
    written: int
    """Documents that an earlier attempt has written."""
    answers_kept: bool
    """Whether an earlier run's answers are kept: what was asked then costs nothing."""


@dataclass(frozen=True)
class Survey:
    """One pass over the chosen documents."""

    documents: int
    written: int
    """Of them, those whose batches are written."""
    sample: tuple[DocumentBatch, ...]
    """Some of the others, drawn by seed."""
    batches: tuple[str, ...]
    """The keys of all."""


def survey(
    config: RephraseConfig, batches: Iterable[DocumentBatch], is_written: Callable[[DocumentBatch], bool]
) -> Survey:
    """Count the documents and draw a sample; holds no more than the sample and the batches' keys."""
    counts, keys = {True: 0, False: 0}, []

    def ranked() -> Iterator[tuple[int, str, int, DocumentBatch]]:
        for number, batch in enumerate(batches):
            keys.append(batch.key)
            done = is_written(batch)
            counts[done] += len(batch.ids)
            if not done:
                yield from ((draw(config.seed, "sample", name), name, number, batch) for name in batch.ids)

    drawn: dict[int, tuple[DocumentBatch, set[str]]] = {}
    for _, name, number, batch in heapq.nsmallest(SAMPLE, ranked(), key=lambda entry: entry[:3]):
        drawn.setdefault(number, (batch, set()))[1].add(name)
    some = [
        replace(batch, ids=tuple(name for name in batch.ids if name in names))
        for _, (batch, names) in sorted(drawn.items())
    ]
    return Survey(counts[True] + counts[False], counts[True], tuple(some), tuple(keys))


def predicted(config: RephraseConfig, corpus: Artifact, seen: Survey, rates: Rates, price: Price) -> Prediction:
    """What rewriting the documents that are not written will take, from the sample of them."""
    looked_at = sum(len(batch.ids) for batch in seen.sample)
    some = (job for _, found in read(config, corpus, seen.sample) for job, _ in found)
    return predict(config, some, looked_at, seen.documents - seen.written, rates, price)


def outlook(
    config: RephraseConfig, corpus: Artifact, seen: Survey, engine: Engine, price: Price, answers: Path | None
) -> Outlook:
    """What rewriting would take with `engine`, which is neither opened nor asked; `answers` is the folder of those that
    are kept."""
    rates = known_rates(answers, engine.name, engine.model) if answers else Rates()
    kept = answers is not None and (answers / FILE).exists()
    return Outlook(predicted(config, corpus, seen, rates, price), seen.written, kept)
