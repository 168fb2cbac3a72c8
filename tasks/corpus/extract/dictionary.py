"""A dictd dictionary (dictd(8), the .dict file): entries are a headword at the margin over an indented body."""

from __future__ import annotations

import re
from textwrap import dedent

from tasks.corpus.extract.passage import Passage

# Entries shorter than this are gathered with the ones after them; a longer one is a passage of its own. Ours.
PASSAGE_CHARS = 600
_BROKEN = re.compile(r"^(\S[^\n]{44,}[^\n\s])\n(?=[^\s\-*|#])", re.MULTILINE)
_CROSS_REFERENCE = re.compile(r"\{([^{}\n]*(?:\n[^{}\n]*)?)\}")


def extract(text: str) -> list[Passage]:
    """The entries, short ones gathered in their order."""
    passages: list[Passage] = []
    held: list[str] = []
    first, size = "", 0
    for word, body in entries(text):
        if word.startswith("00-database"):
            continue  # dictd's own headers
        first = first or word
        held.append(f"# {word}\n\n{body}")
        size += len(body)
        if size >= PASSAGE_CHARS:
            passages.append(Passage("\n\n".join(held), first, first))
            held, first, size = [], "", 0
    if held:
        passages.append(Passage("\n\n".join(held), first, first))
    return passages


def entries(text: str) -> list[tuple[str, str]]:
    """(headword, body) in stored order; cross references in braces become plain words."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line and not line[0].isspace():
            found.append((line.strip(), []))
        elif found:
            found[-1][1].append(line)
    bodies = ((word, _filled(dedent("\n".join(lines)).strip())) for word, lines in found)
    return [(word, _CROSS_REFERENCE.sub(r"\1", body)) for word, body in bodies if body]


def _filled(body: str) -> str:
    """`body` with the lines of a paragraph joined that were broken to fit a terminal: a line about as long as they get,
    and one at the margin after it."""
    return _BROKEN.sub(r"\1 ", body)
