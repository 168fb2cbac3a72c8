"""What is denied stays denied, as far as words can tell.

A good rewrite says `was spared` for `was not reached` and `only there` for `nowhere else`, so that the counts of
negations differ in more than half of true pairs. What is asked is therefore that no denial is left unexplained: a `not`
too many (or too few) is explained by a word on the other side that denies by its meaning (fail, exempt, un-, -less).
This sees gross changes only: that one sentence among several was turned round takes a network for contradictions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tasks.rephrase.alignment.pair import CODE, FORMULA, HAN, LETTERS, URL, Pair, Verdict, verdict
from tasks.rephrase.config import AlignmentConfig

LISTS = Path(__file__).with_name("denials.yaml")


@dataclass(frozen=True)
class Denials:
    """The words of a text that deny, in order."""

    strong: tuple[str, ...]
    """By themselves: not, never, isn't, without."""
    weak: tuple[str, ...]
    """Within their meaning: fail, unknown, harmless."""
    hedged: tuple[str, ...]
    """What a denial may be said by: only, few, until."""


def negations(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No more than `config.negations` denials of one side that nothing on the other explains; none at all where the
    other side has not even a word that might explain one."""
    before, after = denials(pair.source), denials(pair.rewrite)
    more, fewer = (after, before) if len(after.strong) >= len(before.strong) else (before, after)
    surplus = len(more.strong) - len(fewer.strong)
    left = max(0, surplus - max(0, len(fewer.weak) - len(more.weak)))
    # Chinese denies in half of its sentences: there the other side must deny nothing at all.
    bare = surplus > len(fewer.weak) + len(fewer.hedged) and not (fewer.strong and HAN.search(pair.source))
    score = 0.0 if bare else 1 - left / max(len(more.strong), 1)
    words = ", ".join(f"'{word}'" for word in dict.fromkeys(more.strong))
    added = more is after and surplus > 0
    why = (
        f"{'denies' if added else 'lost a denial'}: {words} in the {'rewrite' if added else 'source'}, of which the "
        + (f"{'source' if added else 'rewrite'} explains all but {surplus if bare else left}")
    )
    return verdict("negations", score, left <= config.negations and not bare, why)


def denials(text: str) -> Denials:
    """What denies in `text`, formulas, code and URLs left out."""
    for pattern in (FORMULA, CODE, URL):
        text = pattern.sub(" ", text)
    found: dict[str, list[str]] = {"strong": [], "weak": [], "hedged": []}
    for match in LETTERS.finditer(_harmless().sub(" ", text.lower().replace("’", "'"))):
        for kind in _kinds(match.group()):
            found[kind].append(match.group())
    chinese = _harmless_zh().sub(" ", text)
    for kind, pattern in _chinese().items():
        found[kind] += pattern.findall(chinese)
    return Denials(tuple(found["strong"]), tuple(found["weak"]), tuple(found["hedged"]))


@cache
def _kinds(word: str) -> tuple[str, ...]:
    lists = _lists()["en"]
    if word in lists["strong"] or word.endswith("n't"):
        return ("strong",)
    found = [
        kind
        for kind in ("weak", "hedged")
        if any(word.startswith(entry[:-1]) if entry.endswith("-") else word == entry for entry in lists[kind])
    ]
    if "weak" not in found and _affixes().fullmatch(word):
        found.append("weak")
    return tuple(found)


@cache
def _lists() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(LISTS.read_text(encoding="utf-8"))
    return read


@cache
def _affixes() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{affix})" for affix in _lists()["affixes"]))


@cache
def _harmless() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(_lists()['harmless'])})\b")


@cache
def _harmless_zh() -> re.Pattern[str]:
    return re.compile("|".join(sorted(_lists()["zh"]["harmless"], key=lambda entry: (-len(entry), entry))))


@cache
def _chinese() -> dict[str, re.Pattern[str]]:
    return {kind: re.compile("|".join(_lists()["zh"][kind])) for kind in ("strong", "weak", "hedged")}
