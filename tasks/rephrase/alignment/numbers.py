"""The same numbers with the same units, in digits or words; none lost, none invented, none in another's place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tasks.rephrase.alignment.derived import without_derived
from tasks.rephrase.alignment.neighbours import exchanged, likeness, moved, same_noun
from tasks.rephrase.alignment.pair import Pair, Verdict, difference
from tasks.rephrase.alignment.quantities import quantities
from tasks.rephrase.alignment.quantity import Quantity, Value
from tasks.rephrase.alignment.stated import Stated
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_at


def numbers(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The same numbers with the same units, in digits or words; none lost, none invented, none in another's place.

    What can be worked out of the source's numbers may be said instead of them. A count such as `two of them` may come
    or go, but not become another. A style that adds steps may add numbers without a unit.
    """
    before, after = quantities(pair.source), quantities(pair.rewrite)
    old, new = Stated(pair.source, before), Stated(pair.rewrite, after)
    lost = [quantity for quantity in before if quantity.fact and not new.has(quantity, old)]
    invented = [quantity for quantity in after if quantity.fact and not old.has(quantity, new, True)]
    invented += [one for one in after if _single(one) and not old.has(one, new, True)]
    lost, invented = without_derived(lost, invented, before, after)
    if pair.adds and not lost:
        invented = [quantity for quantity in invented if quantity.unit is not None]
    if not lost and not invented:
        lost, invented = _counts(pair, before, after, old, new, config.counts)
    total = max(len({q.value for q in (*before, *after)}), 1)
    score = max(0.0, 1 - (len(lost) + len(invented)) / total)
    if lost or invented:
        one, other = next(iter(lost), None), next(iter(invented), None)
        if one and other:
            both = ((mine, theirs) for mine in lost for theirs in invented)
            one, other = max(both, key=lambda two: likeness(pair, *two))
        return _refused(pair, score, _why(pair, lost, invented), one, other)
    for one, other in moved(pair, before, after, config.moved):
        return _refused(pair, score - 1 / total, f"{_shown(one)} became {_shown(other)}", one, other)
    for one, other in exchanged(pair, before, after, config.exchanged):
        return Verdict("numbers", score - 2 / total, False, f"{_shown(one)} and {_shown(other)} changed places")
    return Verdict("numbers", 1.0, True)


def _refused(pair: Pair, score: float, why: str, old: Quantity | None, new: Quantity | None) -> Verdict:
    """The verdict, with the sentences in which the source says `old` and the rewrite says `new`."""
    source = sentence_at(pair.source, old.start) if old else ""
    return Verdict("numbers", score, False, why, source, sentence_at(pair.rewrite, new.start) if new else "")


def _single(quantity: Quantity) -> bool:
    """A 1 with a unit that takes no article by habit."""
    return (
        quantity.value == 1
        and quantity.kind == "cardinal"
        and quantity.unit is not None
        and quantity.unit.dimension not in ("time", "years")
    )


def _counts(
    pair: Pair, before: Sequence[Quantity], after: Sequence[Quantity], old: Stated, new: Stated, most: int
) -> tuple[list[Quantity], list[Quantity]]:
    """Small numbers and months that became others; one that only comes or goes sums something up."""
    mine = [one for one in before if one.kind != "said" and not one.fact and one.value != 1]
    gone = [one for one in mine if not new.has(one, old)]
    fewer = _times(before) - _times(after)
    for other in after:
        if other.fact or other.kind == "said" or other.value in (0, 1) or old.has(other, new, True):
            continue
        # `Five full twists` of what were two full twists.
        rivals = [one for one in gone if one.kind == other.kind]
        rivals = rivals or [one for one in mine if one.value in fewer and one.kind == other.kind]
        if not pair.adds:
            rivals = rivals or [one for one in mine if same_noun(pair, one, other)]
        if rivals:
            return [max(rivals, key=lambda one: likeness(pair, one, other))], [other]
        large = not isinstance(other.value, str) and other.value > most
        if large and other.kind in ("cardinal", "ordinal") and not pair.adds:
            return [], [other]
    return [], []


def _times(found: Sequence[Quantity]) -> Counter[Value]:
    return Counter(quantity.value for quantity in found if quantity.kind != "said")


def _why(pair: Pair, lost: list[Quantity], invented: list[Quantity]) -> str:
    """`1958 became 1985` where one number took another's place, then what else was lost or invented."""
    became, left, right = [], list(lost), list(invented)
    ranked = sorted(
        ((-likeness(pair, one, other), i, j) for i, one in enumerate(lost) for j, other in enumerate(invented)),
    )
    for _, i, j in ranked:
        if lost[i] in left and invented[j] in right:
            left.remove(lost[i])
            right.remove(invented[j])
            became.append(f"{_shown(lost[i])} became {_shown(invented[j])}")
    parts = [*became[:3], difference([_shown(one) for one in left], [_shown(one) for one in right])]
    return "; ".join(part for part in parts if part)


def _shown(quantity: Quantity) -> str:
    return " ".join(quantity.text.split())
