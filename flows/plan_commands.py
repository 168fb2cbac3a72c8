"""`openk2 plan`: what a run would be, before there is one: its stages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.options import FileOption, PresetOption, RootOption, SetOption, request_of
from flows.request import PresetName

plan = typer.Typer(
    name="plan",
    help="Plan a run before there is one: its stages, and what every rank would hold, compute and send.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
out = Console(highlight=False)


@plan.command()
def stages(
    preset: PresetOption = PresetName.k2,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    html: Annotated[str, typer.Option("--html", help="Write a page there, with the curves as drawings.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """The stages of pretraining, as one plan: updates, tokens, learning rate, sequence, batch, window and mix of each.

    A plan that does not add up is refused with the stage and the reason: a learning rate that jumps, a stage without
    an update, an end that lies in the past, a YaRN factor that falls, samples longer than the window. Where the tokens
    stage of the preset has been published under the root, it also says how often each domain is read.

    Words: an *update* is one step of the optimizer on a global batch of *batch* samples of *sequence* tokens. A
    *border* is a count of tokens at which a stage ends; the update that crosses it belongs to the stage it starts in.
    *alone* is what a stage would take by itself, rounded, as reports say it.

    Examples:

    - `openk2 plan stages`: Kimi K2's own: 237,823 updates.

    - `openk2 plan stages --preset laptop --json | jq '.stages[].updates'`: for scripts.

    - `openk2 plan stages --preset-file mine.yaml --html stages.html`: a plan of your own as a page.

    - `openk2 plan stages --preset gpu --set pretrain.stages='[{name: all, tokens: 1000000000, sequence_length: 4096,
      batch: 128, rate: {start: 0, end: 1.0e-3, shape: linear}}]'`: tried before it is written down.
    """
    from flows.stage_plan import plan_stages, render, to_json

    schedule, found = plan_stages(request_of(preset, root, preset_file, overrides))
    if html:
        from flows.stage_page import page

        path = Path(html)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(schedule, found), encoding="utf-8")
        out.print(f"The page: [bold]{path}[/bold]")
    elif as_json:
        sys.stdout.write(to_json(schedule))
    else:
        for piece in render(schedule, found, out.width):
            out.print(piece)
