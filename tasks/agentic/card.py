"""Data cards of synthetic data: what there is, who wrote it, what was refused, and under which terms it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model.visible import markdown


@dataclass(frozen=True)
class Origin:
    """Who wrote some of the rows."""

    who: str
    rows: int
    model: bool = False


def data_card(
    title: str,
    summary: str,
    fingerprint: str,
    origins: Sequence[Origin],
    counts: Mapping[str, int],
    tables: Mapping[str, Sequence[Sequence[str]]] | None = None,
    others: Sequence[str] = (),
) -> str:
    """The card as markdown; the same for the same data. `tables`: more of it by heading, each with its header row.
    `others`: what in it others wrote, each with its licence."""
    written = [origin for origin in origins if origin.rows]
    lines = [f"# {title}", "", summary, "", f"Fingerprint: `{fingerprint}`.", "", "## Who wrote it", ""]
    lines += [f"- {origin.rows:,} rows: {markdown(origin.who)}" for origin in written]
    lines += [
        "",
        "## Terms",
        "",
        ("" if others else "No text of others is in it: ")
        + "what a script wrote stands under this project's licence (Apache-2.0).",
        *(f"- {markdown(one)}" for one in others),
    ]
    if any(origin.model for origin in written):
        lines.append(
            "What a model wrote stands under the terms of that model and its provider: read them before release."
        )
    lines += [
        "",
        "People and addresses are invented.",
        "",
        "## What became of the candidates",
        "",
        "| | rows |",
        "|---|---:|",
    ]
    lines += [f"| {markdown(name)} | {count:,} |" for name, count in counts.items()]
    for heading, rows in (tables or {}).items():
        if len(rows) > 1:
            cells = [rows[0], ["---"] * len(rows[0]), *([markdown(cell) for cell in row] for row in rows[1:])]
            lines += ["", f"## {heading}", "", *(f"| {' | '.join(row)} |" for row in cells)]
    return "\n".join(lines) + "\n"
