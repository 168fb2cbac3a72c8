"""The options that commands share: which recipe, where its artifacts lie, and what accelerators achieve."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from flows.errors import refusal
from flows.request import PresetName, Request

PresetOption = Annotated[
    PresetName, typer.Option("--preset", "-p", help="The recipe: its sources, sizes and settings.")
]
RootOption = Annotated[
    str,
    typer.Option("--root", "-r", envvar="OPENK2_ROOT", help="Where artifacts are stored: a folder or an fsspec URL."),
]
FileOption = Annotated[
    str | None, typer.Option("--preset-file", help="A preset of your own (YAML; may have `extends: laptop`).")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change one field: `--set rephrase.documents=40`. Repeatable.")
]
MfuOption = Annotated[
    float, typer.Option("--mfu", min=0.001, max=1, help="Share of the peak FLOP/s that training achieves.")
]
PeakOption = Annotated[
    float | None,
    typer.Option("--peak", min=1, max=1e21, help="Peak FLOP/s of one accelerator. Default: the preset's, else 989e12."),
]


class RequestError(ValueError):
    """Options that cannot be taken; the message names the one and never repeats a secret."""


def request_of(preset: PresetName, root: str, preset_file: str | None, overrides: list[str] | None) -> Request:
    """What those options ask for."""
    try:
        return Request(preset=preset, root=root, preset_file=preset_file, overrides=overrides or [])
    except ValidationError as error:
        raise RequestError(refusal(error, Request)) from None
