"""What extraction gives: passages of Markdown-like text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Passage:
    """One piece of text that a raw file holds: a page, a dictionary's entries, a record.

    Headings are `#` lines, code stands in ``` fences with its lines as they were, formulas are LaTeX in `$` or `$$`.
    """

    text: str
    title: str = ""
    """The page's title, the entry's headword, or ''."""
    anchor: str = ""
    """Where within the file, or ''."""
    licence: str = ""
    """The record's own licence, or '' for the source's."""
    url: str = ""
    """Where on the web it was found (a WARC record's target, a record's `url`), or ''."""
    code: bool = False
    """True for program text: its lines are kept and code's own rules judge it."""


class ExtractionError(ValueError):
    """A document that gives no text; the sentence says what was wrong."""

    def __init__(self, reason: str, kind: str = "unreadable") -> None:
        """kind: `unreadable` where it is not what its name says; anything else is the reason of its rejected row."""
        super().__init__(reason)
        self.kind = kind
