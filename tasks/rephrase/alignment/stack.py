"""The alignment check: is a rewritten segment a rewriting of its source, and faithful to it?

Checks run from cheap to dear and stop at the first that fails: what costs an embedding is asked only of texts that no
regular expression could refuse, and the network that reads both texts together is asked last. Embeddings alone would be
worthless here: they put a swapped number (0.94) and a denial (0.95) above a true paraphrase (0.94).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tasks.rephrase.alignment.answer import copied, finished, language, length, repetition, talk
from tasks.rephrase.alignment.fluency import fluency
from tasks.rephrase.alignment.formulas import formulas
from tasks.rephrase.alignment.joints import seam
from tasks.rephrase.alignment.judge import JUDGE, Judge
from tasks.rephrase.alignment.limits import margin
from tasks.rephrase.alignment.literals import code
from tasks.rephrase.alignment.meaning import cosine, fidelity
from tasks.rephrase.alignment.numbers import numbers
from tasks.rephrase.alignment.pair import Check, Pair, Verdict, words
from tasks.rephrase.alignment.question import answerable, question
from tasks.rephrase.alignment.reading import NetworkCheck, Readers
from tasks.rephrase.alignment.solution import answer
from tasks.rephrase.alignment.translation import sentencewise
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentences

CHECKS: tuple[Check, ...] = (
    finished,
    talk,
    question,
    length,
    repetition,
    copied,
    seam,
    language,
    fluency,
    numbers,
    formulas,
    code,
    answer,
    sentencewise,
)

NETWORK_CHECKS: tuple[NetworkCheck, ...] = (answerable, cosine, fidelity)
"""Those that a network reads for, after all others."""

MONOLINGUAL = frozenset(("copied", "cosine", "fidelity"))
"""Checks that compare words, or ask a network that never saw a text beside its translation."""

NAMES = tuple(check.__name__ for check in (*CHECKS, *NETWORK_CHECKS))
"""Every check, in the order in which they run."""

RECORDED = (*NAMES, JUDGE)
"""Every score that a record of a segment has."""


@dataclass(frozen=True)
class Alignment:
    """The verdicts on one pair; `reason` and `why` are those of the first that failed."""

    verdicts: tuple[Verdict, ...]
    margin: float | None = None
    """How near the pair came to a refusal (limits.py)."""

    @property
    def accepted(self) -> bool:
        return self.failed is None

    @property
    def failed(self) -> Verdict | None:
        """That of the first check that failed."""
        return next((verdict for verdict in self.verdicts if not verdict.passed), None)

    @property
    def reason(self) -> str:
        """The first check that failed, or nothing."""
        return self.failed.check if self.failed else ""

    @property
    def why(self) -> str:
        return self.failed.why if self.failed else ""

    def scores(self) -> dict[str, float | None]:
        """Every check's score, None for those that were not reached."""
        found = {verdict.check: round(verdict.score, 4) for verdict in self.verdicts}
        return {name: found.get(name) for name in RECORDED}


def align(pair: Pair, config: AlignmentConfig, networks: Readers, *, every: bool = False) -> Alignment:
    """Hold `pair` against the checks, in order, until one fails; against `every` one where its score is wanted."""
    verdicts: list[Verdict] = []
    for verdict in _verdicts(pair, config, networks):
        verdicts.append(_located(verdict, pair))
        if not (verdict.passed or every):
            break
    return Alignment(tuple(verdicts), margin(pair, verdicts, config))


def consult(judge: Judge, pair: Pair, alignment: Alignment) -> Alignment:
    """Ask `judge` about an accepted pair of its grey zone; any other stays as it is."""
    if not (alignment.accepted and judge.wants(alignment.margin)):
        return alignment
    return replace(alignment, verdicts=(*alignment.verdicts, _located(judge.check(pair), pair)))


def _located(verdict: Verdict, pair: Pair) -> Verdict:
    """A refusal with the two sentences that it is about. Where the check knows none of them, it is the one that is
    told least in the other text; where it knows one, the other is the one that has most of its words. Of a source that
    has none of them, its first: a heading, if it begins with one."""
    source, rewrite = verdict.source_sentence, verdict.rewrite_sentence
    if verdict.passed:
        return verdict
    if not source and not rewrite:
        if len(pair.rewrite) < len(pair.source):
            source = min(sentences(pair.source), key=lambda one: _told(one, pair.rewrite), default="")
        else:
            rewrite = min(sentences(pair.rewrite), key=lambda one: _told(one, pair.source), default="")
    source, rewrite = source or _nearest(rewrite, pair.source), rewrite or _nearest(source, pair.rewrite)
    source = source or next(iter(sentences(pair.source)), "")
    return replace(verdict, source_sentence=source, rewrite_sentence=rewrite)


def _nearest(sentence: str, text: str) -> str:
    """The sentence of a text that has most of another's words; nothing where none has any."""
    found = max(sentences(text), key=lambda one: _told(sentence, one), default="")
    return found if _told(sentence, found) > 0 else ""


def _told(sentence: str, text: str) -> float:
    """Share of a sentence's words that a text has; of two texts with as many the shorter has more."""
    mine, theirs = ({word.lower() for word in words(each)} for each in (sentence, text))
    return len(mine & theirs) / max(len(mine), 1) - len(theirs - mine) / 1000


def _verdicts(pair: Pair, config: AlignmentConfig, networks: Readers) -> Iterator[Verdict]:
    """One after another, so that the network is not run for what a cheap check refused."""
    left_out = MONOLINGUAL if pair.translated else frozenset[str]()
    for check in CHECKS:
        if check.__name__ not in left_out:
            yield check(pair, config)
    for network_check in NETWORK_CHECKS:
        verdict = None if network_check.__name__ in left_out else network_check(pair, networks, config)
        if verdict is not None:
            yield verdict
