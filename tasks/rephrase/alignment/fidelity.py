"""Whether a rewriting says what its source says: nothing lost, nothing added, nothing changed.

A cross-encoder reads both texts at once (model/engines/cross_encoder.py). It was trained on hand-written pairs,
faithful ones in free wording and ones with a single defect of twenty kinds (docs/calibration.md); its weights are
fidelity.safetensors. `alignment.fidelity` is the chance of being faithful that a pair must have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from model.engines.cross_encoder import Token
from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.alignment.words import Match
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_spans

WEIGHTS = Path(__file__).with_name("fidelity.safetensors")


def fidelity(match: Match, config: AlignmentConfig) -> Verdict:
    """The score is the chance that nothing is lost, added or changed."""
    pair = match.pair
    reading = match.networks.read(pair.source, pair.rewrite)
    score = 1 / (1 + math.exp(min(reading.wrong, 700.0)))
    if score >= config.fidelity:
        return Verdict("fidelity", score, True)
    lost, lost_by = worst(pair.source, reading.source)
    wrong, wrong_by = worst(pair.rewrite, reading.rewrite)
    if lost_by > 0 >= wrong_by:
        why = f"the rewrite does not say '{lost}'"
    elif wrong_by > 0 >= lost_by:
        why = f"the source does not say '{wrong}'"
    else:
        why = f"'{wrong}' is not what the source says: '{lost}'"
    return Verdict("fidelity", score, False, why)


def worst(text: str, tokens: Sequence[Token]) -> tuple[str, float]:
    """(the sentence with the token that the other text lacks most surely, that token's logit)."""
    token = max(tokens, key=lambda found: found.lacking, default=None)
    if token is None:
        return "", -math.inf
    for begin, end in sentence_spans(text):
        if begin <= token.start < end:
            return text[begin:end], token.lacking
    return text, token.lacking
