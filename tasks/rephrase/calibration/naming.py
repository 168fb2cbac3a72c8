"""Names replaced by other plausible names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice

from tasks.rephrase.alignment.pair import HAN
from tasks.rephrase.calibration.edits import Change, Pool, Span, Text, draw, lists, literal_spans, outside

WORD = r"(?:[A-ZÀ-ÞĀ-Ž][\w’'-]*[a-zà-ÿ0-9ā-ž]|[A-Z]{2,}[0-9]*)(?<!['’]s)"
INITIAL = r"[A-Z]\."
NAME = re.compile(
    rf"(?<![\w`$\\/.@#°-])(?:{INITIAL} )*{WORD}"
    rf"(?:[ -](?:(?:of|de|von|van|der|la|the|al) )?(?:{WORD}|{INITIAL} {WORD}))*(?![\w`/])"
)
STARTS = re.compile(r"(?:^|[.!?:…]['\"”’)*_]*\s+|\n)\s*(?:[-*#>]+\s*|\d+[.)]\s*|\*\*|\|)*['\"“‘(*]*$")
TITLE = re.compile(r"《([^》]{2,20})》")
ADJECTIVE = re.compile(r"\w{2,}(?:ians?|eans?|ese|ish|ic)")
PLACE = re.compile(r"\b(?:in|at|near|from|to|through|across|off|outside|around) (?:the )?$")


def entity_swap(text: Text, pool: Pool) -> Iterator[Change]:
    """A name becomes another of its shape, that neither text has: all its mentions, or one where there are several."""
    body = text.rewrite
    both = f"{text.source}\n{body}".lower()
    for name, spans in names(body).items():
        if name.lower() not in text.source.lower():
            continue  # a form of the name that the source does not have: nothing says which one is meant
        options = list(islice((other for other in _offered(name, text, pool) if not _shares(other, both)), 2))
        if not options:
            continue
        yield Change(tuple((*span, options[0]) for span in spans), f"'{name}' became '{options[0]}'")
        if len(spans) > 1:
            one, new = spans[draw(text.id, name) % len(spans)], options[-1]
            yield Change(((*one, new),), f"'{name}' became '{new}' in one of {len(spans)} places")


@lru_cache(maxsize=4096)
def names(body: str) -> dict[str, list[Span]]:
    """The names of a text with the places where each stands: words in a capital inside a sentence, and everywhere
    else once they stand there; places, months and titles from lists and marks in Chinese."""
    blocked = literal_spans(body)
    found: dict[str, list[Span]] = {}
    sure: set[str] = set()
    common, units = set(lists()["no_names"]), {unit for group in lists()["units"] for unit in group}
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
        if not words or len(name) < 2 or name in units:
            continue
        found.setdefault(name, []).append((start, end))
        inside = not STARTS.search(body[max(0, start - 40) : start]) or start > match.start()
        if inside and not _heading(body, start):
            sure.add(name)
    for place in lists()["places_zh"]:
        for match in re.finditer(place, body):
            if outside(blocked, *match.span()):
                found.setdefault(place, []).append(match.span())
                sure.add(place)
    for match in TITLE.finditer(body):
        found.setdefault(match[1], []).append(match.span(1))
        sure.add(match[1])
    # At a sentence's beginning or in a heading a capital says nothing, unless the name is a list's or a person's.
    return {
        name: spans
        for name, spans in found.items()
        if name in sure or name in _listed() or shape(name).startswith("person")
    }


def _heading(body: str, place: int) -> bool:
    """Whether `place` stands in a line that looks like a heading or a label: short, without a stop, mostly capitals."""
    line = body[body.rfind("\n", 0, place) + 1 :].partition("\n")[0].strip(" *_#|")
    words = re.findall(r"[A-Za-zÀ-ž]{4,}", line)
    return (
        line[-1:] not in '.!?:;,…"”)' and len(words) < 12 and sum(word[0].isupper() for word in words) * 2 > len(words)
    )


def shape(name: str) -> str:
    """What a name can be replaced by: one of its list, another person's, or one written the same way."""
    if name in _listed():
        return _listed()[name]
    if HAN.search(name):
        return f"han {len(name)}"
    words = name.split(" ")
    if len(words) > 1 and (words[0] in lists()["given"] or words[0].endswith(".")):
        return f"person {len(words)}"
    if name.isupper():
        return f"WORD {len(words)}"
    if len(words) == 1 and ADJECTIVE.fullmatch(name):
        return "adjective"
    return f"word {len(words)}"


def offer(texts: Iterable[str]) -> dict[str, list[str]]:
    """Names of many texts by shape, those that stand where a place does apart as well."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for name, spans in names(text).items():
            found.setdefault(shape(name), set()).add(name)
            if _is_place(name, text, spans):
                found.setdefault(f"place {name.count(' ')}", set()).add(name)
    return {kind: sorted(members) for kind, members in sorted(found.items())}


def _offered(name: str, text: Text, pool: Pool) -> list[str]:
    """Names that can replace `name`, those that fit best first, drawn by the pair and the name."""
    kind = shape(name)
    groups = [list(pool.names.get(kind, ()))]
    if kind in lists()["names"]:
        groups = [lists()["names"][kind]]
    elif kind == "places_zh":
        groups = [lists()["places_zh"]]
    elif kind.startswith("word") and _is_place(name, text.rewrite, names(text.rewrite)[name]):
        groups.insert(0, list(pool.names.get(f"place {name.count(' ')}", ())))
    return [other for some in groups for other in sorted(some, key=lambda other: (draw(text.id, name, other), other))]


def _is_place(name: str, body: str, spans: list[Span]) -> bool:
    plain = shape(name).startswith("word")
    return plain and any(PLACE.search(body[max(0, start - 16) : start]) for start, _ in spans)


def _shares(name: str, text: str) -> bool:
    """Whether a word of the name stands in the text: Henry IV for Henry V, or the name itself."""
    return name.lower() in text or any(
        len(word) > 2 and re.search(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text) is not None
        for word in re.split(r"[ -]", name)
        if word.lower() not in lists()["no_names"]
    )


@cache
def _listed() -> dict[str, str]:
    listed = {name: kind for kind, members in lists()["names"].items() for name in members}
    return listed | dict.fromkeys(lists()["places_zh"], "places_zh")
