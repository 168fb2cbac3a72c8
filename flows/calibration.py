"""`openk2 calibrate-alignment`: which pairs, thresholds and corpus are meant, measured, and shown or written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from flows.request import Request

if TYPE_CHECKING:
    from tasks.rephrase.calibration.measure import Result
    from tasks.rephrase.calibration.pairs import TruePair


class CalibrationError(ValueError):
    """A kind or an option that is not there; the message lists what is."""


@dataclass(frozen=True)
class Wanted:
    """What to measure and what to show of it."""

    pairs: tuple[str, ...] = ()
    """Files of pairs; the shipped ones where none is named."""
    kinds: tuple[str, ...] = ()
    """Kinds of corruption; all where none is named."""
    each: int = 1
    """Corruptions of each kind made of one pair."""
    sample: int = 0
    """Measure so many pairs, chosen by a hash of their ids; 0 for all."""
    workers: int = 0
    """Processes; 0 for as many as there are cores."""
    failures: str = ""
    """Show what goes wrong of this kind instead of the tables."""
    count: int = 10
    """How many of them."""
    half: str = "tune"
    """Of which half."""
    check: bool = False
    """Whether a broken promise is a failure."""


def calibrate(request: Request, wanted: Wanted, console: Console) -> bool:
    """Measure and show. False where a promise does not hold on the test half and `wanted.check` asks for it."""
    from flows.preset import load_preset
    from flows.terminal import shown
    from tasks.rephrase.calibration import terminal
    from tasks.rephrase.calibration.cases import TRUE, of_pairs
    from tasks.rephrase.calibration.corruptions import KINDS
    from tasks.rephrase.calibration.figures import figures
    from tasks.rephrase.calibration.measure import measure
    from tasks.rephrase.calibration.pairs import load

    if unknown := sorted({*wanted.kinds, *filter(None, [wanted.failures])} - {*KINDS, TRUE}):
        raise CalibrationError(f"there is no kind '{unknown[0]}': choose {TRUE} or one of {', '.join(KINDS)}")
    pairs = _sampled(load(wanted.pairs), wanted.sample)
    kinds = wanted.kinds or tuple(KINDS)
    if wanted.failures:
        pairs = [pair for pair in pairs if pair.half == wanted.half]
        kinds = tuple(kind for kind in (wanted.failures,) if kind != TRUE)
    config = load_preset(request).rephrase.alignment
    documents = of_pairs(pairs, kinds, wanted.each)
    with shown(console):
        results = measure(documents, config, wanted.workers or len(os.sched_getaffinity(0)))
    if wanted.failures:
        for block in terminal.failures(results, wanted.failures, wanted.count):
            console.print(block)
        return True
    halves = {name: figures(some) for name in ("tune", "test") if (some := _of(results, name))}
    console.print(terminal.stack(halves), "")
    if found := halves.get(wanted.half):
        console.print(f"{wanted.half} half, per cent refused by each check", terminal.checks(found), "")
        console.print(terminal.areas(found), "")
        console.print(terminal.groups(found), "")
    broken = halves["test"].broken() if "test" in halves else []
    for sentence in broken:
        console.print(f"[red]broken on the test half[/red]: {sentence}")
    return not (wanted.check and broken)


def _sampled(pairs: list[TruePair], count: int) -> list[TruePair]:
    from tasks.rephrase.calibration.edits import draw

    if not count or count >= len(pairs):
        return pairs
    chosen = sorted(pairs, key=lambda pair: draw("sample", pair.id))[:count]
    return sorted(chosen, key=lambda pair: pair.id)


def _of(results: Sequence[Result], half: str) -> list[Result]:
    return [result for result in results if result.case.half == half]
