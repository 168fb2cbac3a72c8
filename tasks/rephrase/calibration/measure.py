"""Every check asked about every case, in as many processes as there are cores; nothing stops at the first refusal."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.process import die_with_pool
from tasks.progress import Progress
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.alignment.stack import CHECKS, NETWORK_CHECKS, align
from tasks.rephrase.alignment.words import Embedder
from tasks.rephrase.calibration.cases import REAL, Case, Document
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.prompts import styles

if TYPE_CHECKING:
    from model.engines.embedding import States

BATCH = 4
"""Documents that a worker takes at once."""

Ask = Literal["every", "first", "cheap"]
"""Ask every check of every case; those up to the first refusal, which is all that the stack's figures need; or every
check that needs no network."""

LEFT_OUT: dict[Ask, tuple[str, ...]] = {"cheap": tuple(check.__name__ for check in NETWORK_CHECKS)}
"""Checks that are not asked, by what is asked."""

SELF = frozenset({"copied"})
"""Checks that cannot be asked of a segment beside itself."""


@dataclass(frozen=True)
class Result:
    """A case and what every check said of it."""

    case: Case
    verdicts: tuple[Verdict, ...]

    @property
    def refused_by(self) -> tuple[str, ...]:
        return tuple(verdict.check for verdict in self.verdicts if not verdict.passed)

    @property
    def accepted(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    def score(self, check: str) -> float | None:
        return next((verdict.score for verdict in self.verdicts if verdict.check == check), None)


class Remembering:
    """A network that reads a text once: every case of a document has the same source."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, States] = {}

    def states(self, text: str) -> States:
        """The states of every token."""
        if text not in self._known:
            self._known[text] = self._embedder.states(text)
        return self._known[text]


def judge(document: Document, config: AlignmentConfig, embedder: Embedder | None, every: bool = True) -> list[Result]:
    """What every check says of the cases of one document; only the cheap ones without an embedder, and up to the first
    refusal without `every`."""
    remembering = None if embedder is None else Remembering(embedder)
    results = []
    for case in document:
        style = styles().get(case.style)
        length, adds = (style.length, style.adds) if style else (None, False)
        pair = Pair(case.source, case.rewrite, length=length, adds=adds)
        if remembering is None:
            verdicts = tuple(check(pair, config) for check in CHECKS)
        else:
            verdicts = align(pair, config, remembering, every=every or case.style == REAL).verdicts
        if case.style == REAL:
            verdicts = tuple(verdict for verdict in verdicts if verdict.check not in SELF)
        results.append(Result(case, verdicts))
    return results


def measure(documents: Sequence[Document], config: AlignmentConfig, workers: int, ask: Ask = "every") -> list[Result]:
    """The results of all cases, in their order."""
    results: list[Result] = []
    with Progress("calibrate", total=sum(map(len, documents)), unit="cases") as progress:
        for some in _judged(list(documents), config, workers, ask):
            results += some
            progress.advance(len(some))
    return results


def _judged(documents: list[Document], config: AlignmentConfig, workers: int, ask: Ask) -> Iterator[list[Result]]:
    if workers < 2 or len(documents) <= BATCH:
        embedder = _network(ask)
        for document in documents:
            yield judge(document, config, embedder, ask == "every")
        return
    jobs = [documents[first : first + BATCH] for first in range(0, len(documents), BATCH)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=spawn, initializer=_begin, initargs=(ask,)) as pool:
        try:
            yield from pool.map(_work, jobs, [config] * len(jobs), [ask] * len(jobs))
        except BrokenProcessPool:
            raise RuntimeError(
                "a calibration worker died, most likely for want of memory: use fewer --workers"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


_embedder: Embedder | None = None


def _begin(ask: Ask) -> None:
    global _embedder
    die_with_pool()
    _embedder = _network(ask)


def _network(ask: Ask) -> Embedder | None:
    if ask == "cheap":
        return None
    # Imported here: torch takes seconds that `--help` must not cost.
    from model.engines.embedding import MiniLM

    return MiniLM()


def _work(documents: list[Document], config: AlignmentConfig, ask: Ask) -> list[Result]:
    return [result for document in documents for result in judge(document, config, _embedder, ask == "every")]
