"""Learning notes: what of a page is navigation and may go, and whether a worked solution's answer still stands."""

from __future__ import annotations

import re
from functools import cache

from tasks.rephrase.alignment.formulas import TextFormulas, inside
from tasks.rephrase.alignment.pair import FORMULA, Pair, Verdict, patterns
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_with
from training.rl.environments.final import boxed

MARKED = re.compile(
    r"(?:^|(?<=[\s*_(。，；]))(?:(?:final )?answer|result|答案|答|最终答案)[*_]{0,3}\s*(?:is|[:：=])\s*[*_]{0,3}\s*"
    r"([^\n]{1,120})",
    re.I | re.M,
)
WORKED = re.compile(
    r"\b(?:solution|worked example|therefore|hence|thus|so that|we (?:get|obtain|find|conclude)|it follows)\b"
    r"|解[:：]|因此|所以|故|得到|∴",
    re.I,
)


@cache
def _boilerplate() -> re.Pattern[str]:
    """A line that is navigation, and no sentence."""
    return re.compile(
        rf"\s*(?:[-*•|»›<>\[(]\s*)*(?:{patterns('boilerplate').pattern})"
        r"\s*(?:[|»›>/·•\])-][^\n|»›>/·•\])\-.。]{0,40})*[.:：。]?\s*",
        re.I,
    )


def essential(text: str) -> str:
    """`text` without lines of navigation and boilerplate; all of it where nothing else would be left."""
    kept = [line for line in text.split("\n") if not line.strip() or not _boilerplate().fullmatch(line[:400])]
    left = "\n".join(kept)
    return left if left.strip() else text


def answer(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The final answer of a worked solution stands in the note: what is boxed, what follows "Answer:", or the last
    formula after a conclusion's word. A boxed answer of the note's own must be one of the source."""
    wanted = final_answer(pair.source) if pair.notes else ""
    own = boxed(pair.rewrite) if pair.notes else None
    why, sentences = "", ("", "")
    if wanted and not _stands(wanted, pair.rewrite):
        why = f"the final answer '{wanted[:60]}' is missing"
        sentences = sentence_with(pair.source, wanted), ""
    elif own and not _stands(own, pair.source):
        why, sentences = (
            f"its final answer '{own[:60]}' is none of the source's",
            ("", sentence_with(pair.rewrite, own)),
        )
    return Verdict("answer", float(not why), not why, why, *sentences)


def final_answer(text: str) -> str:
    """The answer that a worked solution ends with, or nothing where the text has none."""
    if inner := boxed(text):
        return inner
    if marked := MARKED.findall(text):
        formula = FORMULA.search(marked[-1])
        return inside(formula) if formula else re.split(r"[;；。]|\.(?:\s|$)|,\s", marked[-1])[0].strip(" .*_")
    concluding = [match.end() for match in WORKED.finditer(text)]
    last = [match for match in FORMULA.finditer(text) if concluding and match.start() >= concluding[-1]]
    if not last:
        return ""
    chain = inside(last[-1])  # of equations its end: the note may write the beginning another way
    return chain if "&" in chain else re.split(r"(?<![<>!\\])=", chain)[-1]


def _stands(answer: str, text: str) -> bool:
    """Whether the text has this answer, a formula in whatever notation."""
    return answer.lower().strip() in text.lower() or TextFormulas(text).holds(answer)
