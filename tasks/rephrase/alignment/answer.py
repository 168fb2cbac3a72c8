"""Is the answer a rewriting at all: whole, of a fair length, no refusal, no loop, no copy, in the source's language?"""

from __future__ import annotations

import re
from collections import Counter

from tasks.rephrase.alignment.pair import HAN, Pair, Verdict, lists, verdict, words
from tasks.rephrase.config import AlignmentConfig

RUN = 6
"""Words in a row that make a copied run."""

GRAM = 4
"""Words in a row that make a repetition."""

REFUSAL = re.compile(
    r"\b(?:I(?:'m| am) (?:sorry|unable|not able)|as an? (?:AI|language model|assistant)"
    r"|my (?:training data|knowledge cutoff)|I (?:can(?:not|['’]t)|won['’]t) (?:help|assist|provide|rewrite|fulfil))"
    r"|(?:很抱歉|对不起)，?我|作为(?:一个)?(?:AI|人工智能|语言模型)",
    re.I,
)

META = re.compile(
    r"\b(?:(?:rewritten|rephrased|revised|paraphrased) (?:text|version|passage|part|paragraph|sentence)"
    r"|the (?:original|given|provided|source) (?:text|passage|part)|(?:own words|rewrite (?:this|the) (?:part|text))"
    r"|I(?:'ve| have|'ll| will) (?:now |also )?(?:rewrit|rephras|paraphras|provide|revise)\w*)"
    r"|</?(?:part|document)>|改写后的|以下是",
    re.I,
)

PREAMBLE = re.compile(
    r"\A(?:(?:sure|certainly|of course|okay)[!,.]?\s*)?(?:here(?:'s| is| are)\b[^\n]{0,120}?"
    r"|(?:the )?(?:rewritten|rephrased|revised)[^\n]{0,60}?):[ \t]*\n+|\A(?:以下是|改写后的)[^\n]{0,40}?[:：]\s*",
    re.I,
)


def clean(text: str) -> str:
    """An answer without the announcement and the quotes that models put around it."""
    text = PREAMBLE.sub("", text.strip(), count=1).strip()
    if len(text) > 1 and text[0] in '"“' and text[-1] in '"”' and not re.search('["“”]', text[1:-1]):
        text = text[1:-1].strip()
    return text


def finished(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The engine ended the answer itself, and there is one."""
    if not pair.rewrite.strip():
        return Verdict("finished", 0.0, False, "the answer is empty")
    if pair.finish != "stop":
        return Verdict("finished", 0.0, False, "the answer was cut at its longest length")
    return Verdict("finished", 1.0, True)


def length(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Characters of the rewrite over those of the source, within the band."""
    least, most = pair.length or config.length
    ratio = len(pair.rewrite.strip()) / max(len(pair.source.strip()), 1)
    why = f"{ratio:.2f} times as long as its source; {least:g} to {most:g} is allowed"
    return verdict("length", ratio, least <= ratio <= most, why)


def refusal(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No refusal and no talk about the task that the source does not have itself."""
    for pattern, kind in ((REFUSAL, "refuses"), (META, "talks about the task")):
        found = pattern.search(pair.rewrite)
        if found and not pattern.search(pair.source):
            return Verdict("refusal", 0.0, False, f"{kind}: '{found.group()}'")
    return Verdict("refusal", 1.0, True)


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
    """Share of the rewrite's words in runs of six or more from the source (0 is best)."""
    share = copy_share(pair.source, pair.rewrite)
    why = f"{share:.0%} of its words are runs from the source; {config.copied:.0%} is allowed"
    return verdict("copied", share, share <= config.copied, why)


def seam(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Share of the rewrite's words that only say again what the segment before it said (0 is best)."""
    share = copy_share(pair.before, pair.rewrite) if pair.before else 0.0
    why = f"{share:.0%} of its words repeat the segment before; {config.seam:.0%} is allowed"
    return verdict("seam", share, share <= config.seam, why)


def language(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Source and rewrite are written in the same script and, where long enough to tell, in the same language."""
    before, after = _han(pair.source), _han(pair.rewrite)
    score = 1 - abs(before - after)
    if score < 0.6:
        return Verdict("language", score, False, f"{after:.0%} of it is Chinese, {before:.0%} of the source")
    told, found = _english(pair.source), _english(pair.rewrite)
    if told is not None and found is not None and told >= 0.2 and found < 0.08:
        return Verdict("language", found, False, f"only {found:.0%} of its words are common English ones")
    return Verdict("language", score, True)


def copy_share(source: str, rewrite: str) -> float:
    """Share of the rewrite's words that lie in a run of at least six words that the source has too."""
    old, new = [word.lower() for word in words(source)], [word.lower() for word in words(rewrite)]
    size = min(RUN, max(len(new), 1))
    runs = {tuple(old[place : place + size]) for place in range(len(old) - size + 1)}
    taken = [False] * len(new)
    for place in range(len(new) - size + 1):
        if tuple(new[place : place + size]) in runs:
            taken[place : place + size] = [True] * size
    return sum(taken) / max(len(new), 1)


def _repeated(found: list[str]) -> float:
    grams = Counter(zip(*(found[place:] for place in range(GRAM)), strict=False))
    total = sum(grams.values())
    return (total - len(grams)) / total if total else 0.0


def _han(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(bool(HAN.match(character)) for character in letters) / len(letters) if letters else 0.0


def _english(text: str) -> float | None:
    """Share of the commonest English words, None for a text too short to tell."""
    found = [word.lower() for word in words(text) if word.isalpha()]
    return sum(word in lists()["capitals"] for word in found) / len(found) if len(found) >= 25 else None
