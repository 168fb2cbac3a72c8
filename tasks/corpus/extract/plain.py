"""Plain text and Markdown: taken as they are, lines that a hard wrap broke included."""

from __future__ import annotations

import re

from tasks.corpus.extract.passage import Passage

# YAML's, or Hugo's TOML. Its first line but comments is a field: a rule (`---`) above a paragraph is none.
_FRONT_MATTER = re.compile(
    r"\A(?:---[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*[^\s:#][^\n:]*:.*?\n---"
    r"|\+\+\+[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*[^\s=#][^\n=]*=.*?\n\+\+\+)[ \t]*(?:\n|\Z)",
    re.DOTALL,
)


def plain(text: str) -> list[Passage]:
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    return [Passage(text)] if text.strip() else []


def markdown(text: str) -> list[Passage]:
    """Markdown without its front matter; the first heading is the title."""
    found = plain(_FRONT_MATTER.sub("", text.replace("\r\n", "\n")))
    if not found:
        return []
    title = re.search(r"^#{1,6} +(.+)$", found[0].text, re.MULTILINE)
    return [Passage(found[0].text, title.group(1).strip() if title else "")]
