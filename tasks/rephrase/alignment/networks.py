"""The networks that the alignment check asks, loaded together: they share their threads."""

from __future__ import annotations

from model.engines.cross_encoder import CrossEncoder, Reading
from model.engines.embedding import MiniLM, States
from tasks.rephrase.alignment.fidelity import WEIGHTS


class Networks:
    """One that reads a text alone, and one that reads a source and its rewriting together."""

    def __init__(self) -> None:
        self._texts = MiniLM()
        self._pairs = CrossEncoder(WEIGHTS, self._texts.threads)

    def states(self, text: str) -> States:
        """The states of every token; the same for the same text, whatever was read before."""
        return self._texts.states(text)

    def read(self, source: str, rewrite: str) -> Reading:
        """What either lacks of the other; the same for the same pair, whatever was read before."""
        return self._pairs.read(source, rewrite)
