"""Which word of a rewriting stands for which word of its source, by the states that the network gives them in context.

One forward pass over each text gives everything: the vectors of the text, of its sentences and of its words. What the
dear checks take is a `Match`, which computes these once and only when they are asked for.

Legend: W words of a side, O words of the source, N words of the rewrite, D dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tasks.rephrase.alignment.pair import WORD, Pair, Verdict
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_spans

if TYPE_CHECKING:
    from model.engines.embedding import States
    from model.engines.support import Reading


FIRST = 1995
"""The last entry of MiniLM's vocabulary before its words (special tokens and single characters come first)."""
COMMON, RARE = 105, 4005
"""Places in the vocabulary up to which a word says nothing, and from which on it says all it can."""


class Readers(Protocol):
    """What reads texts token by token, one alone or two together (networks.py)."""

    def states(self, text: str) -> States:
        """The states of every token; the same for the same text, whatever was read before."""
        ...

    def read(
        self, source: str, lost: Sequence[tuple[int, int]], rewrite: str, unsupported: Sequence[tuple[int, int]]
    ) -> Reading:
        """What either lacks of the other, sentence by sentence; the same for the same pair, whatever was read before.
        Raises PromptRefused for texts that are too long."""
        ...


@dataclass(frozen=True)
class Word:
    """A word, a number or a single CJK character at `text[start:end]`."""

    text: str
    start: int
    end: int
    sentence: int
    """Index of its sentence."""
    weight: float
    """How much it says, from 0 (the hundred commonest words of the language) to 1 (the rare ones)."""

    @property
    def lower(self) -> str:
        return self.text.lower().replace("’", "'")


@dataclass(frozen=True)
class Side:
    """One of the two texts, read."""

    text: str
    words: tuple[Word, ...]
    sentences: tuple[tuple[int, int], ...]
    """Begin and end of every sentence, blanks around it left out."""
    words_WD: np.ndarray
    """Rows of length 1, one a word."""
    sentences_SD: np.ndarray
    """Rows of length 1, one a sentence, read in its context."""
    vector_D: np.ndarray

    def sentence(self, index: int) -> str:
        begin, end = self.sentences[index]
        return self.text[begin:end]

    def among(self, index: int) -> list[int]:
        """The words of a sentence."""
        return [place for place, word in enumerate(self.words) if word.sentence == index]


@dataclass(frozen=True)
class Match:
    """A pair and, word by word, how near the two texts are."""

    pair: Pair
    networks: Readers

    @cached_property
    def source(self) -> Side:
        return read(self.pair.source, self.networks)

    @cached_property
    def rewrite(self) -> Side:
        return read(self.pair.rewrite, self.networks)

    @cached_property
    def near_ON(self) -> np.ndarray:
        """Cosine of every word of the source with every word of the rewrite. The same word in the same role has about
        0.8 to 1, a synonym 0.5 to 0.8, words that have nothing to do with one another under 0.4."""
        return cosines(self.source.words_WD, self.rewrite.words_WD)

    @cached_property
    def partners(self) -> tuple[np.ndarray, np.ndarray]:
        """For every word of the source its nearest word of the rewrite (-1 where the rewrite has none), and how near
        that is."""
        return _best(self.near_ON)

    @cached_property
    def back(self) -> tuple[np.ndarray, np.ndarray]:
        """For every word of the rewrite its nearest word of the source, and how near that is."""
        return _best(self.near_ON.T)

    def mutual(self) -> list[tuple[int, int, float]]:
        """(word of the source, word of the rewrite, cosine) where each is the other's nearest."""
        there, near = self.partners
        home, _ = self.back
        return [(old, int(new), float(near[old])) for old, new in enumerate(there) if new >= 0 and home[new] == old]


NetworkCheck = Callable[[Match, AlignmentConfig], Verdict | None]
"""A check that needs the network's word: as pure as the others. None where the network cannot read the pair."""


class CachedReaders:
    """The networks for one document, which is one thread's: a source is read once for all attempts at it, and not
    again as its neighbours' neighbour.

    Words and sentences are kept, not the states: with some hundreds of documents open those would take gigabytes.
    """

    def __init__(self, networks: Readers) -> None:
        self._networks = networks
        self._kept: dict[str, Side | None] = {}
        self.seconds = 0.0
        """CPU-seconds that the networks have taken, in whichever thread."""

    def keep(self, *texts: str) -> None:
        """These will be read more than once, no others any more."""
        self._kept = {text: self._kept.get(text) for text in texts}

    def states(self, text: str) -> States:
        """The states of every token."""
        states = self._networks.states(text)
        self.seconds += states.seconds
        return states

    def read(
        self, source: str, lost: Sequence[tuple[int, int]], rewrite: str, unsupported: Sequence[tuple[int, int]]
    ) -> Reading:
        """What either lacks of the other."""
        reading = self._networks.read(source, lost, rewrite, unsupported)
        self.seconds += reading.seconds
        return reading

    def side(self, text: str) -> Side:
        """The words and sentences of `text` with their vectors."""
        side = self._kept.get(text) or _side(text, self.states(text))
        if text in self._kept:
            self._kept[text] = side
        return side


def read(text: str, networks: Readers) -> Side:
    """The words and sentences of `text` with their vectors."""
    return networks.side(text) if isinstance(networks, CachedReaders) else _side(text, networks.states(text))


def cosines(one_AD: np.ndarray, other_BD: np.ndarray) -> np.ndarray:
    """[A, B]: of every row with every other, all of length 1. Each from its two rows alone: a matrix product would go
    through BLAS, whose threads cut it up by the machine's number of cores and spin for a while after each."""
    return np.vecdot(one_AD[:, None], other_BD)


def _side(text: str, states: States) -> Side:
    spans = sentence_spans(text)
    ends = [end for _, end in spans]
    words: list[Word] = []
    rows: list[np.ndarray] = []
    starts_S, ends_S = states.spans_S2[:, 0], states.spans_S2[:, 1]
    for found in WORD.finditer(text):
        first, last = np.searchsorted(ends_S, found.start(), "right"), np.searchsorted(starts_S, found.end(), "left")
        # A word of characters that the tokenizer throws away (marks without a letter) has no state and is no word.
        if first < last:
            sentence = min(int(np.searchsorted(ends, found.start(), "right")), len(spans) - 1)
            weight = _weight(states.ids_S[first:last])
            words.append(Word(found.group(), found.start(), found.end(), sentence, weight))
            rows.append(states.words_SD[first:last].mean(axis=0))
    passages: list[np.ndarray] = []
    for begin, end in spans:
        first, last = np.searchsorted(ends_S, begin, "right"), np.searchsorted(starts_S, end, "left")
        passages.append(states.hidden_SD[first:last].mean(axis=0) if first < last else np.zeros_like(states.vector_D))
    width = states.vector_D.shape[0]
    return Side(text, tuple(words), tuple(spans), _unit(rows, width), _unit(passages, width), states.vector_D)


def _weight(ids: np.ndarray) -> float:
    """How much a word of these tokens says. The vocabulary is in the order of frequency, so the place of a word in it
    stands for its frequency; a word of several tokens is a rare one."""
    if len(ids) > 1:
        return 1.0
    place = max(int(ids[0]) - FIRST, 1)
    return min(max((math.log(place) - math.log(COMMON)) / (math.log(RARE) - math.log(COMMON)), 0.0), 1.0)


def _unit(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    if not rows:
        return np.zeros((0, width), dtype=np.float32)
    matrix = np.stack(rows)
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)


def _best(near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not near.shape[1]:
        return np.full(near.shape[0], -1), np.zeros(near.shape[0], dtype=np.float32)
    return near.argmax(axis=1), near.max(axis=1)
