"""Where segments meet, and the document that is joined of them: nothing is said twice, nothing stays in Chinese.

Each segment may be faithful, and the whole still stammer. What the source's own segments share may be shared. A finding
of the whole names the piece that is to blame, so that it can be taken back to its original.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.rephrase.alignment.answer import scripts, taken_words, wording
from tasks.rephrase.alignment.pair import Pair, Verdict, verdict, words
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentences

FEWEST = 7
"""Words (CJK: characters) of a sentence that is not said twice by chance."""
SAID = 0.85
"""Share of two sentences' words in common, above which they are one."""
REACH = 3
"""Sentences of a neighbour, from the joint, that are compared."""
SHINGLE = 3
"""Words in a row by which sentences of a document that may be the same are found."""
CROWD = 8
"""Sentences with a shingle beyond which it tells nothing."""

NAMES = ("echoes", "foreign")
"""The checks of a whole document."""


@dataclass(frozen=True)
class Piece:
    """One segment of the joined document."""

    source: str
    text: str
    rewritten: bool


@dataclass(frozen=True)
class Finding:
    """What one check says of the whole."""

    check: str
    score: float
    """0 is best."""
    passed: bool
    why: str = ""
    guilty: Mapping[int, str] = field(default_factory=dict)
    """The rewritten pieces to blame, the last first, each with its sentence that is wrong."""


def seam(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Share of the rewrite's words that only say again what the segment before it said (0 is best); and no sentence of
    it is one of the segment before or the segment after."""
    taken = taken_words(pair.before, pair.rewrite) if pair.before else []
    own = taken_words(pair.source, pair.rewrite) if any(taken) else taken
    share = sum(one and not other for one, other in zip(taken, own, strict=True)) / max(len(taken), 1)
    if share > config.seam:
        return Verdict("seam", share, False, f"{share:.0%} of its words repeat the segment before")
    told = sentences(pair.rewrite) if pair.before or pair.context else []
    for known, near in (
        (sentences(pair.before)[-REACH:], told[:REACH]),
        (sentences(pair.before_source)[-REACH:], told[:REACH]),
        (sentences(pair.after_source)[:REACH], told[-REACH:]),
    ):
        for sentence in near if known else ():
            if _stands(sentence, known) and not _stands(sentence, sentences(pair.source)):
                why = f"its neighbour says '{sentence[:80]}', and its source does not"
                return Verdict("seam", 1.0, False, why, rewrite_sentence=sentence)
    return verdict("seam", share, True, "")


def examine(pieces: Sequence[Piece], config: AlignmentConfig, translated: str = "") -> list[Finding]:
    """Every check of the joined document."""
    return [echoes(pieces, config), foreign(pieces, config, translated)]


def echoes(pieces: Sequence[Piece], config: AlignmentConfig) -> Finding:
    """Share of the document's sentences that say again what it has said, beyond those with which its source does."""
    told = [(number, sentence) for number, piece in enumerate(pieces) for sentence in sentences(piece.text)]
    own = len(list(_repeats([sentence for piece in pieces for sentence in sentences(piece.source)])))
    again = [told[place] for place in _repeats([sentence for _, sentence in told])]
    score = max(0, len(again) - own) / max(len(told), 1)
    if score <= config.echoes:
        return Finding("echoes", score, True)
    guilty: dict[int, str] = {}
    excess = len(again) - own - config.echoes * len(told)
    for number, sentence in reversed(again):  # no more pieces than it takes, or a long document would lose them all
        if pieces[number].rewritten and (excess > 0 or number in guilty or not guilty):
            guilty.setdefault(number, sentence)
            excess -= 1
    return Finding("echoes", score, False, said_again(next(iter(guilty.values()), again[-1][1])), guilty)


def said_again(sentence: str) -> str:
    """Why a document is refused that says a sentence twice."""
    return f"the document says '{sentence[:80]}' again"


def foreign(pieces: Sequence[Piece], config: AlignmentConfig, translated: str) -> Finding:
    """Share of a translated document's letters that are not those of English; code and tables that were kept count."""
    found = scripts("\n".join(wording(piece.text) for piece in pieces)) if translated else {}
    score = 1 - found.get("Latin", 0.0) if found else 0.0
    why = f"{score:.0%} of the translated document's letters are not those of English"
    return Finding("foreign", score, score <= config.foreign, "" if score <= config.foreign else why)


def _repeats(found: Sequence[str]) -> Iterator[int]:
    """Which sentences say what one before them said; linear, but for what many sentences begin alike."""
    seen: dict[tuple[str, ...], list[int]] = defaultdict(list)
    bags = [_bag(sentence) for sentence in found]
    for place, sentence in enumerate(found):
        said = [word.lower() for word in words(sentence)]
        shingles = {tuple(said[start : start + SHINGLE]) for start in range(len(said) - SHINGLE + 1)}
        if any(_same(bags[place], bags[other]) for shingle in shingles for other in seen[shingle]):
            yield place
        for shingle in shingles:
            if len(seen[shingle]) < CROWD:
                seen[shingle].append(place)


def _stands(sentence: str, known: Sequence[str]) -> bool:
    return any(_same(_bag(sentence), _bag(other)) for other in known)


def _bag(sentence: str) -> Counter[str]:
    return Counter(word.lower() for word in words(sentence))


def _same(one: Counter[str], other: Counter[str]) -> bool:
    longer = max(one.total(), other.total())
    return min(one.total(), other.total()) >= FEWEST and (one & other).total() >= SAID * longer
