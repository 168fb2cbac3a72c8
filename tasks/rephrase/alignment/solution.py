"""Learning notes: what of a page is navigation and may go, and whether a worked solution's answer still stands."""

from __future__ import annotations

import re

from tasks.rephrase.alignment.pair import FORMULA, Pair, Verdict
from tasks.rephrase.config import AlignmentConfig

BOILERPLATE = re.compile(
    r"\s*(?:[-*•|»›<>\[(]\s*)*(?:home|menu|search|login|log[ -]?in|log[ -]?out|sign[ -]?(?:up|in)|register|subscribe"
    r"|(?:next|previous|prev)(?: (?:page|post|lesson|chapter|question|topic|section))?|back to (?:top|\w+)"
    r"|table of contents|skip to (?:main )?content|share(?: (?:this|on|via)\b.{0,60})?|tweet|print(?: this page)?"
    r"|advertisement|sponsored|(?:related|recent|popular) (?:posts|articles|questions|topics)"
    r"|leave a (?:comment|reply)|\d+ (?:comments?|views|likes)|posted (?:by|on|in)\b.{0,80}|copyright\b.{0,120}"
    r"|©.{0,120}|all rights reserved.{0,60}|privacy policy|terms of (?:use|service)|cookies?(?: (?:policy|settings))?"
    r"|(?:we|this (?:site|website)) uses? cookies.{0,120}|page \d+(?: (?:of|/) \d+)?|click here\b.{0,80}"
    r"|follow us\b.{0,60}|contact us|about us|faqs?|download (?:pdf|this|as)\b.{0,60}|read more\b.{0,40}"
    r"|首页|上一[页篇章]|下一[页篇章]|登录|注册|分享(?:到.{0,20})?|版权所有.{0,60}|相关(?:文章|推荐|阅读)|目录"
    r"|返回(?:顶部|首页)|点击.{0,20}|发表评论|阅读(?:全文|更多))\s*(?:[|»›>/·•\])-][^\n|»›>/·•\])\-.。]{0,40})*[.:：。]?\s*",
    re.I,
)
"""A line that is navigation, and no sentence."""

BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
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
SAME = [
    (re.compile(r"\\(?:left|right|[bB]ig[lr]?|displaystyle|textstyle|quad|qquad|limits)(?![A-Za-z])|\\[,;!: ]"), ""),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\(?:text|mathrm|mathbf|boxed|fbox|textbf)\s*(?=\{)"), ""),
    (re.compile(r"\\[()\[\]]|[\s${}*_~]"), ""),
]
"""Ways to write the same formula, and what they become."""


def essential(text: str) -> str:
    """`text` without lines of navigation and boilerplate; all of it where nothing else would be left."""
    kept = [line for line in text.split("\n") if not line.strip() or not BOILERPLATE.fullmatch(line[:400])]
    left = "\n".join(kept)
    return left if left.strip() else text


def answer(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The final answer of a worked solution stands in the note: what is boxed, what follows "Answer:", or the last
    formula after a conclusion's word. A boxed answer of the note's own must be one of the source."""
    if not pair.notes:
        return Verdict("answer", 1.0, True)
    wanted = final_answer(pair.source)
    said, known = _bare(pair.rewrite), _bare(pair.source)
    if wanted and _bare(wanted) not in said:
        return Verdict("answer", 0.0, False, f"the final answer '{wanted[:60]}' is missing")
    for own in _boxes(pair.rewrite):
        if _bare(own) not in known:
            return Verdict("answer", 0.0, False, f"its final answer '{own[:60]}' is none of the source's")
    return Verdict("answer", 1.0, True)


def final_answer(text: str) -> str:
    """The answer that a worked solution ends with, or nothing where the text has none."""
    if boxes := _boxes(text):
        return boxes[-1]
    if marked := MARKED.findall(text):
        return _value(marked[-1])
    concluding = [match.end() for match in WORKED.finditer(text)]
    if not concluding:
        return ""
    last = [match for match in FORMULA.finditer(text) if match.start() >= concluding[-1]]
    return _right_side(next(group for group in last[-1].groups() if group is not None)) if last else ""


def _boxes(text: str) -> list[str]:
    """What stands in `\\boxed{...}`, braces inside counted."""
    found = []
    for match in BOXED.finditer(text):
        depth, place = 1, match.end()
        while place < len(text) and depth and place - match.end() < 500:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        if not depth:
            found.append(text[match.end() : place - 1])
    return found


def _value(marked: str) -> str:
    """The formula of an answer in words, else its first clause."""
    formula = FORMULA.search(marked)
    if formula:
        return next(group for group in formula.groups() if group is not None)
    return re.split(r"[;；。]|\.(?:\s|$)|,\s", marked.strip())[0].strip(" .*_")


def _right_side(formula: str) -> str:
    """Of a chain of equations its end: the note may write the beginning another way."""
    return re.split(r"(?<![<>!\\])=", formula)[-1] if "&" not in formula else formula


def _bare(text: str) -> str:
    for pattern, instead in SAME:
        text = pattern.sub(instead, text)
    return text.lower().rstrip(".")
