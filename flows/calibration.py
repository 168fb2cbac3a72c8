"""`openk2 calibrate-alignment`: which pairs, thresholds and corpus are meant, measured, and shown or written."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from flows.request import Request
from flows.tables import styled
from model import storage

if TYPE_CHECKING:
    from flows.preset import Preset
    from tasks.rephrase.calibration.cases import Document
    from tasks.rephrase.calibration.measure import Ask
    from tasks.rephrase.calibration.pairs import TruePair


class CalibrationError(ValueError):
    """A kind or a half that is not there; the message lists what is."""


@dataclass(frozen=True)
class Wanted:
    """What to measure and what to show of it."""

    pairs: tuple[str, ...] = ("asked",)
    """Shipped sets (`asked`, `free`) and files of pairs."""
    kinds: tuple[str, ...] = ()
    """Kinds of corruption; all where none is named."""
    each: int = 1
    """Corruptions of each kind made of one pair."""
    sample: int = 0
    """Measure so many pairs, chosen by a hash of their ids; 0 for all."""
    corpus: int = 24
    """Documents of the preset's corpus whose segments are measured too, where it is published; 0 for none."""
    budget: float = 0.01
    """Share of true pairs that one threshold may refuse."""
    workers: int = 0
    """Processes; 0 for as many as there are cores."""
    ask: Ask = "every"
    """Which checks are asked of a case."""
    failures: str = ""
    """Show what goes wrong of this kind instead of the tables."""
    count: int = 10
    """How many of them."""
    half: str = "tune"
    """Of which half."""
    html: str = ""
    """Write a page there."""
    json: str = ""
    """Write the figures there as data."""
    markdown: str = ""
    """Write the tables there as markdown."""
    check: bool = False
    """Whether a broken promise is a failure."""


def calibrate(request: Request, wanted: Wanted, console: Console) -> bool:
    """Measure, show, write. False where a promise does not hold on the test half and `wanted.check` asks for it."""
    from flows.preset import load_preset
    from flows.terminal import shown
    from tasks.rephrase.calibration import outcome, report
    from tasks.rephrase.calibration.cases import of_pairs
    from tasks.rephrase.calibration.measure import LEFT_OUT, measure
    from tasks.rephrase.calibration.pairs import load
    from tasks.report import html, markdown, terminal

    kinds = _known(wanted)
    pairs = _sampled(load(wanted.pairs), wanted.sample)
    preset = load_preset(request)
    config = preset.rephrase.alignment
    workers = wanted.workers or len(os.sched_getaffinity(0))
    if wanted.failures:
        documents = of_pairs(pairs, kinds, wanted.each, (wanted.half,))
        with shown(console):
            results = measure(documents, config, workers, wanted.ask)
        terminal.show(console, report.failures(results, wanted.failures, wanted.half, wanted.count), whole=True)
        return True
    documents = of_pairs(pairs, kinds, wanted.each)
    name, real = _corpus(request, preset, wanted, kinds)
    with shown(console):
        results = measure([*documents, *real], config, workers, wanted.ask)
    count = sum(map(len, documents))
    found = outcome.outcome(config, results[:count], results[count:], name, wanted.budget, LEFT_OUT.get(wanted.ask, ()))
    terminal.show(console, report.overview(found, wanted.half, whole=wanted.ask != "first"))
    for target, text in (
        (wanted.html, lambda: html.page(report.page(found))),
        (wanted.markdown, lambda: markdown.markdown(report.tables(found))),
        (wanted.json, lambda: json.dumps(outcome.data(found), ensure_ascii=False, indent=1) + "\n"),
    ):
        if target:
            storage.write(target, text().encode())
            console.print(styled("Written: ", (target, "bold")))
    return not (wanted.check and found.broken)


def _known(wanted: Wanted) -> tuple[str, ...]:
    """The kinds to make. Raises CalibrationError where something that is named is not there or does not fit."""
    from tasks.rephrase.calibration.cases import TRUE
    from tasks.rephrase.calibration.corruptions import KINDS

    if unknown := sorted({*wanted.kinds, *filter(None, [wanted.failures])} - {*KINDS, TRUE}):
        raise CalibrationError(f"there is no kind '{unknown[0]}': choose {TRUE} or one of {', '.join(KINDS)}")
    if wanted.half not in ("tune", "test"):
        raise CalibrationError(f"there is no half '{wanted.half}': choose tune or test")
    if wanted.ask == "first" and (wanted.html or wanted.json or wanted.markdown):
        raise CalibrationError("--quick asks too little for a page or a file of figures: leave it out")
    if wanted.check and wanted.ask == "cheap":
        raise CalibrationError("--check holds the whole stack to its promises and --cheap leaves checks out: drop one")
    kinds = (wanted.failures,) if wanted.failures else wanted.kinds or tuple(KINDS)
    return tuple(kind for kind in KINDS if kind in kinds)


def _sampled(pairs: list[TruePair], count: int) -> list[TruePair]:
    from tasks.rephrase.calibration.edits import draw

    if not count or count >= len(pairs):
        return pairs
    chosen = sorted(pairs, key=lambda pair: draw("sample", pair.id))[:count]
    return sorted(chosen, key=lambda pair: pair.id)


def _corpus(request: Request, preset: Preset, wanted: Wanted, kinds: tuple[str, ...]) -> tuple[str, list[Document]]:
    """The cases of real text, none where the preset's corpus is not published."""
    from flows.steps import graph
    from tasks.artifact import NotReady
    from tasks.rephrase.calibration.cases import of_corpus

    if not wanted.corpus:
        return "", []
    try:
        artifact = graph(request, preset)["corpus"].artifact()
    except NotReady:
        artifact = None
    if artifact is None:
        return "", []
    rephrase = preset.rephrase
    found = of_corpus(artifact, wanted.corpus, rephrase.seed, rephrase.segments.tokens, kinds, wanted.each)
    return f"{artifact.name} {artifact.fingerprint}", found
