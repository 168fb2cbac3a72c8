"""`openk2 plan`: what a run would be, before there is one: its stages, and its ranks."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from flows.options import FileOption, MfuOption, PeakOption, PresetOption, RootOption, SetOption, request_of
from flows.request import PresetName
from flows.tables import styled, to_json
from flows.terminal import Terminal

plan = typer.Typer(
    name="plan",
    help="Plan a run: its stages, what every rank would hold and send, how long new weights take to reach servers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
out = Terminal()


@plan.command()
def stages(
    preset: PresetOption = PresetName.k2,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    html: Annotated[str, typer.Option("--html", help="Write a page with charts to this file.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the schedule of pretraining: updates, tokens, learning rate, sequence, batch, window and mix of each stage.

    A schedule that does not add up is refused, with the stage and the reason: a learning rate that jumps, a stage
    without an update, an end before the start, a YaRN factor that falls, samples longer than the window. If the tokens
    stage of the preset is published under the root, it also shows how often each domain is read.

    Terms: an *update* is one step of the optimizer on a global batch of *batch* samples of *sequence* tokens. A
    *border* is the token count at which a stage ends; an update that crosses it belongs to the stage in which it
    starts. *alone* is the number of updates of the stage's tokens by themselves, rounded, as in reports.

    Examples:

    - `openk2 plan stages`: Kimi K2's schedule, with 237,823 updates.

    - `openk2 plan stages --preset laptop --json | jq '.stages[].updates'`: for scripts.

    - `openk2 plan stages --preset-file mine.yaml --html stages.html`: a schedule of your own as a page.

    - `openk2 plan stages --preset gpu --set pretrain.stages='[{name: all, tokens: 1000000000, sequence_length: 4096,
      batch: 128, yarn_factor: 8, rate: {start: 0, end: 1.0e-3, shape: linear}}]'`: try one before writing a preset.
    """
    from flows.stage_page import document
    from flows.stage_plan import plan_stages
    from model import storage
    from tasks.report import html as pages
    from tasks.report import terminal

    schedule, found = plan_stages(request_of(preset, root, preset_file, overrides))
    if html:
        storage.write(html, pages.page(document(schedule, found)).encode())
        out.print(styled("The page: ", (html, "bold")))
    elif as_json:
        sys.stdout.write(to_json(asdict(schedule)))
    else:
        terminal.show(out, document(schedule, found))


@plan.command()
def ranks(
    preset: PresetOption = PresetName.k2,
    preset_file: FileOption = None,
    overrides: SetOption = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Number of nodes. Default: the preset's.")] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", min=1, help="Accelerators per node. Default: the preset's processes."),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option("--memory", min=0.1, help="Memory of an accelerator, in GB. Default: the preset's, else 80."),
    ] = None,
    mfu: MfuOption = 0.3,
    peak: PeakOption = None,
    price: Annotated[float, typer.Option("--price", min=0, help="Price of an accelerator per hour.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Dry run: show what every rank would hold, compute and send in base, SFT and RL, and whether it fits.

    Builds every rank's part of the network and of the optimizer on the meta device, which has shapes but no memory, so
    a trillion parameters take seconds and no GPU. Checks names and shapes, that the ranks of a copy hold every
    parameter exactly once, that every rank has samples, and that the rank with the highest memory use fits its
    accelerator, also while it samples replies. If a stage would not run, it prints the stage, the reason and what to
    change, and exits with 1.

    Terms: a *layout* divides one copy of the model into *pipeline* positions (some of the layers each) and *expert*
    ranks (some of every layer's experts each). It is set in `pretrain.run.layout`, `sft.run.layout` and
    `rl.run.layout`. Ranks beyond one copy hold more copies: *data*.

    Examples:

    - `openk2 plan ranks`: Kimi K2 on 256 nodes of 8, pipeline 16 x expert 16.

    - `openk2 plan ranks --nodes 32 --memory 141`: one copy, on the fewest nodes that hold it.

    - `openk2 plan ranks --preset node --memory 141`: one node of accelerators with more memory.

    - `openk2 plan ranks --preset gpu --set pretrain.run.micro_batch=32`: does a larger micro-batch still fit?

    - `openk2 plan ranks --nodes 96 --price 2 --json | jq .closed.money`: for scripts.
    """
    from flows.rank_plan import plan_ranks, record, render

    request = request_of(preset, "data", preset_file, overrides)
    found = plan_ranks(request, nodes, gpus_per_node, memory and memory * 1e9, peak, mfu, price)
    if as_json:
        sys.stdout.write(to_json(record(found)))
    else:
        for piece in render(found):
            out.print(piece)
    if found.problems:
        raise typer.Exit(1)


@plan.command()
def sync(
    preset: PresetOption = PresetName.k2,
    preset_file: FileOption = None,
    overrides: SetOption = None,
    network: Annotated[
        float, typer.Option("--network", min=0.1, help="Network bandwidth of a node, one direction, in GB/s.")
    ] = 400.0,
    nvlink: Annotated[
        float, typer.Option("--nvlink", min=0.1, help="NVLink bandwidth of an accelerator, one direction, in GB/s.")
    ] = 200.0,
    host: Annotated[
        float, typer.Option("--host", min=0.1, help="Bandwidth from the host to one accelerator, in GB/s.")
    ] = 50.0,
    achieved: Annotated[
        float,
        typer.Option(
            "--achieved", min=0.01, max=1, help="Share of the slower of the two links that a broadcast achieves."
        ),
    ] = 0.33,
    bucket: Annotated[float, typer.Option("--bucket", min=0.001, help="Size of a bucket, in GB.")] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Estimate how long a checkpoint engine takes to send new weights from RL's ranks to the sampling engines.

    Every rank copies its part to its host. Then all weights are broadcast in buckets to every rank, with two buckets
    in flight, so that copies overlap with the broadcast. The defaults are the links of an H800 node, and the share of
    them that checkpoint-engine achieved in its own measurement of K2 (16 s, in FP8).

    Examples:

    - `openk2 plan sync`: Kimi K2 in bfloat16, FP8 and INT4, with pipeline 16 x expert 16.

    - `openk2 plan sync --network 100 --json | jq .fp8.seconds`: on slower nodes.
    """
    import dataclasses
    import json

    from flows.precision import settle
    from flows.preset import load_preset
    from flows.tables import table
    from training.sync_plan import BYTES, SECONDS, Links, sync_plan

    work = load_preset(settle(request_of(preset, "data", preset_file, overrides)).request).training()[-1]
    links = Links(network=network * 1e9, nvlink=nvlink * 1e9, host=host * 1e9, achieved=achieved)
    found = {form: sync_plan(work.model, work.layout, form, bucket * 1e9, links) for form in BYTES}
    if as_json:
        rows = {form: dataclasses.asdict(one) | {"seconds": one.seconds} for form, one in found.items()}
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    shown = table(
        "weights", "GB", "a rank's, GB", "buckets", "to host, s", "broadcast, s", "seconds", f"{SECONDS:g} s?"
    )
    for form, one in found.items():
        sizes = (f"{one.weights / 1e9:,.2f}", f"{one.rank / 1e9:,.2f}", f"{one.buckets:,}")
        times = (f"{one.to_host:,.2f}", f"{one.broadcast:,.1f}", f"{one.seconds:,.1f}")
        shown.add_row(form, *sizes, *times, "within" if one.seconds < SECONDS else "over")
    out.print(shown)
    rate = min(links.network, links.nvlink) / 1e9
    out.print(f"All ranks receive all weights at {rate:,.0f} GB/s x {achieved:g} = {links.broadcast / 1e9:,.0f} GB/s.")
