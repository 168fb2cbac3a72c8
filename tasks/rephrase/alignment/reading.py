"""What the networks make of the two texts of a pair, for the checks that ask them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.config import AlignmentConfig

if TYPE_CHECKING:
    from model.engines.embedding import Vector
    from model.engines.support import Reading

Spans = Sequence[tuple[int, int]]
"""Begin and end of sentences."""


class Readers(Protocol):
    """What reads texts, one alone or two together (networks.py)."""

    def vector(self, text: str) -> Vector:
        """The text's vector; the same for the same text, whatever was read before."""
        ...

    def read(self, source: str, lost: Spans, rewrite: str, unsupported: Spans, context: str = "") -> Reading:
        """What either lacks of the other, sentence by sentence; the same for the same pair, whatever was read before.
        What stands before the source, its `context`, supports the rewrite too.
        Raises PromptRefused for texts that are too long."""
        ...


NetworkCheck = Callable[[Pair, Readers, AlignmentConfig], Verdict | None]
"""A check that needs the network's word: as pure as the others. None where the network cannot read the pair."""


def near(networks: Readers, one: str, other: str) -> float:
    """The cosine of the vectors of two texts."""
    return float(np.vecdot(networks.vector(one).vector_D, networks.vector(other).vector_D))


class CachedReaders:
    """The networks for one document, which is one thread's: a source is read once for all attempts at it."""

    def __init__(self, networks: Readers) -> None:
        self._networks = networks
        self._kept: dict[str, Vector] = {}
        self._source = ""
        self.seconds = 0.0
        """CPU-seconds that the networks have taken, in whichever thread."""

    def keep(self, source: str) -> None:
        """This text will be read more than once, and no other any more."""
        self._source, self._kept = source, {text: kept for text, kept in self._kept.items() if text == source}

    def vector(self, text: str) -> Vector:
        """The text's vector."""
        if text in self._kept:
            return self._kept[text]
        vector = self._networks.vector(text)
        self.seconds += vector.seconds
        if text == self._source:
            self._kept[text] = vector
        return vector

    def read(self, source: str, lost: Spans, rewrite: str, unsupported: Spans, context: str = "") -> Reading:
        """What either lacks of the other."""
        reading = self._networks.read(source, lost, rewrite, unsupported, context)
        self.seconds += reading.seconds
        return reading
