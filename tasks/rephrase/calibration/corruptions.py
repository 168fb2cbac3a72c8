"""Deliberate mistakes in a faithful rewrite, each of one kind, the same for the same pair every time.

`variants(text, kind, pool, most)` gives the corruptions of a kind, as many as the text offers up to `most`. What they
change depends on the pair's id, its text and what the pool offers, on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.rephrase.calibration import content, formal, naming
from tasks.rephrase.calibration.content import added_sentence, dropped_sentence
from tasks.rephrase.calibration.denial import negation
from tasks.rephrase.calibration.edits import Change, Pool, Text, shuffled
from tasks.rephrase.calibration.formal import code, formula
from tasks.rephrase.calibration.naming import entity_swap
from tasks.rephrase.calibration.numeric import number_swap, unit_swap
from tasks.rephrase.calibration.pairs import TruePair
from tasks.rephrase.calibration.relating import relation
from tasks.rephrase.prompts import styles

KINDS: Mapping[str, Callable[[Text, Pool], Iterator[Change]]] = {
    "number_swap": number_swap,
    "unit_swap": unit_swap,
    "negation": negation,
    "entity_swap": entity_swap,
    "dropped_sentence": dropped_sentence,
    "added_sentence": added_sentence,
    "relation": relation,
    "formula": formula,
    "code": code,
}
"""Every kind of corruption, in the order of the tables."""

ORDERED = ("added_sentence", "relation")
"""Kinds whose own order counts; the places of the others are drawn."""


@dataclass(frozen=True)
class Corruption:
    """A rewrite with one mistake in it."""

    kind: str
    text: str
    why: str
    """What was done, for a person."""


def variants(text: Text, kind: str, pool: Pool, most: int) -> list[Corruption]:
    """Up to `most` different corruptions of `kind`; each differs from the rewrite by more than blanks."""
    changes: Iterable[Change] = KINDS[kind](text, pool)
    if kind not in ORDERED:
        changes = shuffled(changes, text.id, kind)
    found: dict[str, Corruption] = {}
    for change in changes:
        if len(found) == most:
            break
        new = change.apply(text.rewrite)
        if new.split() != text.rewrite.split() and new.strip():
            found.setdefault(new, Corruption(kind, new, change.why))
    return list(found.values())


def text_of(pair: TruePair) -> Text:
    """A pair as what is corrupted."""
    adds = styles()[pair.style].adds
    return Text(pair.id, pair.source, pair.rewrite, pair.domain, pair.language, pair.style, adds)


def pool_of(texts: Sequence[Text]) -> Pool:
    """What these texts have to offer one another."""
    rewrites = [text.rewrite for text in texts]
    return Pool(
        naming.offer(rewrites),
        content.offer((text.id, text.domain, text.language, text.rewrite) for text in texts),
        formal.offer(rewrites),
    )
