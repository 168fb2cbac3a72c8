"""`openk2 calibrate-alignment`: which pairs, threshold and corpus are meant, measured, and shown or written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from flows.request import Request
from flows.tables import styled
from model import storage

if TYPE_CHECKING:
    from flows.preset import Preset
    from tasks.launch import Execution
    from tasks.rephrase.alignment.judge import Ask
    from tasks.rephrase.calibration.measure import Result
    from tasks.rephrase.calibration.pairs import Row
    from tasks.rephrase.config import FidelityJudgeConfig


class CalibrationError(ValueError):
    """A kind that is not there, or texts that are not to be read; the message says what can be asked for."""


def calibrate(
    request: Request,
    console: Console,
    pairs: Sequence[str],
    documents: int,
    workers: int,
    failures: str,
    count: int,
    targets: Mapping[str, str],
) -> None:
    """Measure the `pairs` (shipped sets and files) and segments of some `documents` of the preset's corpus, in so many
    processes (0: as many as there are cores); show the figures, or `count` `failures` of a kind; write the figures to
    `targets` (html, json, markdown) that are not empty."""
    if failures and (given := [form for form, target in targets.items() if target]):
        raise CalibrationError(f"--failures shows errors, and --{given[0]} writes the figures: leave one of them out")
    from flows.preset import load_preset
    from flows.terminal import shown
    from tasks.rephrase.calibration import report
    from tasks.rephrase.calibration.figures import Outcome, data
    from tasks.rephrase.calibration.measure import measure
    from tasks.rephrase.calibration.pairs import load
    from tasks.report import html, markdown, terminal

    preset = load_preset(request)
    rows = load(pairs)
    config = preset.rephrase.alignment
    workers = workers or cores()
    if failures:
        some = _readable(rows, failures)
        with shown(console), _judging(request, preset) as judged:
            results = judged(measure(some, config, workers))
        terminal.show(console, report.failures(results, failures, count), whole=True)
        return
    corpus, segments = _corpus(request, preset, documents)
    with shown(console), _judging(request, preset) as judged:
        results = measure([*rows, *segments], config, workers)
        told = judged(results[: len(rows)])
    found = Outcome(config, told, ", ".join(pairs), results[len(rows) :], corpus)
    terminal.show(console, report.overview(found))
    for form, text in (
        ("html", lambda: html.page(report.page(found))),
        ("markdown", lambda: markdown.markdown(report.overview(found))),
        ("json", lambda: json.dumps(data(found), ensure_ascii=False, indent=1) + "\n"),
    ):
        if target := targets[form]:
            storage.write(target, text().encode())
            console.print(styled("Written: ", (target, "bold")))


def cores() -> int:
    """Cores that this process may use; macOS tells only how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _judging(request: Request, preset: Preset) -> Iterator[Callable[[list[Result]], list[Result]]]:
    """What adds the judge's word to results; it leaves them as they are where the configuration names no judge."""
    from tasks.rephrase.alignment.judge import Judge
    from tasks.rephrase.calibration.measure import consult

    config = preset.rephrase.alignment.judge
    if config is None:
        yield lambda results: results
        return
    with asking(config, preset.execution, request.root) as (ask, slots):
        judge = Judge(config, ask)
        yield lambda results: consult(results, judge, slots)


@contextmanager
def asking(config: FidelityJudgeConfig, execution: Execution, root: str) -> Iterator[tuple[Ask, int]]:
    """(what asks the judge, how many may ask at once). Its answers are kept with those of the stages under `root`: a
    run that is killed has paid for them. Raises EngineError where it cannot be had."""
    from model.engines.answers import Answers
    from model.engines.choice import open_engine

    url = execution.judge_url if config.engine == "endpoint" else None
    slots, limits = execution.slots(config.engine), execution.engine_requests
    with open_engine(config, url, slots, "rephrase.alignment.judge", "judge_url", limits) as engine:
        if (folder := execution.answers_folder(root)) is None:
            yield lambda prompt: engine.complete([prompt])[0], slots
            return
        with closing(Answers(folder, most_bytes=execution.answers_bytes)) as answers:
            yield lambda prompt: answers.complete(engine, prompt)[0], slots


def _readable(rows: list[Row], kind: str) -> list[Row]:
    """The rows of `kind`. Raises CalibrationError where there are none, or where they are the test set's."""
    from tasks.rephrase.calibration.pairs import KINDS

    if kind not in KINDS:
        raise CalibrationError(f"there is no kind '{kind}': choose one of {', '.join(KINDS)}")
    if any(row.part == "test" for row in rows):
        raise CalibrationError(
            "nobody reads the test set, so that no check is fitted to it: add `--pairs dev`, whose failures may be read"
        )
    if some := [row for row in rows if row.kind == kind]:
        return some
    there = dict.fromkeys(row.kind for row in rows)
    raise CalibrationError(f"these pairs have none of kind '{kind}': they have {', '.join(there)}")


def _corpus(request: Request, preset: Preset, documents: int) -> tuple[str, list[Row]]:
    """Segments of real text, none where the preset's corpus is not published."""
    from flows.steps import graph
    from tasks.artifact import NotReady
    from tasks.rephrase.calibration.corpus import of_corpus

    if not documents:
        return "", []
    try:
        artifact = graph(request, preset)["corpus"].artifact()
    except NotReady:
        artifact = None
    if artifact is None:
        return "", []
    rephrase = preset.rephrase
    found = of_corpus(artifact, documents, rephrase.seed, rephrase.segments.tokens)
    return f"{artifact.name} {artifact.fingerprint}", list(found)
