"""No number that contradicts the source: each is there, or follows from what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tasks.rephrase.alignment.derived import Known, sizes
from tasks.rephrase.alignment.pair import Pair, Verdict, difference
from tasks.rephrase.alignment.quantities import quantities
from tasks.rephrase.alignment.quantity import Quantity
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_at


def numbers(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No number is invented, none is gone: each is one of the other text's in some notation, or one step of arithmetic
    from them.

    A count such as `two of them` may come or go, but not in another's place; a style that adds steps may add numbers
    without a unit.
    """
    before, after = quantities(pair.source), quantities(pair.rewrite)
    old, new = Known(pair.source, before), Known(pair.rewrite, after)
    lost = [one for one in before if one.kind != "month" and not new.states(one)]
    fewer = Counter(one.value for one in before) - Counter(one.value for one in after)
    rarer = [one for one in before if one.value in fewer]
    invented: list[Quantity] = []
    for one in after:
        if one.kind == "month":
            continue
        # 5 km that became 5 m: that the source has a 5 elsewhere does not help.
        rivals = [other for other in lost if _measured(one) and _measured(one) == _measured(other)]
        rivals = rivals or [other for other in rarer if _slip(other, one)]
        if old.states(one, measured=bool(one.unit and rivals)):
            continue
        if one.kind == "said":
            wrong = one.unit is not None and bool(rivals)
        elif one.fact:
            wrong = not old.gives(one, rivals)
        else:
            wrong = one.value != 1 and bool(rivals) and not old.gives(one, rivals)
        if wrong:
            invented.append(one)
    if pair.adds:
        invented = [one for one in invented if one.unit or any(_measured(one) == _measured(other) for other in lost)]
    # In free wording a number may hide in words that no rule knows: only what nothing of the rewrite leads to is gone.
    spans = any(one.kind == "said" and one.unit for one in after)  # `the following decade` of a year
    gone = [one for one in lost if one.fact and not new.gives(one) and not (one.kind == "year" and spans)]
    if not invented and not gone:
        return Verdict("numbers", 1.0, True)
    total = len({one.value for one in (*before, *after)})
    score = max(0.0, 1 - (len(invented) + len(gone)) / total)
    if not invented:
        why = difference([_shown(one) for one in gone], [])
        return Verdict("numbers", score, False, why, sentence_at(pair.source, gone[0].start))
    first = invented[0]
    rival = next((other for other in lost if _measured(other) == _measured(first)), None)
    source = sentence_at(pair.source, rival.start) if rival else ""
    return Verdict("numbers", score, False, _why(lost, invented), source, sentence_at(pair.rewrite, first.start))


def _measured(one: Quantity) -> str:
    """What it is a number of: numbers of the same may have taken each other's place. Nothing for `both` or `twice`."""
    if one.unit:
        return one.unit.dimension
    if one.kind == "said":
        return ""
    value = one.value
    year = one.kind == "year" or (one.digits and not isinstance(value, str) and 1000 <= value <= 2100)
    return "year" if year else one.kind


def _slip(one: Quantity, other: Quantity) -> bool:
    """Whether one digit makes the difference, or two that changed places: 1958 and 1985."""
    written = [f"{size.written:.15g}" for quantity in (one, other) for size in list(sizes(quantity))[:1]]
    if len(written) < 2 or _measured(one) != _measured(other):
        return False
    mine, theirs = written
    if len(mine) != len(theirs) or len(mine) < 2:
        return False
    apart = [place for place, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
    return len(apart) == 1 or (len(apart) == 2 and sorted(mine) == sorted(theirs))


def _why(lost: Sequence[Quantity], invented: Sequence[Quantity]) -> str:
    """`1958 became 1985` where one may have taken another's place, then what else was invented."""
    left, rest, became = list(lost), [], []
    for one in invented:
        rival = next((other for other in left if _measured(other) == _measured(one)), None)
        if rival is None:
            rest.append(_shown(one))
            continue
        left.remove(rival)
        became.append(f"{_shown(rival)} became {_shown(one)}")
    return "; ".join(part for part in (*became[:3], difference([], rest)) if part)


def _shown(quantity: Quantity) -> str:
    return " ".join(quantity.text.split())
