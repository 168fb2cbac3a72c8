"""What a rule is: one measure, one limit, one reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["above", "below"]


@dataclass(frozen=True)
class Rule:
    """Refuses what lies on one side of a limit; a value equal to the limit passes.

    Where a paper says `at least` of what it drops, a document exactly at the limit passes here and not there.
    """

    name: str
    """The reason that stands in the rejected table; also the name of the rule's file."""
    why: str | None
    """Why such text is not wanted: the docstring of the rule's file."""
    source: str
    """The paper and its section or table, or `ours`."""
    measure: str
    """Which of a route's measures (`measures.MEANINGS` says what each is)."""
    refuses: Side
    """The side of the limit that is refused."""
    limit: str
    """The field of the route's configuration that holds the limit, with dots for nesting; null there is off."""
    needs: str = ""
    """A field without which the rule has nothing to go by, or ''."""
    unit: Literal["document", "line"] = "document"
    """What it judges: a line rule takes lines out, before the document is judged."""

    @property
    def reason(self) -> str:
        """`why` on one line."""
        return " ".join((self.why or "").split())
