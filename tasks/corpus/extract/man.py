"""Manual pages: man(7) and mdoc(7) macros to Markdown-like text, lines filled into paragraphs as troff would."""

from __future__ import annotations

import re

from tasks.corpus.extract.passage import Passage
from tasks.corpus.wordlist import words

_FONT = re.compile(r"\\f(?:\[[^\]]{0,60}\]|\(..|.)|\\[,/&|^!:%]|\\s[+-]?\d+|\\m\[[^\]]{0,60}\]")
_NAMED = {
    "aq": "'", "dq": '"', "lq": "“", "rq": "”", "oq": "‘", "cq": "’", "em": "—", "en": "–", "bu": "•", "co": "©",
    "rs": "\\", "ha": "^", "ti": "~", "ga": "`", "pl": "+", "mi": "-", "eq": "=", "ge": ">=", "le": "<=", "->": "->",
    "Aq": "'",
}  # fmt: skip
_ESCAPE = re.compile(r"\\(?:\((..)|\[([^\]]{1,60})\]|\*\((..)|\*\[([^\]]{1,60})\]|(.))")
_ALTERNATING = {"BR", "BI", "IR", "IB", "RB", "RI"}
# Requests whose arguments are text to show, of man(7) and mdoc(7).
_SHOWN = words("B I SB SM Nm Ar Fl Cm Op Pa Xr Dv Ev Er Em Sy Li Ql Dq Sq Pq Va Vt Ft Fn Fa In Nd Ic No Ad Ns")
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|(\S+)')
_HAN_GAP = re.compile(r"(?<=[\u3001-\u303f\u4e00-\u9fff\uff00-\uffef])\n(?=[\u3001-\u303f\u4e00-\u9fff\uff00-\uffef])")


def extract(text: str) -> list[Passage]:
    """The page as one passage; its name and section are the title."""
    page = _Page()
    for line in text.splitlines():
        page.read(line)
    return page.passage()


class _Page:
    def __init__(self) -> None:
        self.title = ""
        self.blocks: list[str] = []
        self.filled: list[str] = []
        self.verbatim: list[str] | None = None
        self.tag = False

    def passage(self) -> list[Passage]:
        self.end_verbatim()
        body = "\n\n".join(self.blocks)
        return [Passage(f"# {self.title}\n\n{body}" if self.title else body, self.title)] if body else []

    def read(self, line: str) -> None:
        if not line.startswith((".", "'")):
            self.say(_shown(line))
            return
        request, _, rest = line[1:].strip().partition(" ")
        if request.startswith("\\"):
            return  # a comment
        arguments = [_shown(quoted or bare) for quoted, bare in _ARGUMENT.findall(rest)]
        if request in ("TH", "Dt") and arguments:
            self.title = f"{arguments[0]}({arguments[1]})" if len(arguments) > 1 else arguments[0]
        elif request in ("SH", "Sh", "SS", "Ss"):
            self.end_verbatim()
            self.blocks.append(f"{'##' if request in ('SH', 'Sh') else '###'} {' '.join(arguments)}")
        elif request in ("nf", "EX") or (request == "Bd" and "-literal" in arguments):
            self.end_paragraph()
            self.verbatim = self.verbatim or []
        elif request in ("fi", "EE", "Ed"):
            self.end_verbatim()
        elif request in ("PP", "P", "LP", "Pp", "sp", "HP", "br", "RS", "RE", "It", "IP", "TP"):
            self.break_line(request, arguments)
        elif request in _ALTERNATING:
            self.say("".join(arguments))
        elif request in _SHOWN:
            self.say(" ".join(arguments))

    def say(self, text: str) -> None:
        if self.verbatim is not None:
            self.verbatim.append(text.rstrip())
        elif not text.strip():
            self.end_paragraph()
        elif self.tag:
            self.tag = False
            self.blocks.append(f"- {text.strip()}")
        else:
            self.filled.append(text.strip())

    def break_line(self, request: str, arguments: list[str]) -> None:
        if self.verbatim is not None:
            self.verbatim.append("")
            return
        self.end_paragraph()
        self.tag = request == "TP"
        label = " ".join(arguments if request == "It" else arguments[:1])
        if request in ("IP", "It") and label:
            self.blocks.append(f"- {label}")

    def end_paragraph(self) -> None:
        if self.filled:
            # Chinese has no space where a line ends.
            self.blocks.append(_HAN_GAP.sub("", "\n".join(self.filled)).replace("\n", " "))
            self.filled = []

    def end_verbatim(self) -> None:
        self.end_paragraph()
        held, self.verbatim = self.verbatim, None
        code = "\n".join(held or []).strip("\n")
        if code:
            self.blocks.append(f"```\n{code}\n```")


def _shown(text: str) -> str:
    """`text` with fonts dropped and named characters in Unicode."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, _FONT.sub("", text))


def _character(found: re.Match[str]) -> str:
    name = found.group(1) or found.group(2) or found.group(3) or found.group(4)
    if name:
        if re.fullmatch(r"u[0-9A-Fa-f]{4,6}", name) and int(name[1:], 16) < 0x110000:
            return chr(int(name[1:], 16))
        return _NAMED.get(name, "")
    return {"e": "\\", "0": " ", "c": "", "t": "\t", "~": " "}.get(found.group(5), found.group(5))
