"""`openk2 evaluate`: suites of benchmarks on any checkpoint, release or endpoint, and all of them side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.options import FileOption, PresetOption, RequestError, RootOption, SetOption, request_of
from flows.request import PresetName, Request
from flows.tables import styled
from flows.terminal import Terminal

out = Terminal()


def evaluate(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint of the root (base, sft, rl, bf16, int4), a released folder, or an OpenAI-compatible "
            "address such as http://host:8000/v1."
        ),
    ] = None,
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", "-s", help="Run only this suite of the preset. Repeatable.")
    ] = None,
    model: Annotated[str, typer.Option("--model", help="For an address: the name of the served model.")] = "",
    label: Annotated[str, typer.Option("--label", help="Name of the model on the page.")] = "",
    record: Annotated[str, typer.Option("--json", help="Write the figures to this file, for a later --with.")] = "",
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Write {root}/comparison.html with everything measured under the root."),
    ] = False,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", help="With --compare: add a model from a file written by --json. Repeatable."),
    ] = None,
) -> None:
    """Run the benchmark suites of the preset (`evaluate.suites`) on a model, and compare models side by side.

    `openk2 run evaluate` measures every checkpoint of the root once and keeps the results. This command measures the
    named model now.

    Examples:

    - `openk2 evaluate int4 --suite humaneval`: one suite on a release.

    - `openk2 evaluate http://127.0.0.1:8000/v1 --model kimi-k2 --json k2.json`: a served model.

    - `openk2 evaluate --compare --with k2.json`: a page that compares all checkpoints of the root and that model.
    """  # fmt: skip
    if target is None and not compare:
        raise RequestError("name what to measure (`openk2 evaluate base`), or say --compare for what was measured")
    _refuse(target, {"suite": suite, "model": model, "label": label, "json": record}, record, compare, others or [])
    if target is not None:
        _measure(request_of(preset, root, preset_file, overrides), target, suite or [], model, label, record)
    if compare:
        from tasks.report.comparison import write_comparison

        out.print(styled("Side by side: ", (write_comparison(root, others or ()), "bold")))


def _refuse(target: str | None, of_target: dict[str, object], record: str, compare: bool, others: list[str]) -> None:
    """Raise RequestError for an option of which nothing would come, or that would fail after hours of measuring."""
    if others and not compare:
        raise RequestError("--with adds a model to the page that --compare writes: say --compare, too")
    if target is None and (given := [name for name, value in of_target.items() if value]):
        raise RequestError(f"--{given[0]} is about what is measured now: name that too (`openk2 evaluate base`)")
    if others:
        from tasks.report.comparison import read_record

        for other in others:
            if other != record:  # which this run writes
                read_record(other)
    if record and (Path(record).is_dir() or not Path(record).absolute().parent.is_dir()):
        raise RequestError(f"--json {record}: name a file in a folder that is there")


def _measure(request: Request, target: str, names: list[str], served: str, label: str, record: str) -> None:
    import torch
    from rich.table import Table

    from flows.preset import load_preset
    from flows.steps import graph, known
    from flows.terminal import shown
    from tasks.evaluate.suites.measuring import said
    from tasks.evaluate.suites.sets import chosen, unchecked
    from tasks.evaluate.suites.target import labelled, measured, opened

    p = load_preset(request)
    try:
        config = p.evaluate.suites.named(names)
    except ValueError as error:
        raise RequestError(str(error)) from None
    if not config.rows:
        raise RequestError(f"preset '{request.name}' names no suites: add rows under evaluate.suites")
    steps = {step.name: step for step in graph(request, p).newest()}
    made = {name: step.artifact() if known(step) else None for name, step in steps.items()}
    torch.set_num_threads(p.execution.threads)
    with shown(out), opened(target, served, made, p.execution.engine_requests) as subject:
        benchmarks = made["benchmarks"]
        ready = chosen(benchmarks) if benchmarks else unchecked(config)
        found = measured(config, subject, ready, made["tokens"], labelled(target, served, label))
    table = Table(box=None, pad_edge=False)
    for column in ("suite", "what is counted", "score, 95 % interval, items"):
        table.add_column(column, overflow="fold")
    for name, one in found["suites"].items():
        table.add_row(name, one.get("measure", one["kind"]), said(one))
    out.print(table)
    if record:
        Path(record).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        out.print(styled("The record: ", (record, "bold")))
