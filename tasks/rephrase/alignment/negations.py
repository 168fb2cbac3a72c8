"""What is denied stays denied: as many denials as the source has, in whatever words of denial.

That a sentence was turned round cannot be told from word states, nor by a small classifier (docs/LOG.md: AUC 0.76 at
best), because a free rewriter says `was spared` for `was not reached`. So the prompt asks for every denial as a denial
(prompts.py), and then a count tells: whoever adds, drops or turns round one denial changes it.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tasks.rephrase.alignment.pair import CODE, FORMULA, LETTERS, URL, Pair, Verdict, verdict
from tasks.rephrase.config import AlignmentConfig

LISTS = Path(__file__).with_name("denials.yaml")
PAIRED = re.compile(r"\b(neither\b[^.;?!]*?)\bnor\b")


def negations(pair: Pair, config: AlignmentConfig) -> Verdict:
    """As many denials as the source has, give or take `config.negations`."""
    before, after = denials(pair.source), denials(pair.rewrite)
    apart = abs(len(after) - len(before))
    side, more, fewer = ("rewrite", after, before) if len(after) > len(before) else ("source", before, after)
    only = list((Counter(more) - Counter(fewer)).elements())
    words = ", ".join(f"'{word}'" for word in dict.fromkeys(only))
    why = f"{len(before)} denials became {len(after)}: in the {side} alone {words}"
    return verdict("negations", 1 - apart / max(len(more), 1), apart <= config.negations, why)


def denials(text: str) -> list[str]:
    """The words of `text` that deny, in lower case; formulas, code and URLs left out."""
    for pattern in (FORMULA, CODE, URL):
        text = pattern.sub(" ", text)
    lower = _harmless().sub(" ", text.lower().replace("’", "'"))
    lower = PAIRED.sub(r"\1 or ", lower)  # neither ... nor is one denial, whichever way it is cut
    found = [match.group() for match in LETTERS.finditer(lower) if denies(match.group())]
    return found + _chinese().findall(_harmless_zh().sub(" ", text))


def denies(word: str) -> bool:
    """Whether an English word in lower case, or a Chinese expression, denies by itself."""
    return word in _lists()["en"]["denials"] or word.endswith("n't") or word in _lists()["zh"]["denials"]


@cache
def _lists() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(LISTS.read_text(encoding="utf-8"))
    return read


@cache
def _harmless() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(_lists()['en']['harmless'])})\b")


@cache
def _harmless_zh() -> re.Pattern[str]:
    return re.compile("|".join(sorted(_lists()["zh"]["harmless"], key=lambda entry: (-len(entry), entry))))


@cache
def _chinese() -> re.Pattern[str]:
    return re.compile("|".join(_lists()["zh"]["denials"]))
