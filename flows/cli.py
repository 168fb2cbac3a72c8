"""The `openk2` command."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from flows.errors import near, sentence
from flows.evaluate_commands import evaluate
from flows.inspect_commands import calibrate_alignment, inspect, lineage, review
from flows.model_commands import network
from flows.options import FileOption, PresetOption, RequestError, RootOption, SetOption, request_of
from flows.plan_commands import plan as plans
from flows.recipe import FLOWS
from flows.request import PresetName, Request
from flows.serve_commands import chat, generate, serve
from flows.tables import styled
from flows.terminal import Terminal
from flows.token_commands import tokens
from flows.tool_commands import tools
from tasks.logs import plain_logs
from tasks.progress import clock

app = typer.Typer(
    name="openk2",
    help="The Kimi K2 recipe as software: raw documents in, a served agentic model out.\n\n"
    "Start with `openk2 run`. It takes some minutes on two cores and writes a report, data/report.html. Running it "
    "again does only what is missing or stale.\n\n"
    "To look closer: `openk2 status` (what is done), `openk2 inspect` (what curation dropped, and why), "
    "`openk2 lineage ID` (where a document came from). `openk2 COMMAND --help` gives details and examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(network)
app.add_typer(tokens)
app.add_typer(plans)
app.add_typer(tools)
out = Terminal()
err = Terminal(stderr=True)


def run(
    stage: Annotated[
        str | None,
        typer.Argument(
            help="One stage: corpus, refresh, rephrase, tokens, pretrain, posttrain, release, evaluate or report. "
            "Default: the whole recipe."
        ),
    ] = None,
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Also redo steps that are done but whose code has changed since.")
    ] = False,
) -> None:
    """Run every stage of the recipe that is missing or stale, in order, and write the report.

    Finished stages are skipped, and an interrupted run resumes where it stopped. The same inputs, seed and preset give
    the same bytes. On Ctrl-C a training stage writes a checkpoint first.

    `openk2 run refresh` is not part of the recipe. It lists the sources again and adds what is new in a new version of
    the corpus.

    Examples:

    - `openk2 run`: the whole recipe, on two cores.

    - `openk2 run --preset test --root try`: the smallest recipe, in a folder of its own.

    - `openk2 run corpus --preset library`: sources, curation, gate and scores of a corpus of 275 MB.

    - `openk2 run corpus --set execution.executor=dask --set execution.workers=8`: the same bytes from a Dask cluster.

    - `openk2 run tokens --set mix.epochs=2`: another mix of the existing corpus.

    - `openk2 run tokens --rebuild`: also redo what `openk2 status` lists as "done, code changed since".
    """
    from flows.steps import graph
    from model import storage

    if stage is not None:
        _known(stage)
    request = request_of(preset, root, preset_file, overrides).model_copy(update={"rebuild": rebuild})
    found = graph(request)
    done = found.published() and not (rebuild and found.made_by_other_code())
    if stage is None and done and storage.exists(page := _page(root)):
        out.print(styled("Everything is up to date: nothing to do. The report: ", (str(page), "bold")))
        return
    began = time.monotonic()
    result = _run(request, stage, stage is None or found.trains(stage))
    took = clock(time.monotonic() - began)
    out.print(styled(f"Done in {took}: ", (result.name, "bold"), f" {result.uri}"))
    if storage.exists(page := _page(root)):
        out.print(styled("The report: ", (str(page), "bold")))


STAGES = ("recipe", *FLOWS, "refresh", "report")
"""What can be run, as `flows.stages` has it."""


def _known(stage: str) -> None:
    """Refuse a stage that is not there, before a server is started for it. Prefect is not loaded yet, and must not be:
    it takes its settings from the environment that the server sets."""
    if stage not in STAGES:
        raise RequestError(f"there is no stage '{stage}': {near(stage, STAGES, len(STAGES))}")


def _run(request: Request, stage: str | None, trains: bool):
    """Run the root flow, or one stage's, against a Prefect API."""
    from flows.server import api
    from flows.terminal import shown

    out.print(styled("openk2: preset ", (request.name, "bold"), f", artifacts in {request.root}"))
    with api(request.root), shown(out):
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        from flows import stages
        from flows.precision import settle

        if trains:
            found = settle(request)
            request = found.request
            for said, style in ((found.decision, None), (found.warning, "yellow")):
                if said:
                    out.print(said, style=style, soft_wrap=True)
        # A subflow's heartbeat thread costs a second at its end, and here nobody watches for zombies.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            return stages.STAGES[stage or "recipe"](request)


def predict(
    stage: Annotated[str, typer.Argument(help="The stage. Only rephrase can be predicted.")] = "rephrase",
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
) -> None:
    """Estimate a stage's requests to its engine, their cost and their time, without starting it.

    The estimate is based on a sample of the chosen documents. Prices are `execution.engine_price`, per million tokens;
    speed and acceptance are those of the engine's last run.

    Example: `openk2 predict rephrase --set rephrase.documents=300 --set execution.engine_price.generated=0.6`
    """
    if stage != "rephrase":
        raise RequestError(f"'{stage}' asks no engine: only rephrase can be predicted")
    from flows.preset import load_preset
    from flows.steps import graph
    from tasks.rephrase.rewriting import predict_run

    request = request_of(preset, root, preset_file, overrides)
    p = load_preset(request)
    found, execution = graph(request, p), p.execution
    if (step := found["rewrites"]).artifact() is not None:
        out.print("rephrase is up to date: a run would ask nothing.")
        return
    slots, answers = execution.slots(p.rephrase.engine), execution.answers_folder(root)
    some = predict_run(step, found["corpus"].require(), execution.engine_url, slots, execution.engine_price, answers)
    out.print(f"rephrase: {some.prediction.sentence()}.")
    if some.written:
        out.print(f"{some.written:,} documents are written already and left out of this.")
    if some.answers_kept:
        out.print("Answers of earlier runs are kept: what was asked then is not asked again, and it will be less.")


def status(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
) -> None:
    """Show which steps are done, stale or missing, and what they hold."""
    from flows.status import survey
    from flows.steps import graph

    table = Table(box=None, pad_edge=False)
    for column in ("step", "fingerprint", "state", "time", "what it holds"):
        table.add_column(column, justify="right" if column == "time" else "left", overflow="fold")
    colours = {"done": "green", "stale": "yellow", "missing": "dim", "begun": "cyan", "waits": "dim"}
    for line in survey(graph(request_of(preset, root, preset_file, overrides))):
        state = Text(line.state, style=colours[line.state])
        table.add_row(line.name, line.fingerprint, state, line.time, line.sentence)
    out.print(table)


def report(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
) -> None:
    """Write the report again from the existing manifests. Runs no stage and needs no Prefect."""
    from flows.steps import graph
    from tasks.report.page import publish_report

    found = graph(request_of(preset, root, preset_file, overrides))
    publish_report(found.newest(), root)
    out.print(styled("The report: ", (f"{root.rstrip('/')}/report.html", "bold")))


def fetch(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
) -> None:
    """Fetch the raw sources now, so that a run needs no network (part of `make run`)."""
    from flows.steps import graph
    from flows.terminal import shown
    from model.cache import cache_folder
    from tasks.corpus.acquire import acquire
    from tasks.lock import alone

    step = graph(request_of(preset, root, preset_file, overrides))["sources"]
    with alone(root, "openk2 fetch"), shown(out):
        artifact = step.artifact() or acquire(step.begin(), cache_folder())
    out.print(f"sources: {len(artifact.parts())} in {artifact.uri}")


for function in (
    *(generate, serve, chat, evaluate),
    *(run, predict, status, report),
    *(lineage, inspect, calibrate_alignment, review),
    fetch,
):
    app.command()(function)


def _page(root: str) -> str:
    return f"{root.rstrip('/')}/report.html"


INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that was interrupted, as shells have it."""


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: an expected failure is one sentence and exit code 1, whatever it passed through on its way up."""
    signal.signal(signal.SIGTERM, _interrupt)
    plain_logs()
    # Before torch is loaded: threads that spin while they wait starve everything else on a small machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        app()
    except (KeyboardInterrupt, SystemExit) as end:
        # typer makes an exit code of an interrupt, and says nothing
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        err.print("Interrupted: what was finished is kept; the same command goes on from here.")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("OPENK2_TRACEBACK"):
            raise
        err.print(styled(("openk2:", "bold red"), f" {sentence(error)}"), soft_wrap=True)
        raise SystemExit(1) from None


def command() -> None:
    """`main` as a process: one that was interrupted ends there and then. Prefect's threads would hold it for some ten
    seconds, in which it does nothing: every server and worker has been ended by the blocks that began them."""
    try:
        main()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    command()
