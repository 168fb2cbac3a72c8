"""What every check of a rewritten segment takes and gives, and the few things that several of them read in a text.

A check is a pure function of a `Pair` and the thresholds; it returns a `Verdict`: a score (1 is best unless said
otherwise), whether it passes, and in words why not. The order in which they run is in stack.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tasks.rephrase.config import AlignmentConfig

WORDS = Path(__file__).with_name("words.yaml")

HAN = re.compile(r"[㐀-鿿豈-﫿]")

WORD = re.compile(r"[㐀-鿿豈-﫿぀-ヿ]|[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:[.,]\d+)*")

FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?!\s)((?:\\.|[^$\n\\])+?)(?<!\s)\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]"
    r"|\\begin\{([A-Za-z]+\*?)\}(.*?)\\end\{\5\}",
    re.S,
)

CODE = re.compile(r"(`{1,2})(?!`)([^\n]+?)(?<!`)\1(?!`)")

HEADING = re.compile(r"^(?P<signs>#{1,6}[ \t]+)(?P<text>.+?)[ \t#]*$", re.M)

URL = re.compile(r"(?:https?|ftp)://[^\s<>\"'）】]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


@dataclass(frozen=True)
class Pair:
    """A source segment and its rewrite, with what the style allows."""

    source: str
    rewrite: str
    finish: str = "stop"
    length: tuple[float, float] | None = None
    """The style's own length band."""
    adds: bool = False
    """Whether the style may add formulas."""
    before: str = ""
    """What stands before it in the rewritten document: the segment before, rewritten or kept."""
    before_source: str = ""
    """The segment before, as the source has it."""
    after_source: str = ""
    """The segment that follows in the source."""
    notes: bool = False
    """Whether the style may leave out boilerplate and must keep a worked solution's answer."""
    translated: str = ""
    """The source's language where the rewrite is its English translation, else nothing."""
    prompt: str = ""
    """What the prompt says besides the document's text."""
    question: str = ""
    """What was written, in a style that asks: the rest of the rewrite is the source, as its answer (question.py)."""
    asked: tuple[str, ...] = ()
    """The questions that were accepted of earlier parts of the document."""

    @property
    def context(self) -> str:
        """What the source may refer to with `that year` or `it`: the segments beside it."""
        return "\n\n".join(filter(None, (self.before_source, self.after_source)))


@dataclass(frozen=True)
class Verdict:
    """What one check says of one pair."""

    check: str
    score: float
    passed: bool
    why: str = ""
    """Why it did not pass, for a person; empty where it did."""
    source_sentence: str = ""
    """Where it did not pass: the sentence of the source that is not kept, as far as the check can tell."""
    rewrite_sentence: str = ""
    """The sentence of the rewrite that is wrong: it stands for that of the source, or for none."""


Check = Callable[[Pair, AlignmentConfig], Verdict]


def words(text: str) -> list[str]:
    """Words, numbers and single CJK characters."""
    return WORD.findall(text)


def verdict(check: str, score: float, passed: bool, why: str) -> Verdict:
    return Verdict(check, score, passed, "" if passed else why)


def difference(lost: list[str], invented: list[str]) -> str:
    parts = [
        f"{verb} {', '.join(f'{item:.40}' for item in items[:4])}"
        for verb, items in (("lost", lost), ("invented", invented))
        if items
    ]
    return "; ".join(parts)


def changes(lost: list[str], invented: list[str], likeness: Callable[[str, str], float], least: float) -> str:
    """Which became which, where two are at least so alike; then the rest. Each list has a thing once."""
    became, left, rest = [], list(invented), []
    for item in lost:
        near = max(left, key=lambda other: likeness(item, other), default="")
        if near and likeness(item, near) >= least:
            left.remove(near)
            became.append(f"{item:.40} became {near:.40}")
        else:
            rest.append(item)
    return "; ".join(part for part in (*became[:3], difference(rest, left)) if part)


@cache
def lists() -> dict[str, Any]:
    """The lists of words.yaml."""
    lists = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    lists["capitals"] = frozenset(lists["capitals"])
    for row in lists["talk"]:
        row["pattern"] = _any_of(row["patterns"])
    return lists


@cache
def patterns(name: str) -> re.Pattern[str]:
    """Those that words.yaml lists under a name, as one."""
    return _any_of(lists()[name])


def _any_of(lines: str) -> re.Pattern[str]:
    return re.compile("|".join(lines.splitlines()), re.I | re.M)
