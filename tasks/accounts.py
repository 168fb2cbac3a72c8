"""Where the rows of a stage went: what it took in is what it gave out, rejected and dropped, or it is not published.

A stage states one `Balance`, in the rows of its inputs' parts and of its own; the manifest records it as `accounts`, so
that whoever reads the manifest can hold it against the parts that are listed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

GROUPS = ("out", "rejected", "dropped")


class Counted(Protocol):
    """A part, as far as its rows are counted."""

    @property
    def rows(self) -> int: ...


def rows_of(parts: Iterable[Counted]) -> int:
    """All their rows."""
    return sum(part.rows for part in parts)


@dataclass(frozen=True)
class Balance:
    """Rows taken in, and what became of each: the name of the group of published parts that hold them (their rows are
    counted), or a count where they are rows of no part."""

    unit: str
    """What a row is, such as `documents`."""
    taken: int
    """Rows of the inputs, counted from the inputs."""
    out: str | int
    rejected: str | int = 0
    """Refused by a rule, and kept with the reason."""
    dropped: str | int = 0
    """Left out as configured."""

    def accounts(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The record for the manifest that lists `parts`."""
        fates = {name: getattr(self, name) for name in GROUPS}
        return {
            "unit": self.unit,
            "in": self.taken,
            **{name: _rows(parts, fate) if isinstance(fate, str) else fate for name, fate in fates.items()},
            "parts": {name: fate for name, fate in fates.items() if isinstance(fate, str)},
        }


def fault(accounts: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> str:
    """Why accounts do not hold of the parts that are listed beside them; empty where they do."""
    out, rejected, dropped = (accounts[name] for name in GROUPS)
    if accounts["in"] != out + rejected + dropped:
        return (
            f"of {accounts['in']:,} {accounts['unit']} that were read, {out:,} came out, {rejected:,} were rejected "
            f"and {dropped:,} dropped: {abs(accounts['in'] - out - rejected - dropped):,} "
            + ("are missing" if accounts["in"] > out + rejected + dropped else "are too many")
        )
    for name, group in accounts["parts"].items():
        if _rows(parts, group) != accounts[name]:
            return f"its parts '{group}' have {_rows(parts, group):,} {accounts['unit']}, not {accounts[name]:,}"
    return ""


def _rows(parts: Sequence[Mapping[str, Any]], group: str) -> int:
    return sum(part["rows"] for part in parts if part["key"].split("/")[0] == group)
