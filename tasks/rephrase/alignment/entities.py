"""Names: most of the source's kept, none invented."""

from __future__ import annotations

import re

from tasks.rephrase.alignment.pair import CODE, FORMULA, URL, Pair, Verdict, lists, verdict, words
from tasks.rephrase.config import AlignmentConfig

CAPITAL = re.compile(r"(?<![\w`$\\/.-])[A-ZÀ-ÞΑ-ЯЁ][\w’'-]*(?<![’'-])")

SENTENCE_START = re.compile(r"(?:^|[.!?:…]['\"”’)]*\s+|\n)\s*(?:[-*#>]+\s*|\d+[.)]\s*)?['\"“‘(]*$")


def entities(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Names: most of the source's kept, none invented. Lenient: letters' case and the sentence's first word are
    forgiven, and a name may be mentioned fewer times."""
    before, inside, opening = names(pair.source)[0], *names(pair.rewrite)
    known = {word.lower() for word in words(pair.source)} | {_stem(word) for word in words(pair.source)}
    present = {word.lower() for word in words(pair.rewrite)} | {_stem(word) for word in words(pair.rewrite)}
    lost = sorted(name for name in before if name.lower() not in present and _stem(name) not in present)
    invented = sorted(name for name in inside if name.lower() not in known and _stem(name) not in known)
    score = 1 - len(lost) / max(len(before), 1)
    if invented:
        return Verdict("entities", score, False, f"names {', '.join(invented[:4])}, which the source does not")
    # A lost name beside a new word in a capital at a sentence's beginning is a swap until shown otherwise.
    opened = sorted(name for name in opening if name.lower() not in known and _stem(name) not in known)
    if lost and any(len(name) > 1 and name.isupper() for name in opened):
        return Verdict("entities", score, False, f"lost {', '.join(lost[:4])}; found {', '.join(opened[:4])}")
    why = f"keeps {score:.0%} of the names, {config.entities:.0%} are wanted; lost {', '.join(lost[:4])}"
    return verdict("entities", score, score >= config.entities, why)


def names(text: str) -> tuple[set[str], set[str]]:
    """(words in a capital that stand inside sentences, those that open one), common words left out."""
    inside: set[str] = set()
    opening: set[str] = set()
    bare = URL.sub(" ", CODE.sub(" ", FORMULA.sub(" ", text)))
    for match in CAPITAL.finditer(bare):
        word = re.sub(r"[’']s$", "", match.group())
        if word.lower() in lists()["capitals"] or len(word) < 2:
            continue
        starts = SENTENCE_START.search(bare[max(0, match.start() - 40) : match.start()]) is not None
        (opening if starts or match.start() == 0 else inside).add(word)
    return inside, opening - inside


def _stem(word: str) -> str:
    """Enough to forgive an inflection: the first letters of a longer word."""
    word = word.lower()
    return word[: max(5, len(word) - 3)] if len(word) > 5 else word.rstrip("s")
