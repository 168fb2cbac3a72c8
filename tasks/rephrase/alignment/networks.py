"""The networks that the alignment check asks, loaded together: they share their threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model.engines.embedding import MiniLM, Vector
from model.engines.support import Reading, Support
from model.engines.weights import fidelity_weights
from tasks.rephrase.config import AlignmentConfig

TAUGHT = Path(__file__).with_name("fidelity")
"""Folder of what the model of `fidelity` was taught."""


class Networks:
    """One that reads a text alone, and, where it is wanted, one that judges the sentences of two texts."""

    def __init__(self, config: AlignmentConfig) -> None:
        self._texts = MiniLM()
        self._pairs: Support | None = None
        if config.fidelity_model:
            base, taught = fidelity_weights(config.fidelity_model).find(), sorted(TAUGHT.glob("*.safetensors"))
            self._pairs = Support(base, taught, self._texts.threads, config.fidelity_dtype)

    def vector(self, text: str) -> Vector:
        """The text's vector; the same for the same text, whatever was read before."""
        return self._texts.vector(text)

    def read(
        self,
        source: str,
        lost: Sequence[tuple[int, int]],
        rewrite: str,
        unsupported: Sequence[tuple[int, int]],
        context: str = "",
    ) -> Reading:
        """What either lacks of the other, sentence by sentence (their places are given); the same for the same pair,
        whatever was read before."""
        assert self._pairs is not None, "the configuration names no `fidelity_model`"
        return self._pairs.read(source, lost, rewrite, unsupported, context)
