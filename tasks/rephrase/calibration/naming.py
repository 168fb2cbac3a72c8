"""Names replaced by other plausible names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from tasks.rephrase.calibration.edits import Change, Pool, Span, Text, draw, lists, literal_spans, outside

WORD = r"[A-ZÀ-ÞĀ-Ž][\w’'-]*[a-zà-ÿ0-9ā-ž]|[A-Z]{2,}[0-9]*|[A-ZÀ-Þ]\."
NAME = re.compile(rf"(?<![\w`$\\/.@#-])(?:{WORD})(?:[ -](?:(?:of|de|von|van|der|la|the|al) )?(?:{WORD}))*(?![\w`/])")
STARTS = re.compile(r"(?:^|[.!?:…]['\"”’)*_]*\s+|\n)\s*(?:[-*#>]+\s*|\d+[.)]\s*|\*\*|\|)*['\"“‘(*]*$")
TITLE = re.compile(r"《([^》]{2,20})》")


def entity_swap(text: Text, pool: Pool) -> Iterator[Change]:
    """A name becomes another of its shape, that neither text has: all its mentions, or one where there are several."""
    body = text.rewrite
    both = f"{text.source}\n{body}".lower()
    for name, spans in names(body).items():
        if name.lower() not in text.source.lower():
            continue  # a form of the name that the source does not have: nothing says which one is meant
        drawn = sorted(_offered(name, pool), key=lambda other: (draw(text.id, name, other), other))
        options = list(islice((other for other in drawn if not _shares(other, both)), 2))
        if not options:
            continue
        yield Change(tuple((*span, options[0]) for span in spans), f"'{name}' became '{options[0]}'")
        if len(spans) > 1:
            one, new = spans[draw(text.id, name) % len(spans)], options[-1]
            yield Change(((*one, new),), f"'{name}' became '{new}' in one of {len(spans)} places")


def names(body: str) -> dict[str, list[Span]]:
    """The names of a text with the places where each stands: words in a capital inside a sentence, and everywhere
    else once they stand there; places, months and titles from lists and marks in Chinese."""
    blocked = literal_spans(body)
    found: dict[str, list[Span]] = {}
    sure: Counter[str] = Counter()
    common = set(lists()["no_names"])
    for match in NAME.finditer(body):
        if not outside(blocked, *match.span()):
            continue
        start, end = match.span()
        words = match.group().split(" ")
        while words and words[0].lower() in common:
            start += len(words.pop(0)) + 1
        while words and words[-1].lower() in common:
            end -= len(words.pop()) + 1
        name = body[start:end]
        if not words or len(name) < 2:
            continue
        found.setdefault(name, []).append((start, end))
        sure[name] += not STARTS.search(body[max(0, start - 40) : start])
    for place in lists()["places_zh"]:
        for match in re.finditer(place, body):
            if outside(blocked, *match.span()):
                found.setdefault(place, []).append(match.span())
                sure[place] += 1
    for match in TITLE.finditer(body):
        found.setdefault(match[1], []).append(match.span(1))
        sure[match[1]] += 1
    # At a sentence's beginning a capital says nothing, unless the name is a list's or of several words.
    return {
        name: spans for name, spans in found.items() if sure[name] or " " in name or shape(name) not in ("word", "WORD")
    }


def shape(name: str) -> str:
    """What a name can be replaced by: one of its list, or of as many words written the same way."""
    for kind, members in lists()["names"].items():
        if name in members:
            return str(kind)
    if name in lists()["places_zh"]:
        return "places_zh"
    if re.search(r"[㐀-鿿]", name):
        return f"han {len(name)}"
    if name.isupper():
        return "WORD" if " " not in name else "WORDS"
    return "word" if " " not in name else f"words {name.count(' ') + 1}"


def offer(texts: Iterable[str]) -> dict[str, list[str]]:
    """Names of many texts by shape."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for name in names(text):
            found.setdefault(shape(name), set()).add(name)
    return {kind: sorted(members) for kind, members in sorted(found.items())}


def _offered(name: str, pool: Pool) -> list[str]:
    kind = shape(name)
    known: Mapping[str, list[str]] = lists()["names"]
    if kind in known:
        return known[kind]
    return lists()["places_zh"] if kind == "places_zh" else list(pool.names.get(kind, ()))


def _shares(name: str, text: str) -> bool:
    """Whether a word of the name stands in the text: Henry IV for Henry V, or the name itself."""
    return name.lower() in text or any(
        len(word) > 2 and re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text) is not None
        for word in re.split(r"[ -]", name)
        if word.lower() not in lists()["no_names"]
    )
