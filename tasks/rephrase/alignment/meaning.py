"""Whether a rewrite speaks of what its source speaks of, and says the same: nothing lost, added or changed.

A small language model reads the two texts both ways and judges every sentence of each by the other
(model/engines/support.py). `alignment.fidelity` is the chance of being faithful that a pair must have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from model.engines.engine import PromptRefused
from tasks.rephrase.alignment.pair import HAN, Pair, Verdict, lists, verdict, words
from tasks.rephrase.alignment.reading import Readers, near
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_spans, sentences

if TYPE_CHECKING:
    from model.engines.support import Sentence


REACH = 2
"""Sentences before the source that may say what its `it` and `that year` are."""
CHINESE = 0.3
"""Share of a text's words and characters that are Chinese, from which on it is a Chinese text."""
STEM, SHARED_STEMS, FEWEST_STEMS = 4, 0.25, 3
"""Letters of a word that are compared, and the share of the shorter text's words (and how many at least) from which on
two texts speak of the same. Of `train` 98.5 % of the faithful English rewrites share as many with their source, and 0.1
% of those of another text: the network costs ten times what all other checks do together."""
SHARED_NEIGHBOURS, FEWEST_NEIGHBOURS = 0.03, 10
"""The share of the shorter text's pairs of Chinese characters below which it speaks of something else; of `train` none
of 4,344 rewrites, faithful or not, shares less with its source, and 95 % of those of another text do."""


def cosine(pair: Pair, networks: Readers, config: AlignmentConfig) -> Verdict | None:
    """The two texts speak of the same. No score where their words say so: the network is not asked. It reads English
    only; of a Chinese text its pairs of characters alone tell."""
    if chinese(pair.source) or chinese(pair.rewrite):
        one, other = _neighbours(pair.source), _neighbours(pair.rewrite)
        fewest = min(len(one), len(other))
        if fewest < FEWEST_NEIGHBOURS or len(one & other) >= SHARED_NEIGHBOURS * fewest:
            return None
        return Verdict("cosine", 0.0, False, "hardly two characters of its source stand side by side in it")
    one, other = _stems(pair.source), _stems(pair.rewrite)
    if len(one & other) >= max(FEWEST_STEMS, SHARED_STEMS * min(len(one), len(other))):
        return None
    whole = near(networks, pair.source, pair.rewrite)
    why = f"cosine {whole:.2f} to its source; {config.cosine:g} is wanted"
    return verdict("cosine", whole, whole >= config.cosine, why)


def _stems(text: str) -> set[str]:
    """The beginnings of its words, but of the commonest ones."""
    found = (word.lower() for word in words(text) if word[0].isalpha() and len(word) > 2)
    return {word[:STEM] for word in found if word not in lists()["capitals"]}


def _neighbours(text: str) -> set[str]:
    """Every two Chinese characters that stand side by side."""
    return {"".join(both) for both in pairwise(text) if HAN.match(both[0]) and HAN.match(both[1])}


def chinese(text: str) -> bool:
    found = words(text)
    return sum(bool(HAN.match(word)) for word in found) > CHINESE * max(len(found), 1)


def fidelity(pair: Pair, networks: Readers, config: AlignmentConfig) -> Verdict | None:
    """The score is the chance that nothing is lost, added or changed. None where `fidelity_model` names none."""
    if not config.fidelity_model:
        return None
    source, rewrite = pair.source, pair.rewrite
    try:
        context = "".join(f"{sentence} " for sentence in sentences(pair.before_source)[-REACH:])
        reading = networks.read(source, sentence_spans(source), rewrite, sentence_spans(rewrite), context)
    except PromptRefused as error:
        return Verdict("fidelity", 0.0, False, str(error))
    score = 1 / (1 + math.exp(min(reading.wrong, 700.0)))
    if score >= config.fidelity:
        return Verdict("fidelity", score, True)
    lost, lost_by = _worst(source, reading.lost)
    said, said_by = _worst(rewrite, reading.unsupported)
    if said_by > 0 >= lost_by:
        return Verdict("fidelity", score, False, f"the source does not say '{said}'", rewrite_sentence=said)
    if lost_by > 0 >= said_by:
        return Verdict("fidelity", score, False, f"the rewrite does not say '{lost}'", source_sentence=lost)
    why = f"'{said}' is not what the source says: '{lost}'"
    return Verdict("fidelity", score, False, why, source_sentence=lost, rewrite_sentence=said)


def _worst(text: str, sentences: Sequence[Sentence]) -> tuple[str, float]:
    """(the sentence that the other text supports least, its logit)."""
    sentence = max(sentences, key=lambda found: found.unsupported, default=None)
    return (text[sentence.start : sentence.end], sentence.unsupported) if sentence else ("", -math.inf)
