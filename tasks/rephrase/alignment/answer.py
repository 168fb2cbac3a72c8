"""Is the answer a rewriting at all: whole, of a fair length, no talk, no loop, no copy, in the right language?

What an answer says instead of rewriting is a table (words.yaml). `clean` takes off what models put around a good one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from model.visible import encodable
from tasks.rephrase.alignment.pair import (
    CODE,
    FORMULA,
    HAN,
    URL,
    Pair,
    Verdict,
    lists,
    patterns,
    verdict,
    words,
)
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_with

RUN = 6
"""Words in a row that make a copied run."""
GRAM = 4
"""Words in a row that make a repetition."""
LEAKED = 8
"""Words in a row from the prompt's instructions that no rewriting says by chance."""
COMMON = 25
"""Words from which the share of the commonest English ones tells whether a text is English."""

BREAK = re.compile("\r\n?|[\x85\u2028\u2029]")
THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.S)
FENCED = re.compile(r"\A```(?:text|markdown|md)?[ \t]*\n(.*)\n```\s*\Z", re.S)
WRAPPED = re.compile(r"\s*(?:```|[\[{]\s*[\"{\[])")
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


def clean(text: str) -> str:
    """An answer without what models put around it: a thought, an announcement, quotes, a fence or a JSON object. Its
    lines end in \\n, as those of the corpus do."""
    text = BREAK.sub("\n", text)
    text = THOUGHT.sub("", text, count=1).strip()
    text = patterns("preamble").sub("", text, count=1).strip()
    fenced = FENCED.match(text)
    if fenced and "```" not in fenced.group(1):
        text = fenced.group(1).strip()
    if text[:1] == "{" and text[-1:] == "}":
        text = _only_string(text)
    if len(text) > 1 and text[0] in '"“' and text[-1] in '"”' and not re.search('["“”]', text[1:-1]):
        text = text[1:-1].strip()
    return BREAK.sub("\n", text)  # JSON can spell one


def finished(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The engine ended the answer itself, there is one, and it does not break off."""
    why = ""
    if not pair.rewrite.strip():
        why = "the answer is empty"
    elif pair.finish == "filtered":
        why = "the endpoint's content filter ended the answer"
    elif pair.finish != "stop":
        looped = not repetition(pair, config).passed
        why = "the answer was cut at its longest length" + (", in a loop" if looped else "")
    elif patterns("unfinished").search(pair.rewrite[-80:]) and not patterns("unfinished").search(pair.source[-80:]):
        why = f"the answer breaks off: '{pair.rewrite.strip()[-40:]}'"
    return Verdict("finished", float(not why), not why, why)


def talk(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No refusal, no talk about the task, no markup of a chat, JSON or fence around the answer, that the source does
    not have itself; no eight words in a row of the prompt's instructions."""
    for row in lists()["talk"]:
        found = row["pattern"].search(pair.rewrite)
        if found and not row["pattern"].search(pair.source):
            return _told(pair, f"{row['does']}: '{found.group()[:60]}'", found.group())
    wrapped = WRAPPED.match(pair.rewrite)
    if wrapped and wrapped.group().strip()[:3] not in pair.source:
        return _told(pair, f"is JSON or a fence and no text: '{pair.rewrite.strip()[:40]}'", "")
    if pair.prompt:
        said = [word.lower() for word in words(pair.rewrite)]
        known = _runs(pair.prompt) - _runs(pair.source)
        for place in range(len(said) - LEAKED + 1):
            if tuple(said[place : place + LEAKED]) in known:
                return _told(pair, f"repeats its instructions: '{' '.join(said[place : place + LEAKED])}'", "")
    return Verdict("talk", 1.0, True)


def _told(pair: Pair, why: str, words: str) -> Verdict:
    return Verdict("talk", 0.0, False, why, rewrite_sentence=sentence_with(pair.rewrite, words))


def _runs(text: str) -> set[tuple[str, ...]]:
    found = [word.lower() for word in words(text)]
    return {tuple(found[place : place + LEAKED]) for place in range(len(found) - LEAKED + 1)}


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
    """Share of the rewrite's 4-grams that occurred before in it (0 is best), over the source's own share; no sentence
    is said twice that the source does not say as often."""
    share = max(0.0, _repeated(words(pair.rewrite)) - _repeated(words(pair.source)))
    lines = Counter(line.strip() for line in re.split(r"\n|(?<=[.!?。！？])\s*", pair.rewrite))
    twice = [line for line, times in lines.items() if len(line) > 15 and times > max(1, pair.source.count(line))]
    if twice:
        why = f"says '{twice[0][:60]}' {lines[twice[0]]} times"
        return Verdict("repetition", share, False, why, rewrite_sentence=twice[0])
    why = f"{share:.0%} of its 4-grams are repetitions; {config.repeated:.0%} is allowed"
    return verdict("repetition", share, share <= config.repeated, why)


def copied(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Share of the rewrite's words in runs of six or more from the source (0 is best), without what must stay as it is:
    formulas and code. Where the source stands as the answer to a question, the question must not be copied."""
    share = copy_share(wording(pair.source), wording(pair.question or pair.rewrite))
    why = f"{share:.0%} of its words are runs from the source; {config.copied:.0%} is allowed"
    return verdict("copied", share, share <= config.copied, why)


def language(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Source and rewrite are written in the same script and, where long enough to tell, in the same language; a
    translation is in English."""
    before, after = scripts(pair.source), scripts(pair.rewrite)
    told, found = _english(pair.source), _english(pair.rewrite)
    strange = found is not None and found < 0.08
    why = ""
    if pair.translated:
        score = after.get("Latin", 0.0) if after else 1.0
        if 1 - score > config.foreign:
            why = f"{1 - score:.0%} of its letters are not those of English"
    else:
        score = sum(min(share, after.get(name, 0.0)) for name, share in before.items()) if before and after else 1.0
        strange = strange and told is not None and told >= 0.2
        if score < 0.6:
            why = f"written in {max(after, key=after.__getitem__)}, its source in {max(before, key=before.__getitem__)}"
        elif told is not None and told < 0.05 and (found or 0) >= 0.25 and before.get("Latin", 0.0) > 0.6:
            score, why = 1 - (found or 0), "it is in English, and its source is not"
    if strange and not why:
        score, why = found or 0.0, f"only {found:.0%} of its words are common English ones"
    return Verdict("language", score, not why, why)


def copy_share(source: str, rewrite: str) -> float:
    """Share of the rewrite's words that lie in a run of at least six words that the source has too."""
    taken = taken_words(source, rewrite)
    return sum(taken) / max(len(taken), 1)


def taken_words(source: str, rewrite: str) -> list[bool]:
    """Of each word of the rewrite whether it lies in a run of at least RUN words that the source has too."""
    old, new = [word.lower() for word in words(source)], [word.lower() for word in words(rewrite)]
    return in_runs(old, new, min(RUN, max(len(new), 1)))


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


def scripts(text: str) -> dict[str, float]:
    """The share of each script among the letters that belong to a language: Greek ones are taken for signs."""
    counts = {name: len(pattern.findall(text)) for name, pattern in SCRIPTS.items()}
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count} if total else {}


def _english(text: str) -> float | None:
    """Share of the commonest English words, None for a text too short to tell."""
    found = [word.lower() for word in words(text) if word.isalpha()]
    return sum(word in lists()["capitals"] for word in found) / len(found) if len(found) >= COMMON else None


def _only_string(text: str) -> str:
    """The one string of a JSON object of a single field; the text itself where it is anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return encodable(only).strip()  # JSON can spell half a surrogate pair
    return text
