"""Tables and amounts as the plans show them at a terminal, and the plans as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks.report import words

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def styled(*pieces: str | tuple[str, str]) -> Text:
    """A line of which some pieces, (text, style), look different: nothing that is printed is read as markup."""
    from rich.text import Text

    return Text.assemble(*pieces)


def table(*columns: str) -> Table:
    """A table without lines: numbers to the right; the first column, and one without a name, hold words. Where there
    are such, columns stand further apart."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if "" in columns else (0, 1, 0, 0))
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place and column else "left", overflow="fold")
    return made


def to_json(plan: Mapping[str, Any]) -> str:
    """A plan as a script reads it."""
    return json.dumps(plan, indent=1) + "\n"


def amount(count: float) -> str:
    """Four figures and a unit: `15.96T`."""
    for factor, name in words.SCALES:
        if count >= factor:
            return f"{count / factor:.4g}{name}"
    return f"{count:.4g}"
