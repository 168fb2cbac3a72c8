"""Names: none invented, and most of the source's kept.

A name of the rewrite is backed by the source when the source has it in any case, in another form (Iran, Iranian),
spelled out (WHO, World Health Organization) or as another form of the same name (names.yaml: France, French). A word
in a capital is a name inside a sentence; where a sentence begins, or in a heading in title case, only when a list knows
it or no common word is written like it (SQLite).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from tasks.rephrase.alignment.pair import CODE, FORMULA, HAN, URL, Pair, Verdict, lists, verdict
from tasks.rephrase.config import AlignmentConfig

NAMES = Path(__file__).with_name("names.yaml")

TOKEN = re.compile(r"[A-Za-zÀ-ɏͰ-ӿ][A-Za-zÀ-ɏͰ-ӿ0-9]*")
"""A run of letters and digits that begins with a letter: `Curve25519`, `IPv4`; both halves of a hyphen on their own."""

OPENS = re.compile(r"(?:^|[.!?:;…。！？：；—–|]|\n)[\s*_\"'“”‘’(\[>#|–—-]*(?:\d+[.)]\s*[*_]*)?$|[*_“\"]$|\(\s*$")
"""What stands before a word that opens a sentence, a heading, an item or a quotation."""

INITIAL = re.compile(r"(?:^|[\s(])[A-Z]\.\s*$")
MONTH = re.compile(r"\d May|[Ii]n May|May \d|of May")
ROMAN = re.compile(r"[IVXLCDM]+")
SUFFIXES = (
    "vians",
    "vian",
    "ians",
    "ian",
    "eans",
    "ean",
    "ans",
    "an",
    "ese",
    "ish",
    "ites",
    "ite",
    "ers",
    "er",
    "ic",
    "ns",
    "n",
    "is",
    "i",
    "es",
    "s",
)
SMALL = frozenset({"of", "the", "and", "for", "in", "on", "de", "to", "a", "by", "with", "is", "was"})
TITLE_ZH = re.compile(r"《([^》]{1,30})》")
DOTTED_ZH = re.compile(r"[㐀-鿿]·[㐀-鿿]{2}")
"""The middle of a foreign name: what stands before and after it cannot be told from its neighbours."""


def entities(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No name that the source does not back, and not too many of its names lost."""
    backed = _Backing(pair.source)
    found = names(pair.rewrite)
    invented = [name for name in found if not backed.holds(name, pair.rewrite)]
    before = names(pair.source)
    kept = _Backing(pair.rewrite)
    lost = [name for name in before if not kept.holds(name, pair.source)]
    score = 1 - len(lost) / max(len(before), 1)
    if invented:
        return Verdict("entities", score, False, f"names {', '.join(invented[:4])}, which the source does not")
    why = f"keeps {score:.0%} of the names, {config.entities:.0%} are wanted; lost {', '.join(lost[:4])}"
    return verdict("entities", score, score >= config.entities, why)


def names(text: str) -> list[str]:
    """The names in a text, each once, in order."""
    bare = _bare(text)
    found: dict[str, None] = {}
    common = lists()["capitals"]
    title = _titles(bare)
    for match in TOKEN.finditer(bare):
        word = match.group()
        if not word[0].isupper() or len(word) < 2 or ROMAN.fullmatch(word):
            continue
        if word == "May" and MONTH.search(bare[max(0, match.start() - 4) : match.end() + 5]):
            found[word] = None
        if word.lower() in common:
            continue
        if _sure(word):
            found[word] = None
        elif _inside(match.start(), title):
            continue
        elif bare[match.start() - 1 : match.start()] in tuple("-–/'’") and not re.match(
            r"[A-Z]", bare[match.start() - 2 : match.start() - 1]
        ):
            continue
        elif OPENS.search(before := bare[max(0, match.start() - 60) : match.start()]) and not INITIAL.search(before):
            continue
        else:
            found[word] = None
    if HAN.search(text):
        found |= dict.fromkeys(_chinese(bare))
    return list(found)


def _sure(word: str) -> bool:
    """Whether a word is a name even where a sentence begins: listed, or written as no common word is."""
    return word.lower() in _lists()["known"] or (len(word) > 1 and not word[1:].islower() and not word.isupper())


def _titles(text: str) -> list[tuple[int, int]]:
    """Headings, whole or as the bold beginning of a line: their capitals say nothing."""
    found = []
    for match in re.finditer(r"^#+ .*$|^\*\*[^*\n]+\*\*|^[*_][^*_\n]+[*_]$", text, re.M):
        long = re.findall(r"[A-Za-z]{4,}", match.group())[1:]
        if sum(word[0].isupper() for word in long) * 2 > len(long):
            found.append(match.span())
    return found


def _inside(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(begin <= place < end for begin, end in spans)


def _chinese(text: str) -> list[str]:
    """Names in Chinese: between title marks, with a dot between their parts, written by sound, or listed."""
    found = [match.group(1) for match in TITLE_ZH.finditer(text)]
    found += [match.group() for match in DOTTED_ZH.finditer(text)]
    found += [match.group() for match in re.finditer(f"[{_lists()['sounds_zh']}]{{4,}}", text)]
    found += [match.group() for match in _places().finditer(text)]
    return found


def _bare(text: str) -> str:
    """`text` without what is no prose, every other character in its place."""
    for pattern in (FORMULA, CODE, URL):
        text = pattern.sub(lambda match: " " * len(match.group()), text)
    return text


def _plain(word: str) -> str:
    folded = unicodedata.normalize("NFKD", word.lower())
    return "".join(character for character in folded if not unicodedata.combining(character))


@cache
def _stems(word: str) -> frozenset[str]:
    """What is left of a word without the endings that make an adjective, a people or a plural of a name."""
    word = _plain(word)
    found = {word}
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= (3 if suffix == "s" else 4):
            found.add(word[: -len(suffix)])
    found |= {stem.rstrip("aeiouy") for stem in found if len(stem.rstrip("aeiouy")) >= 4}
    return frozenset(found)


class _Backing:
    """A text as what backs names."""

    def __init__(self, text: str) -> None:
        self.text = text
        lower = _plain(text)
        self.lower = lower
        tokens = [match.group() for match in TOKEN.finditer(text)]
        self.words = {_plain(token) for token in tokens}
        self.stems = {stem for word in self.words for stem in _stems(word)}
        self.groups = {
            number
            for number, forms in enumerate(_lists()["same"])
            if any((form in self.words) if " " not in form and "." not in form else form in lower for form in forms)
        }
        self.initials = _initials(tokens)

    def holds(self, name: str, other: str) -> bool:
        """Whether `name`, which stands in `other`, is one that this text has."""
        if HAN.search(name):
            return self._holds_chinese(name)
        word = _plain(name)
        if word in self.words or word in self.lower:
            return True
        if len(word) > 3 and _stems(word) & self.stems:
            return True
        if len(word) > 6 and any(len(own) > 6 and own[: len(word) - 2] == word[: len(word) - 2] for own in self.words):
            return True
        groups = _group_of(word)
        if groups & self.groups:
            return True
        if name[:2].isupper() and word.rstrip("s") in self.initials:
            return True
        return self._spelled(name, other)

    def _spelled(self, name: str, other: str) -> bool:
        """Whether `name` is part of the spelling out of an abbreviation that this text has."""
        tokens = [match.group() for match in TOKEN.finditer(other)]
        short = {match.group().lower() for match in re.finditer(r"\b[A-Z][A-Z0-9]{1,6}\b", self.text)}
        for place, token in enumerate(tokens):
            if token != name:
                continue
            for begin in range(max(0, place - 6), place + 1):
                for end in range(place + 1, min(len(tokens), begin + 8) + 1):
                    letters = "".join(word[0] for word in tokens[begin:end] if word[0].isupper()).lower()
                    whole = "".join(word[0] for word in tokens[begin:end]).lower()
                    if len(letters) > 1 and (letters in short or whole in short):
                        return True
        return False

    def _holds_chinese(self, name: str) -> bool:
        if name in self.text:
            return True
        if "·" in name:
            return name.split("·")[1] in self.text
        groups = [forms for forms in _lists()["same_zh"] if name in forms]
        if any(form in self.text for forms in groups for form in forms):
            return True
        if name in _lists()["places_zh"] or f"《{name}》" in self.text:
            return False
        # Anything else is a run of characters cut by a pattern: enough that two of its pairs of characters are known.
        pairs = ["".join(two) for two in pairwise(name)]
        return sum(pair in self.text for pair in pairs) * 2 >= len(pairs)


def _initials(tokens: list[str]) -> set[str]:
    """Abbreviations that words in a row could have."""
    found: set[str] = set()
    for begin, first in enumerate(tokens):
        capitals = letters = ""
        for token in tokens[begin : begin + 9]:
            small = token.lower() in SMALL
            letters += "" if small else token[0].lower()
            capitals += token[0].lower() if token[0].isupper() else ""
            if len(capitals) > 1 and first[0].isupper() and (small or token[0].isupper()):
                found.add(capitals)
            elif len(letters) > 3 and first.lower() not in SMALL:
                found.add(letters)
    return found


@cache
def _lists() -> dict[str, Any]:
    found = yaml.safe_load(NAMES.read_text(encoding="utf-8"))
    found["places_zh"] = frozenset(found["places_zh"])
    found["known"] = frozenset(found["known"]) | {
        form for forms in found["same"] for form in forms if len(form) > 3
    } - {
        "earth",
        "globe",
        "world",
        "planet",
        "sunlight",
        "solar",
        "lunar",
        "terrestrial",
        "polish",
        "union",
        "alliance",
        "states",
        "television",
        "mountain",
        "saint",
        "doctor",
        "professor",
        "president",
        "presidency",
        "poles",
        "pole",
        "march",
        "artificial intelligence",
        "ultraviolet",
        "moon",
        "turkey",
        "scot",
        "dane",
        "swede",
        "dutch",
        "sept",
    }
    return found


@cache
def _places() -> re.Pattern[str]:
    return re.compile("|".join(sorted(_lists()["places_zh"], key=lambda name: (-len(name), name))))


@cache
def _group_of(word: str) -> frozenset[int]:
    return frozenset(
        number
        for number, forms in enumerate(_lists()["same"])
        if word in {part for form in forms for part in (form, *form.split())}
    )
