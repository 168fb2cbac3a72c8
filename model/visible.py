"""Hostile text made fit to look at and to write down: what a terminal, a browser or a reader of markdown would obey is
shown instead, what UTF-8 cannot hold is replaced.

Outlets use nothing else: `flows.terminal` for terminals, `escape` for HTML and SVG, `markdown` for Prefect artifacts.
"""

from __future__ import annotations

import html
import re
import unicodedata

# Controls, formats (bidirectional overrides, zero-width characters, tags), surrogates, private use, unassigned, and the
# separators that break lines where no newline stands.
_SHOWN_BY_NUMBER = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_KEPT = "\n"
_TAB = "→   "


def visible(text: str) -> str:
    """`text` with every invisible character spelled out: control characters as their pictures (an escape is `␛`),
    others as `⟨U+202E⟩`, tabs as arrows. Newlines stay. What is left can move no cursor, set no colour or title and
    turn no line around."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(_shown(character) for character in text)


def flat(text: str, most: int = 0) -> str:
    """The same on one line, white space run together, cut to `most` characters where given."""
    line = visible(" ".join(text.split()))
    return line if not most or len(line) <= most else f"{line[: most - 1]}…"


def escape(text: str, quote: bool = True) -> str:
    """`text` for HTML or SVG: visible, and none of it markup."""
    return html.escape(visible(text), quote)


def markdown(text: str) -> str:
    """`text` for one line of markdown or one cell of its tables: visible, and none of it markup, HTML or a link."""
    line = re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", flat(text))
    # a bare address would become a link by itself
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//")


def encodable(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON and Python literals can spell and no file can hold: each is
    U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    if character == "\t":
        return _TAB
    number = ord(character)
    if number < 0x20:
        return chr(0x2400 + number)
    if number == 0x7F:
        return "␡"
    # variation selectors are marks by category, and a way to hide bytes in a text
    if unicodedata.category(character) in _SHOWN_BY_NUMBER or 0xE0100 <= number <= 0xE01EF:
        return f"⟨U+{number:04X}⟩"
    return character
