"""What the networks make of the two texts of a pair, for the checks that ask them.

One forward pass over a text gives its vector and those of its words. What the dear checks take is a `Match`, which
reads each side once and only when it is asked for.

Legend: W words of a side, A and B rows of two matrices, D dimension.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Side:
    """One of the two texts, read."""

    text: str
    words: tuple[Word, ...]
    sentences: tuple[tuple[int, int], ...]
    """Begin and end of every sentence, blanks around it left out."""
    words_WD: np.ndarray
    """Rows of length 1, one a word."""
    vector_D: np.ndarray

    def sentence(self, index: int) -> str:
        begin, end = self.sentences[index]
        return self.text[begin:end]

    def among(self, index: int) -> list[int]:
        """The words of a sentence."""
        return [place for place, word in enumerate(self.words) if word.sentence == index]


@dataclass(frozen=True)
class Match:
    """A pair, and its two texts as the networks read them."""

    pair: Pair
    networks: Readers

    @cached_property
    def source(self) -> Side:
        return read(self.pair.source, self.networks)

    @cached_property
    def rewrite(self) -> Side:
        return read(self.pair.rewrite, self.networks)


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
    """[A, B]: of every row with every other, all of length 1. The same word in the same role has about 0.8 to 1, a
    synonym 0.5 to 0.8, words that have nothing to do with one another under 0.4. Each comes of its two rows alone: a
    matrix product would go through BLAS, whose threads cut it up by the machine's number of cores and spin for a while
    after each."""
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
            words.append(Word(found.group(), found.start(), found.end(), sentence))
            rows.append(states.words_SD[first:last].mean(axis=0))
    return Side(text, tuple(words), tuple(spans), _unit(rows, states.vector_D.shape[0]), states.vector_D)


def _unit(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    if not rows:
        return np.zeros((0, width), dtype=np.float32)
    matrix = np.stack(rows)
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
