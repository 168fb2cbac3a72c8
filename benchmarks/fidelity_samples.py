"""What the model of the check of fidelity is trained on: a text that is known, and others of which it supports a part.

Made of the hand-written pairs (tasks/rephrase/calibration/pairs): of rewrites and their edits (`Edited`), and of
statements in several wordings (`Stated`), which make another passage with every choice of wordings.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.rephrase.calibration.pairs import NEUTRAL, Edit, Edited, Stated, Statement
from tasks.rephrase.segments import sentence_spans

Span = tuple[int, int]
TEXTS = 4
"""Texts that are held against one premise, which is read once for all of them."""
SAYS_LESS = ("part", "omission")
"""Kinds of a text that says nothing wrong, but not all."""


@dataclass(frozen=True)
class Sample:
    """A text, and what of it its premise does not support."""

    text: str
    wrong: tuple[Span, ...] = ()
    """Stretches that the premise does not support."""
    unknown: tuple[Span, ...] = ()
    """Stretches of which it is not known; of all others it is known that they are supported."""
    whole: bool = False
    """Wrong stretches are whole statements: something in each is wrong, which of its words is not known."""


@dataclass(frozen=True)
class Group:
    """A premise and the texts that are held against it."""

    premise: str
    samples: tuple[Sample, ...]


# Rewrites and their edits


def of_edits(record: Edited, rng: random.Random) -> Iterator[Group]:
    """The source with variants of its rewrites, and variants with the source: other edits every time."""
    source, rewrites = record.source, record.rewrites
    number = rng.randrange(len(rewrites))
    rewrite, other = rewrites[number], rewrites[number - 1]
    mine = [edit for edit in record.edits if edit.of == number]
    if not mine:
        return
    variants = [_changed(rewrite, mine, rng) for _ in range(TEXTS - 1)]
    yield Group(source if rng.random() < 0.7 else other, (Sample(rewrite), *variants))
    if rng.random() < 0.5:
        yield Group(rewrite, (Sample(source),))
    else:
        yield _against(source, rewrite, mine, rng)
    if rng.random() < 0.5:
        yield from _without(source, rewrite, rng.choice(mine), rng)


def _apply(rewrite: str, edits: Sequence[Edit], rng: random.Random) -> tuple[str, list[tuple[Edit, int, int]]]:
    """`rewrite` with one to three edits that do not touch, and where they stand in it now."""
    wanted, taken = rng.choice((1, 1, 1, 2, 3)), list[tuple[int, int, Edit]]()
    for edit in rng.sample(edits, len(edits)):
        begin = rewrite.index(edit.find)
        end = begin + len(edit.find)
        if len(taken) < wanted and all(end + 2 <= low or begin >= high + 2 for low, high, _ in taken):
            taken.append((begin, end, edit))
    text, last, places = "", 0, []
    for begin, end, edit in sorted(taken, key=lambda entry: entry[0]):
        text += rewrite[last:begin] + edit.put
        places.append((edit, len(text) - len(edit.put), len(text)))
        last = end
    return text + rewrite[last:], places


def _changed(rewrite: str, edits: Sequence[Edit], rng: random.Random) -> Sample:
    """An edited rewrite: what was put there is wrong; where something went, the sentence may say less and be right."""
    text, places = _apply(rewrite, edits, rng)
    wrong, unknown = [], []
    for edit, begin, end in places:
        if edit.kind == NEUTRAL:
            continue
        if end > begin and not (edit.kind in SAYS_LESS and len(edit.put) <= len(edit.find)):
            wrong.append(_differing(edit, begin))
        else:
            unknown += [span for span in sentence_spans(text) if span[0] <= begin <= span[1]]
    return Sample(text, tuple(wrong), tuple(unknown))


def _against(source: str, rewrite: str, edits: Sequence[Edit], rng: random.Random) -> Group:
    """The source, held against an edited rewrite."""
    premise, places = _apply(rewrite, edits, rng)
    bad = [edit for edit, _, _ in places if edit.kind != NEUTRAL]
    wrong = tuple(_place(source, edit.source) for edit in bad if edit.source)
    known = all(edit.source or edit.kind == "addition" for edit in bad)
    return Group(premise, (Sample(source, wrong, () if known else tuple(sentence_spans(source))),))


def _without(source: str, rewrite: str, edit: Edit, rng: random.Random) -> Iterator[Group]:
    """A sentence gone on one side: the stretch that it stood for is supported no more on the other."""
    if edit.kind == NEUTRAL or not edit.source:
        return
    here, there = _place(rewrite, edit.find), _place(source, edit.source)
    premise, at, text, wrong = rng.choice(((rewrite, here, source, there), (source, there, rewrite, here)))
    spans = sentence_spans(premise)
    gone = next((span for span in spans if span[0] <= at[0] < span[1]), None)
    if gone and len(spans) > 1:
        others = tuple(span for span in sentence_spans(text) if not span[0] <= wrong[0] < span[1])
        yield Group((premise[: gone[0]] + premise[gone[1] :]).strip(), (Sample(text, (wrong,), others or ((0, 0),)),))


def _place(text: str, stretch: str) -> Span:
    begin = text.index(stretch)
    return begin, begin + len(stretch)


def _differing(edit: Edit, begin: int) -> Span:
    """Where `put` differs from `find`, in whole words of Latin letters; all of it where nothing is left of that."""
    find, put, low, high = edit.find, edit.put, 0, 0
    while low < min(len(find), len(put)) and find[low] == put[low]:
        low += 1
    while high < min(len(find), len(put)) - low and find[-1 - high] == put[-1 - high]:
        high += 1
    end = len(put) - high
    while low > 0 and put[low - 1].isascii() and put[low - 1].isalnum():
        low -= 1
    while end < len(put) and put[end].isascii() and put[end].isalnum():
        end += 1
    return (begin + low, begin + end) if end > low else (begin, begin + len(put))


# Statements in several wordings


@dataclass(frozen=True)
class _Said:
    """A wording as it was chosen: of which statements, which of `says` (None where it is a defect), and its kind."""

    of: tuple[int, ...]
    wording: int | None
    kind: str
    text: str


def of_statements(record: Stated, rng: random.Random) -> Group:
    """A passage of some of the statements, and others composed of the same ones."""
    numbers = list(record.single)
    kept = sorted(rng.sample(numbers, rng.randint(min(2, len(numbers)), len(numbers))))
    premise = _composed(record, kept, rng, wrong=rng.choice((0, 0, 0, 1, 1, 2)))
    samples = []
    for number in range(TEXTS):
        mine = kept
        if rng.random() < 0.15:  # says more, or less, than the premise
            extra = [other for other in numbers if other not in kept]
            mine = sorted([*kept, rng.choice(extra)]) if extra else kept[1:] or kept
        samples.append(_held(_composed(record, mine, rng, (0, 1, 1, 2)[number], premise), premise, record))
    return Group(record.passage([said.text for said in premise]), tuple(samples))


def _composed(
    record: Stated, numbers: Sequence[int], rng: random.Random, wrong: int, beside: Sequence[_Said] = ()
) -> list[_Said]:
    """The statements, two of them at once at times, `wrong` of them by a defect; not the wordings of `beside`."""
    chosen: list[Statement] = [record.single[number] for number in numbers]
    both = [said for said in record.statements if len(said.of) > 1 and set(said.of) <= set(numbers)]
    if both and rng.random() < 0.35:
        merged = rng.choice(both)
        chosen = [said for said in chosen if not set(said.of) & set(merged.of)] + [merged]
    chosen.sort(key=lambda said: said.of)
    if rng.random() < 0.15:
        rng.shuffle(chosen)
    taken = {(said.of, said.wording) for said in beside}
    spoiled = rng.sample(range(len(chosen)), min(wrong, len(chosen)))
    made = []
    for place, said in enumerate(chosen):
        if place in spoiled and said.defects:
            defect = rng.choice(said.defects)
            made.append(_Said(said.of, None, defect.kind, defect.text))
            continue
        wordings = range(len(said.says))
        wording = rng.choice([number for number in wordings if (said.of, number) not in taken] or wordings)
        made.append(_Said(said.of, wording, "", said.says[wording]))
    return made


def _held(text: Sequence[_Said], premise: Sequence[_Said], record: Stated) -> Sample:
    """Which statements of `text` the premise does not support."""
    wrong, unknown, made = list[Span](), list[Span](), ""
    for said in text:
        made = record.passage([made, said.text]) if made else said.text
        place = (len(made) - len(said.text), len(made))
        supported = _supported(said, premise)
        if supported is None:
            unknown.append(place)
        elif not supported:
            wrong.append(place)
    return Sample(made, tuple(wrong), tuple(unknown), whole=True)


def _supported(said: _Said, premise: Sequence[_Said]) -> bool | None:
    """None where it is not known."""
    about = [other for other in premise if set(other.of) & set(said.of)]
    if set(said.of) - {number for other in about for number in other.of}:
        return False
    if said.kind and any(other.text == said.text for other in about):
        return None
    if said.kind:
        # what says less is supported by what is right, and by nothing else for certain
        return None if any(other.kind for other in about) else said.kind in SAYS_LESS
    kinds = {other.kind: len(other.of) for other in about if other.kind}
    if not kinds or set(kinds) == {"addition"}:
        return True
    # an error between two statements (an invented cause, say) may leave each of them said
    return None if len(said.of) == 1 and max(kinds.values()) > 1 and "blend" not in kinds else False
