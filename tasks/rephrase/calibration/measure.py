"""Every check asked of every pair, in as many processes as there are cores; nothing stops at the first refusal."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from model.engines.weights import fidelity_weights
from tasks.process import die_with_pool
from tasks.progress import Progress, each
from tasks.rephrase.alignment.judge import JUDGE, Judge
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.alignment.stack import align
from tasks.rephrase.calibration.pairs import Row
from tasks.rephrase.config import AlignmentConfig

if TYPE_CHECKING:
    from tasks.rephrase.alignment.reading import Readers

BATCH = 16
"""Rows that a worker takes at once."""

LEARNED = "fidelity"
"""The check whose weights are learned, and over whose threshold the curve is where no judge is asked."""

SELF = frozenset({"copied"})
"""Checks that cannot be asked of a segment beside itself."""


@dataclass(frozen=True)
class Result:
    """A row and what every check said of it."""

    row: Row
    verdicts: tuple[Verdict, ...]
    seconds: float = field(default=0.0, compare=False)
    """CPU-seconds that all checks together took."""

    @cached_property
    def learned(self) -> str:
        """The check over whose threshold the curve is: the judge where one was asked."""
        return JUDGE if any(verdict.check == JUDGE for verdict in self.verdicts) else LEARNED

    @property
    def refused_by(self) -> tuple[str, ...]:
        return tuple(verdict.check for verdict in self.verdicts if not verdict.passed)

    @property
    def accepted(self) -> bool:
        return not self.refused_by

    @property
    def score(self) -> float:
        """The learned check's chance that the rewrite is faithful; 1 where it is not asked."""
        return next((verdict.score for verdict in self.verdicts if verdict.check == self.learned), 1.0)

    @property
    def accepted_but(self) -> bool:
        """Whether every check but the learned one accepts it."""
        return set(self.refused_by) <= {self.learned}


def judge(row: Row, config: AlignmentConfig, networks: Readers) -> Result:
    """What every check says of a row."""
    began = time.process_time()  # of all threads: the network has its own
    verdicts = align(Pair(row.source, row.rewrite), config, networks, every=True).verdicts
    seconds = time.process_time() - began
    if row.part == "corpus":
        verdicts = tuple(verdict for verdict in verdicts if verdict.check not in SELF)
    return Result(row, verdicts, seconds)


def opened(config: AlignmentConfig) -> Readers:
    """The networks of the stage."""
    # Imported here: torch takes seconds that `--help` must not cost.
    from tasks.rephrase.alignment.networks import Networks

    return Networks(config)


def measure(
    rows: Sequence[Row], config: AlignmentConfig, workers: int, network: Callable[[], Readers] | None = None
) -> list[Result]:
    """The results of all rows, in their order; each process opens its own `network`."""
    if network is None:
        if config.fidelity_model:
            fidelity_weights(config.fidelity_model).find()  # is told here; in a worker it would be a death unexplained
        network = partial(opened, config)
    results: list[Result] = []
    with Progress("calibrate", total=len(rows), unit="pairs") as progress:
        for some in _judged(rows, config, workers, network):
            results += some
            progress.advance(len(some))
    return results


def consult(results: Sequence[Result], asked: Judge, slots: int) -> list[Result]:
    """The results with the word of the `asked` judge on each, whatever the other checks say of it."""

    def consulted(result: Result) -> Result:
        verdict = asked.check(Pair(result.row.source, result.row.rewrite))
        return replace(result, verdicts=(*result.verdicts, verdict))

    return each(consulted, results, slots, "judge", "pairs")


def _judged(
    rows: Sequence[Row], config: AlignmentConfig, workers: int, network: Callable[[], Readers]
) -> Iterator[list[Result]]:
    jobs = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    if workers < 2 or len(jobs) < 2:
        networks = network()
        yield from ([judge(row, config, networks) for row in job] for job in jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), spawn, _begin, (network,)) as pool:
        try:
            yield from pool.map(_work, jobs, [config] * len(jobs))
        except BrokenProcessPool:
            raise RuntimeError(
                "a calibration worker died, most likely for want of memory: use fewer --workers"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


_networks: Readers


def _begin(network: Callable[[], Readers]) -> None:
    global _networks
    die_with_pool()
    _networks = network()


def _work(rows: Sequence[Row], config: AlignmentConfig) -> list[Result]:
    return [judge(row, config, _networks) for row in rows]
