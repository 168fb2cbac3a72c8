"""Sentences dropped, and sentences added that another document of the domain says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from tasks.rephrase.alignment.pair import HAN, words
from tasks.rephrase.calibration.edits import Change, Pool, Text, draw, lists
from tasks.rephrase.segments import sentence_spans

LEADING = re.compile(
    r"[-*+>#|]|\d+[.)]|(?:it|its|this|that|these|those|they|their|he|she|his|her|we|you|i|such|both|here|there|then|so"
    r"|but|and|also|however|thus|hence|therefore|instead|yet|or|nor|finally|the (?:latter|former|same))\b"
    r"|[他她它这那此其]|但|而|因此|所以|不过",
    re.I,
)
"""Beginnings that only make sense where a sentence stood."""


OPENING = re.compile(r"[\"“‘(]?[A-ZÀ-Þ㐀-鿿]")


def dropped_sentence(text: Text, pool: Pool) -> Iterator[Change]:
    """One sentence goes that says something of the source which no other sentence says."""
    body = text.rewrite
    spans = sentence_spans(body)
    if len(spans) < 2:
        return
    said = [_content(body[start:end]) for start, end in spans]
    known = _content(text.source)
    for place, (start, end) in enumerate(spans):
        sentence = body[start:end]
        others = set().union(*(some for number, some in enumerate(said) if number != place))
        own = (said[place] - others) & known
        # Headings, questions and sentences that sum up are no loss.
        if len(own) < 3 or not _states(sentence) or (text.style == "summary_then_detail" and place == 0):
            continue
        after = spans[place + 1][0] if place + 1 < len(spans) else len(body)
        first = spans[place - 1][1] if place + 1 == len(spans) else start
        yield Change(((first, after, ""),), f"dropped '{sentence}'")


def added_sentence(text: Text, pool: Pool) -> Iterator[Change]:
    """A sentence of another document of the domain is put between two of this one: one drawn freely, one of the most
    similar vocabulary, and so on in turns. None where the style adds sentences of its own."""
    body = text.rewrite
    if text.adds or not (spans := sentence_spans(body)):
        return
    own = _content(body) | _content(text.source)
    offered = [s for identity, s in pool.sentences.get(f"{text.domain} {text.language}", ()) if identity != text.id]
    drawn = sorted(offered, key=lambda sentence: (draw(text.id, "added", sentence), sentence))[:8]
    near = sorted(offered, key=lambda sentence: (-_alike(_content(sentence), own), sentence))[:8]
    for number, sentence in enumerate(dict.fromkeys(s for both in zip(drawn, near, strict=False) for s in both)):
        if sentence in body or sentence in text.source:
            continue
        _start, end = spans[draw(text.id, number) % len(spans)]
        blank = "" if HAN.search(sentence) else " "
        yield Change(((end, end, blank + sentence),), f"added '{sentence}'")


def offer(texts: Iterable[tuple[str, str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """(id, domain, language, text) of many documents -> sentences that can stand elsewhere."""
    found: dict[str, list[tuple[str, str]]] = {}
    for identity, domain, language, text in texts:
        for start, end in sentence_spans(text):
            sentence = text[start:end]
            least = 12 if HAN.search(sentence) else 40
            if (
                least <= len(sentence) <= 300
                and "\n" not in sentence
                and _states(sentence)
                and not LEADING.match(sentence)
                and OPENING.match(sentence)
            ):
                found.setdefault(f"{domain} {language}", []).append((identity, sentence))
    return {key: sorted(set(some)) for key, some in sorted(found.items())}


def _states(sentence: str) -> bool:
    """Whether it is a statement: no heading, no question."""
    bare = sentence.strip().rstrip("*_ \"”’')）")
    return bare.endswith((".", "!", "。", "！", "；", "$", "`")) and not bare.startswith("#")


@lru_cache(maxsize=20_000)
def _content(text: str) -> frozenset[str]:
    """Words that carry content, in the first letters; Chinese in pairs of characters."""
    found = set()
    tokens = words(text)
    for word in tokens:
        low = word.lower()
        if word[0].isdigit() or (len(word) > 3 and low not in lists()["no_names"]):
            found.add(low[:6])
    found |= {a + b for a, b in pairwise(tokens) if HAN.match(a) and HAN.match(b)}
    return frozenset(found)


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / (len(one) + 5)
