"""The final answer of a reply that may reason before it."""

from __future__ import annotations

import re

MARKER = re.compile(r"(?:final answer|answer|答案)\s*(?:(?:is|是|为)\s*)?[:：]", re.IGNORECASE)


def final(text: str) -> str:
    """What stands in the last \\boxed{...}, else behind the last "Answer:" of its line, else in the last line."""
    if (inner := boxed(text)) is not None:
        return inner.strip().removesuffix(".")
    marks = list(MARKER.finditer(text))
    rest = text[marks[-1].end() :] if marks else text
    lines = [inner for line in rest.splitlines() if (inner := bare(line))]
    if not lines:
        return ""
    said = lines[0] if marks else lines[-1]
    return bare(said.removesuffix(".").removesuffix("。"))


def affirms(text: str) -> bool:
    """Whether the answer to a question begins with yes, in bold perhaps."""
    return re.match(r"\W*yes\b", text, re.IGNORECASE) is not None


def bare(text: str) -> str:
    """Without what stands around an answer in Markdown and LaTeX: headings, code, formulas, bold that may begin
    earlier."""
    before = None
    while text != before:
        before, text = text, re.sub(r"^#+\s", "", text.strip()).strip("*$`")
        for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
            text = text.removeprefix(opening).removesuffix(closing)
    return text


def boxed(text: str) -> str | None:
    """What stands in the last \\boxed{...}, braces matched."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, first = 1, start + len("\\boxed{")
    for place in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[first:place]
    return None
