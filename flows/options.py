"""The options that every command has: which recipe, and where its artifacts lie."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.request import PresetName, Request

PresetOption = Annotated[PresetName, typer.Option("--preset", "-p", help="Which recipe: its size and its literals.")]
RootOption = Annotated[
    str, typer.Option("--root", "-r", envvar="OPENK2_ROOT", help="Where artifacts lie: a folder or an fsspec URL.")
]
FileOption = Annotated[
    str | None, typer.Option("--preset-file", help="A preset of your own (YAML; may say `extends: laptop`).")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change one field: `--set rephrase.documents=40`. Repeatable.")
]


def request_of(preset: PresetName, root: str, preset_file: str | None, overrides: list[str] | None) -> Request:
    """What those options ask for."""
    return Request(preset=preset, root=root, preset_file=preset_file, overrides=overrides or [])
