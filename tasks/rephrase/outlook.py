"""What rewriting would take, were it started now: a sample of its documents is read, nobody is asked."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.engines.answers import FILE, Answers
from model.engines.engine import Completion, Engine, Price, Prompt
from tasks.artifact import Artifact
from tasks.rephrase.choice import Batch, jobs
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.document import Job, draw, rewrite_document
from tasks.rephrase.prediction import SAMPLE, Prediction, Rates, known_rates, predict


@dataclass(frozen=True)
class Outlook:
    """What a run of the stage would take, were it started now."""

    prediction: Prediction
    """Of the documents that are not written yet."""
    looked_at: int
    begun: int
    """Of the documents looked at, those whose first request has been answered: the kept answers cost nothing."""


def predicted(
    config: RephraseConfig, corpus: Artifact, batches: Sequence[Batch], rates: Rates, price: Price
) -> Prediction:
    """What rewriting `batches` will take, from a sample of their documents."""
    whole = sum(len(batch.ids) for batch in batches)
    some = list(sample(config, corpus, batches))
    return predict(config, some, len({job.document["id"] for job in some}), whole, rates, price)


def sample(config: RephraseConfig, corpus: Artifact, batches: Sequence[Batch]) -> Iterator[Job]:
    """The rewrites of some documents, drawn by seed."""
    ranked = ((draw(config.seed, "sample", identity), identity) for batch in batches for identity in batch.ids)
    drawn = {identity for _, identity in heapq.nsmallest(SAMPLE, ranked)}
    for batch in batches:
        if ids := tuple(identity for identity in batch.ids if identity in drawn):
            yield from (job for job, _ in jobs(config, corpus, replace(batch, ids=ids)))


def outlook(
    config: RephraseConfig,
    corpus: Artifact,
    pending: Sequence[Batch],
    engine: Engine,
    price: Price,
    answers: Path | None,
) -> Outlook:
    """What rewriting `pending` would take with `engine`, which is neither opened nor asked; `answers` is the folder of
    those that are kept."""
    rates = known_rates(answers, engine.name, engine.model) if answers else Rates()
    requests = [_first_request(job, config, engine) for job in sample(config, corpus, pending)]
    firsts = [request for request in requests if request is not None]
    begun = 0
    if answers and (answers / FILE).exists():
        with closing(Answers(answers)) as store:
            begun = sum(store.has(engine.name, engine.model, first) for first in firsts)
    return Outlook(predicted(config, corpus, pending, rates, price), len(firsts), begun)


class _Asked(Exception):
    """A document's first request."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self.prompt = prompt


class _Nothing:
    """Reads nothing: no text is compared before the first answer."""

    def states(self, text: str) -> Any:
        raise AssertionError("a text was compared before anything was answered")


def _first_request(job: Job, config: RephraseConfig, engine: Engine) -> Prompt | None:
    def ask(prompt: Prompt) -> Completion:
        raise _Asked(prompt)

    try:
        rewrite_document(job, config, engine, ask, _Nothing())
    except _Asked as asked:
        return asked.prompt
    return None  # a document without prose
