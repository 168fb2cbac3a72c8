"""What is denied stays denied: as many negations, and no word turned into its opposite."""

from __future__ import annotations

from tasks.rephrase.alignment.pair import HAN, Pair, Verdict, lists, verdict, words
from tasks.rephrase.config import AlignmentConfig


def negations(pair: Pair, config: AlignmentConfig) -> Verdict:
    """As many negations as the source has (contractions and words such as `without` or `unable` counted)."""
    before, after = count_negations(pair.source), count_negations(pair.rewrite)
    passed = abs(before - after) <= config.negations
    score = 1 - abs(before - after) / max(before, after, 1)
    return verdict("negations", score, passed, f"{after} negations where the source has {before}")


def opposites(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No word was turned into its opposite (`before` lost, `after` found)."""
    before, after = pair.source.lower(), pair.rewrite.lower()
    old, new = set(words(before)), set(words(after))
    for pair_of_words in lists()["opposites"]:
        for lost, found in (pair_of_words, pair_of_words[::-1]):
            if HAN.search(lost):
                turned = lost in before and found not in before and found in after and lost not in after
            else:
                turned = lost in old - new and found in new - old
            if turned:
                return Verdict("opposites", 0.0, False, f"'{lost}' became '{found}'")
    return Verdict("opposites", 1.0, True)


def count_negations(text: str) -> int:
    found = lists()
    lower = text.lower().replace("’", "'")
    for harmless in (phrase for phrases in found["not_negations"].values() for phrase in phrases):
        lower = lower.replace(harmless, "")
    count = sum(word in found["negations"]["en"] or word.endswith("n't") for word in words(lower))
    return count + sum(lower.count(character) for character in found["negations"]["zh"])
