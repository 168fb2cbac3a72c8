"""Whether the rewrite is a text and no heap of words: how well its words follow one another, beside its source.

A table has how much likelier each kind of word is behind each other one than anywhere (benchmarks/fluency_table.py
learned it from hand-written texts): the commonest words and Chinese characters are themselves, all others go by their
ending. It costs microseconds and knows no grammar beyond two neighbours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors import safe_open

from tasks.rephrase.alignment.formulas import found
from tasks.rephrase.alignment.pair import CODE, FORMULA, HAN, URL, Pair, Verdict, verdict
from tasks.rephrase.config import AlignmentConfig

TABLE = Path(__file__).with_name("fluency.safetensors")
SCALE = 16
"""The table's unit of a natural logarithm: 8 bits hold it."""
TOKEN = re.compile(rf"{HAN.pattern}|[^\W\d_]+(?:['’][^\W\d_]+)?|\d+(?:[.,]\d+)*|[^\w\s]")
ENDINGS = ("ing", "ed", "ly", "tion", "s")
OTHER = ["#", "汉", ".", "A", "-", *(f"-{ending}" for ending in ENDINGS)]
"""Kinds of words that are not named: numbers, Chinese, signs, capitals, all others, and by their endings."""
USUAL = 1.0
"""Mean gain of the texts that the table was learned from; a source above it is no measure for its rewrite."""
FEWEST = 20
"""Words of a text that can be told from a heap of words."""


@dataclass(frozen=True)
class Table:
    """Natural logarithms of how much likelier a kind is behind another than anywhere, times SCALE."""

    index: Mapping[str, int]
    gains_KK: np.ndarray

    def gain(self, words: list[str]) -> float:
        """The mean over the words of a text."""
        places = [self.index[kind(word, self.index)] for word in words]
        found = [self.gains_KK[one, other] for one, other in pairwise(places)]
        return float(np.mean(found)) / SCALE if found else 0.0


@cache
def table() -> Table:
    """The shipped one."""
    with safe_open(TABLE, "numpy") as file:
        names = file.metadata()["names"].split("\n")
        return Table({name: place for place, name in enumerate(names)}, file.get_tensor("gains"))


def fluency(pair: Pair, config: AlignmentConfig) -> Verdict:
    """How well the rewrite's words follow one another, as a share of how well its source's do, or, where those do it
    better than most, of how well words usually do (1 is as well). It is one over the ratio of two perplexities."""
    new = tokens(pair.rewrite)
    if len(new) < FEWEST:
        return Verdict("fluency", 1.0, True)
    wanted = min(table().gain(tokens(pair.source)), USUAL)
    share = min(1.0, math.exp(table().gain(new) - wanted))
    why = f"its words follow one another {share:.0%} as well as its source's; {config.fluency:.0%} is wanted"
    return verdict("fluency", share, share >= config.fluency, why)


def tokens(text: str) -> list[str]:
    """Words, Chinese characters, numbers and signs; a formula is a number."""
    text = URL.sub(" ", CODE.sub(" ", FORMULA.sub(" 1 ", text)))
    for formula in found(text):
        text = text.replace(formula, " 1 ")
    return TOKEN.findall(text)


def kind(word: str, named: Container[str]) -> str:
    """The word itself where it is named, else its kind."""
    lower = word.lower()
    if lower in named:
        return lower
    if word[0].isdigit():
        return "#"
    if HAN.match(word):
        return "汉"
    if not word[0].isalpha():
        return "."
    ending = next((ending for ending in ENDINGS if lower.endswith(ending) and len(lower) > len(ending) + 2), "")
    return f"-{ending}" if ending else "A" if word[0].isupper() else "-"
