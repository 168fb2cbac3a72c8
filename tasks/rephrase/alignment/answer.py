"""Is the answer a rewriting at all: whole, of a fair length, no loop, no copy, in the right language?

What an answer says instead of rewriting (refusals, talk, markup) is in talk.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tasks.rephrase.alignment.pair import CODE, FORMULA, HAN, URL, Pair, Verdict, lists, verdict, words
from tasks.rephrase.config import AlignmentConfig

RUN = 6
"""Words in a row that make a copied run."""

GRAM = 4
"""Words in a row that make a repetition."""

HALF = re.compile(
    r"(?:\.\.\.|…)[\s\"'”’)\]]*\Z|[\[(（](?:\.\.\.|…+|(?:the )?rest\b[^\])）]{0,40}|omitted|truncated|continue[sd]?"
    r"|to be continued|略|以下省略|未完待续)[\])）]\s*\Z|(?:以下省略|未完待续)[。.]?\s*\Z"
    r"|(?:[,，、;；(（]|\b(?:the|a|an|of|and|or|to|in|for|with|by|that|which|is|are|was|were))\s*\Z",
    re.I,
)
"""An end that is none."""

SCRIPTS = {
    "Latin": re.compile(r"[A-Za-zÀ-ɏ]"),
    "Han": HAN,
    "kana": re.compile(r"[぀-ヿ]"),
    "Hangul": re.compile(r"[가-힣ᄀ-ᇿ]"),
    "Cyrillic": re.compile(r"[Ѐ-ӿ]"),
    "Arabic": re.compile(r"[؀-ۿ]"),
    "Devanagari": re.compile(r"[ऀ-ॿ]"),
    "Hebrew": re.compile(r"[֐-׿]"),
    "Thai": re.compile(r"[฀-๿]"),
}


def finished(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The engine ended the answer itself, there is one, and it does not break off."""
    if not pair.rewrite.strip():
        return Verdict("finished", 0.0, False, "the answer is empty")
    if pair.finish == "filtered":
        return Verdict("finished", 0.0, False, "the endpoint's content filter ended the answer")
    if pair.finish != "stop":
        looped = not repetition(pair, config).passed
        return Verdict(
            "finished", 0.0, False, "the answer was cut at its longest length" + (", in a loop" if looped else "")
        )
    half = HALF.search(pair.rewrite[-80:])
    if half and not HALF.search(pair.source[-80:]):
        return Verdict("finished", 0.0, False, f"the answer breaks off: '{pair.rewrite.strip()[-40:]}'")
    return Verdict("finished", 1.0, True)


def length(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Characters of the rewrite over those of the source, within the band. Of a translation, what is the same in every
    language (formulas, code, URLs) is left out on both sides."""
    old, new = pair.source.strip(), pair.rewrite.strip()
    if pair.translated:
        bands = config.translation_length
        least, most = bands.get(pair.translated, bands["other"])
        old, new = wording(old), wording(new)
        if len(old) < 10:  # hardly a word: nothing to measure by
            return Verdict("length", 1.0, True)
    else:
        least, most = pair.length or config.length
    ratio = len(new) / max(len(old), 1)
    why = f"{ratio:.2f} times as long as its source; {least:g} to {most:g} is allowed"
    return verdict("length", ratio, least <= ratio <= most, why)


def repetition(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Share of the rewrite's 4-grams that occurred before in it (0 is best), over the source's own share."""
    share = max(0.0, _repeated(words(pair.rewrite)) - _repeated(words(pair.source)))
    lines = Counter(
        line.strip() for line in re.split(r"\n|(?<=[.!?。！？])\s*", pair.rewrite) if len(line.strip()) > 15
    )
    line, times = lines.most_common(1)[0] if lines else ("", 0)
    if len(line) > 15 and times > 1 and times > pair.source.count(line):
        return Verdict("repetition", share, False, f"says '{line[:60]}' {times} times")
    why = f"{share:.0%} of its 4-grams are repetitions; {config.repeated:.0%} is allowed"
    return verdict("repetition", share, share <= config.repeated, why)


def copied(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Share of the rewrite's words in runs of six or more from the source (0 is best). Where the
    source stands as the answer to a question, the question must not be copied."""
    share = copy_share(pair.source, pair.question or pair.rewrite)
    why = f"{share:.0%} of its words are runs from the source; {config.copied:.0%} is allowed"
    return verdict("copied", share, share <= config.copied, why)


def language(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Source and rewrite are written in the same script and, where long enough to tell, in the same language; a
    translation is in English."""
    after = _scripts(pair.rewrite)
    found = _english(pair.rewrite)
    if pair.translated:
        foreign = 1 - after.get("Latin", 0.0) if after else 0.0
        if foreign > config.foreign:
            return Verdict("language", 1 - foreign, False, f"{foreign:.0%} of its letters are not those of English")
        if found is not None and found < 0.08:
            return Verdict("language", found, False, f"only {found:.0%} of its words are common English ones")
        return Verdict("language", 1 - foreign, True)
    before = _scripts(pair.source)
    score = sum(min(share, after.get(name, 0.0)) for name, share in before.items()) if before and after else 1.0
    if score < 0.6:
        return Verdict("language", score, False, f"written in {_most(after)}, its source in {_most(before)}")
    told = _english(pair.source)
    if told is not None and found is not None and told >= 0.2 and found < 0.08:
        return Verdict("language", found, False, f"only {found:.0%} of its words are common English ones")
    if told is not None and found is not None and told < 0.05 and found >= 0.25 and before.get("Latin", 0.0) > 0.6:
        return Verdict("language", 1 - found, False, "it is in English, and its source is not")
    return Verdict("language", score, True)


def copy_share(source: str, rewrite: str) -> float:
    """Share of the rewrite's words that lie in a run of at least six words that the source has too."""
    taken = taken_words(source, rewrite)
    return sum(taken) / max(len(taken), 1)


def taken_words(source: str, rewrite: str, run: int = RUN) -> list[bool]:
    """Of each word of the rewrite whether it lies in a run of at least `run` words that the source has too."""
    old, new = [word.lower() for word in words(source)], [word.lower() for word in words(rewrite)]
    return in_runs(old, new, min(run, max(len(new), 1)))


def in_runs(old: Sequence[str], new: Sequence[str], size: int) -> list[bool]:
    """Of each word of `new` whether it lies in a run of `size` words or more that `old` has too."""
    runs = {tuple(old[place : place + size]) for place in range(len(old) - size + 1)}
    taken = [False] * len(new)
    for place in range(len(new) - size + 1):
        if tuple(new[place : place + size]) in runs:
            taken[place : place + size] = [True] * size
    return taken


def wording(text: str) -> str:
    """What of a text differs from language to language: formulas, code and URLs left out."""
    return " ".join(URL.sub(" ", CODE.sub(" ", FORMULA.sub(" ", text))).split())


def _repeated(found: list[str]) -> float:
    grams = Counter(zip(*(found[place:] for place in range(GRAM)), strict=False))
    total = sum(grams.values())
    return (total - len(grams)) / total if total else 0.0


def _scripts(text: str) -> dict[str, float]:
    """The share of each script among the letters that belong to a language: Greek ones are taken for signs."""
    counts = {name: len(pattern.findall(text)) for name, pattern in SCRIPTS.items()}
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count} if total else {}


def _most(shares: dict[str, float]) -> str:
    return max(shares, key=lambda name: shares[name])


def _english(text: str) -> float | None:
    """Share of the commonest English words, None for a text too short to tell."""
    found = [word.lower() for word in words(text) if word.isalpha()]
    return sum(word in lists()["capitals"] for word in found) / len(found) if len(found) >= 25 else None
