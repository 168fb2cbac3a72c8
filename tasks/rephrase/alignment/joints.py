"""Where two segments meet: nothing is said twice and nothing belongs to the neighbour.

`seam` compares words, `ahead` the network's states of them: a paraphrase of the neighbour's sentence shares no
runs with it. Both ask only for what the source's own segments do not share.
"""

from __future__ import annotations

from tasks.rephrase.alignment.answer import RUN, taken_words
from tasks.rephrase.alignment.pair import Pair, Verdict, verdict, words
from tasks.rephrase.alignment.words import Match, Side, cosines, read
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentences

FEWEST = 6
"""Words (CJK: characters) of a sentence that can be told from its neighbours'."""
SAID = 0.8
"""Share of a sentence's words that another has too, above which it is that sentence again."""
NEAR = 0.5
"""How near, word by word, a sentence must be to a neighbouring segment to be taken for one of its own."""
REACH = 3
"""Sentences of a neighbour, from the joint, that are compared."""


def seam(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Share of the rewrite's words that only say again what the segment before it said (0 is best); and no sentence of
    it is one of the segment before or the segment after."""
    taken = taken_words(pair.before, pair.rewrite) if pair.before else []
    own = taken_words(pair.source, pair.rewrite) if any(taken) else taken
    share = sum(one and not other for one, other in zip(taken, own, strict=True)) / max(len(taken), 1)
    if share > config.seam:
        return Verdict("seam", share, False, f"{share:.0%} of its words repeat the segment before")
    found = sentences(pair.rewrite)
    for neighbour, told, does in (
        (pair.before, found[:REACH], "says again"),
        (pair.before_source, found[:REACH], "says again"),
        (pair.after_source, found[-REACH:], "runs ahead:"),
    ):
        known = [_bag(sentence) for sentence in (sentences(neighbour) if neighbour else [])]
        known = known[:REACH] if neighbour == pair.after_source else known[-REACH:]
        source = [_bag(sentence) for sentence in sentences(pair.source)] if known else []
        for sentence in told:
            bag = _bag(sentence)
            if len(bag) < FEWEST or not any(_same(bag, other) for other in known):
                continue
            if not any(_same(bag, other) for other in source):
                return Verdict("seam", max(share, _longest(sentence, neighbour)), False, f"{does} '{sentence[:80]}'")
    return verdict("seam", share, True, "")


def ahead(match: Match, config: AlignmentConfig) -> Verdict:
    """How much nearer any sentence of the rewrite is to a neighbouring segment of the source than to its own (0 is
    best): told too early, or a second time."""
    pair = match.pair
    worst, why = 0.0, ""
    at_home: list[float] | None = None
    for neighbour, does in ((pair.before_source, "says again"), (pair.after_source, "runs ahead:")):
        if not neighbour.strip() or not match.rewrite.words:
            continue
        at_home = at_home or _nearness(match.rewrite, match.source)
        near = _nearness(match.rewrite, read(neighbour, match.networks))
        for index, (there, home) in enumerate(zip(near, at_home, strict=True)):
            if there >= NEAR and there - home > worst:
                worst, why = there - home, f"{does} '{match.rewrite.sentence(index)[:80]}'"
    return verdict("ahead", worst, worst <= config.ahead, why)


def _nearness(side: Side, other: Side) -> list[float]:
    """For each sentence of `side` the mean cosine of its longer words to their nearest in `other`."""
    if not other.words:
        return [0.0] * len(side.sentences)
    near = cosines(side.words_WD, other.words_WD).max(axis=1)
    return [_mean(near, side, index) for index in range(len(side.sentences))]


def _mean(near, side: Side, index: int) -> float:  # type: ignore[no-untyped-def]
    places = [place for place in side.among(index) if len(side.words[place].text) > 3]
    return float(near[places].mean()) if len(places) >= FEWEST // 2 else 0.0


def _bag(sentence: str) -> frozenset[str]:
    return frozenset(word.lower() for word in words(sentence))


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(other) >= FEWEST and len(one & other) >= SAID * max(len(one), len(other))


def _longest(sentence: str, neighbour: str) -> float:
    taken = taken_words(neighbour, sentence, min(RUN, 3))
    return sum(taken) / max(len(taken), 1)
