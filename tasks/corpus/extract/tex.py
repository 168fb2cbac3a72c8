"""TeX and LaTeX sources: prose as Markdown-like text, formulas as they were written."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from tasks.corpus.extract.passage import Passage

# Comments and blank lines may stand before \\documentclass; plain TeX that only speaks of it is no LaTeX.
_PREAMBLE = re.compile(
    r"(?:[^\S\n]*(?:%[^\n]*)?\n)*[^\S\n]*\\documentclass.*?^[^\S\n]*\\begin\{document\}", re.DOTALL | re.MULTILINE
)
_END = re.compile(r"^[^\S\n]*\\end\{document\}", re.MULTILINE)
# What follows is not escaped: `\$` and `\%` are characters, the `[` of `\\[2pt]` is that of a line break's space.
_PLAIN = r"(?<!(?<!\\)\\)"
_BREAK = re.compile(r"\\\\\*?(?:\[[^\[\]\n]{0,40}\])?")
_COMMENT = re.compile(rf"{_PLAIN}%.*?$\n?", re.MULTILINE)
# Verbatim: LaTeX's environments and the \bprog ... @eprog of GP's manual.
_VERBATIM = re.compile(r"\\begin\{(verbatim|lstlisting|Verbatim|alltt)\*?\}(?:\[[^\]\n]{0,500}\])?\n?|\\bprog\w*\*?\n?")
_HEADING = re.compile(r"\\(part|chapter|section|subsection|subsubsection|paragraph|subsec|subsubsec)\*?\s*\{")
_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsec": 3}
_DROPPED = re.compile(
    r"\\(?:label|index|sidx|kbdsidx|tetsidx|synidx|sectype|varsidx|(?:page|eq|auto|[cC])?ref|cite[a-zA-Z]*|href|textcolor|input|include|usepackage|"
    r"bibliography|bibliographystyle|pagestyle|vspace|hspace|def\\\w+|newcommand|let|advance|vskip|hskip|"
    r"includegraphics)(?![A-Za-z@])\*?(?:\[[^\]]{0,500}\]){0,2}(?:\{[^{}]*\})?"
)
_ENVIRONMENT = re.compile(
    r"\\(?:begin|end)\{(?:(?:tabular|thebibliography)\}(?:\{[^{}]{0,200}\})?|[A-Za-z]{1,40}\*?\}(?:\[[^\]]{0,500}\])?)"
)
_FONT = re.compile(
    r"\\(?:emph|textbf|textit|texttt|textrm|textsf|text|mbox|kbd|var|idx|typ|tet|teb|fl|b|bf|it|tt|sl|url|footnote|ref|link|key|"
    r"code|file|command|title|author|hbox)\s*\{([^{}]*)\}"
)
# A C prototype in GP's manual: \fun{type}{name}{arguments}.
_PROTOTYPE = re.compile(r"\\fun\s*\{([^{}]*)\}\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_OLD_FONT = re.compile(r"\{\\(?:it|bf|tt|em|sl|rm|sc)\s++([^{}]*+)\}")
_FORMULA = re.compile(rf"{_PLAIN}(?:\$\$?|\\\[|\\\(|\\begin\{{(equation|align|gather|eqnarray|multline)\*?\}})")
_CLOSING = {
    "$$": rf"{_PLAIN}\$\$",
    "$": rf"{_PLAIN}\$",
    "\\[": rf"{_PLAIN}\\\]",
    "\\(": rf"{_PLAIN}\\\)",
}
# `\'e`, `\'{e}` and `\"{\i}`; an accent that is a letter has its braces.
_ACCENT = re.compile(r"(?<!\\)\\(?:([`'^\"~.])(?:([A-Za-z])|\{\\?([A-Za-z])\})|([uvHckr])\{\\?([A-Za-z])\})")
_COMBINING = dict(
    zip(
        "`'^\"~.uvHckr",
        map(chr, (0x300, 0x301, 0x302, 0x308, 0x303, 0x307, 0x306, 0x30C, 0x30B, 0x327, 0x328, 0x30A)),
        strict=True,
    )
)
_ITEM = re.compile(r"^[^\S\n]*\\(?:item|misctitle|bu)\b\s*", re.MULTILINE)
_WORDS = {
    "dots": "...", "ldots": "...", "TeX": "TeX", "LaTeX": "LaTeX", "copyright": "©", "quad": " ", "qquad": " ",
    "S": "§", "smallskip": "", "medskip": "\n", "bigskip": "\n", "par": "\n\n", "noindent": "", "ss": "ß",
    "aa": "å", "AA": "Å", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł",
}  # fmt: skip
_MACRO = re.compile(r"\\([A-Za-z@]+)\*?[ ]?")
_MARK = "\x1a"


def extract(text: str) -> list[Passage]:
    """The document as one passage; LaTeX's preamble is dropped, and what stands after the document's end."""
    begun = _PREAMBLE.match(text)
    kept: list[str] = []

    def keep(shown: str) -> str:
        kept.append(shown)
        return f"{_MARK}{len(kept) - 1}{_MARK}"

    body = text[begun.end() :] if begun else text
    body = body.replace(_MARK, "")
    body = _paired(body, _VERBATIM, _verbatim_end, lambda _, code: _fenced(code, keep))
    body = _COMMENT.sub("", body)
    if begun and (end := _END.search(body)):
        body = body[: end.start()]
    body = _paired(body, _FORMULA, _formula_end, lambda whole, _: keep(whole))
    body = _PROTOTYPE.sub(lambda found: keep(f"`{found.group(1)} {found.group(2)}({found.group(3)})`"), _headings(body))
    body = _ENVIRONMENT.sub("", _DROPPED.sub("", _ACCENT.sub(_accented, body)))
    for _ in range(4):  # fonts nest
        body, changed = _FONT.subn(r"\1", _OLD_FONT.sub(r"\1", body))
        if not changed:
            break
    body = _ITEM.sub("- ", body)
    body = _BREAK.sub("\n", body)
    body = re.sub(r"\\([{}$%&#_ ])", r"\1", body).replace("~", " ").replace("``", "“").replace("''", "”")
    body = re.sub(r"\\[,;]", " ", body)
    body = _MACRO.sub(lambda found: _WORDS.get(found.group(1), ""), body)
    body = re.sub(r"[{}]", "", body)
    body = re.sub(rf"{_MARK}(\d+){_MARK}", lambda found: kept[int(found.group(1))], body)
    body = re.sub(r"(?<![ \t])[ \t]+\n", "\n", body)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    title = next((line.lstrip("# ") for line in body.splitlines() if line.startswith("#")), "")
    return [Passage(body, title)] if body else []


def _accented(found: re.Match[str]) -> str:
    letter = found[2] or found[3] or found[5]
    return unicodedata.normalize("NFC", letter + _COMBINING[found[1] or found[4]])


def _paired(
    text: str,
    opening: re.Pattern[str],
    closing: Callable[[re.Match[str]], str],
    replacement: Callable[[str, str], str],
) -> str:
    """`text` with replacement(whole, inside) for whatever stands between `opening` and the nearest closing(opening), a
    pattern. One pass: a closing that is missing is looked for once and not at every opening."""
    out: list[str] = []
    missing: set[str] = set()
    at = 0
    while found := opening.search(text, at):
        end = closing(found)
        closed = None if end in missing else re.compile(end).search(text, found.end())
        if closed is None:
            missing.add(end)
            out.append(text[at : found.end()])
            at = found.end()
        else:
            whole, inside = text[found.start() : closed.end()], text[found.end() : closed.start()]
            out += [text[at : found.start()], replacement(whole, inside)]
            at = closed.end()
    return "".join([*out, text[at:]])


def _verbatim_end(opening: re.Match[str]) -> str:
    return rf"\\end\{{{opening.group(1)}\*?\}}" if opening.group(1) else r"[@\\]eprog\w*(?:\\noindent)?"


def _formula_end(opening: re.Match[str]) -> str:
    return _CLOSING.get(opening.group()) or rf"\\end\{{{opening.group(1)}\*?\}}"


def _fenced(code: str, keep) -> str:
    code = code.strip("\n").rstrip()
    return "\n\n" + keep(f"```\n{code}\n```") + "\n\n" if code else "\n"


def _headings(text: str) -> str:
    """Section commands as `#` lines; their argument may hold braces."""
    out: list[str] = []
    at = 0
    while found := _HEADING.search(text, at):
        depth, end = 1, found.end()
        while end < len(text) and depth and end - found.end() < 400:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        argument = " ".join(text[found.end() : end - 1].split())
        out += [text[at : found.start()], f"\n\n{'#' * _LEVELS.get(found.group(1), 4)} {argument}\n\n"]
        at = end
    return "".join([*out, text[at:]])
