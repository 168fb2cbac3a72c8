"""The report as markdown, for a Prefect artifact and for terminals: the same blocks, the drawings as their captions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from model.visible import markdown as plain
from model.visible import visible
from tasks.report import blocks
from tasks.report.blocks import Block, Document, Spark, Table, Verbatim


def markdown(document: Document) -> str:
    """The whole document."""
    lines = [
        f"# {document.title}",
        "",
        _line(document.subtitle),
        "",
        _line(document.lead),
        "",
        *_block(document.headline),
    ]
    for section in document.sections:
        lines += ["", f"## {section.title}", ""]
        if section.waiting:
            lines.append(f"*Not run yet.* {section.waiting}")
            continue
        lines += [_line(section.summary), ""] if section.summary else []
        for block in section.blocks:
            lines += [*_block(block), ""]
    return "\n".join(lines).rstrip() + "\n"


def _block(block: Block) -> list[str]:
    match block:
        case blocks.Prose(text):
            return [_line(text)]
        case blocks.Headline(figures):
            return _block(Table(("#", "", ""), figures))
        case Table(columns, rows, caption):
            head = "| " + " | ".join(_cell(name.removeprefix("#")) for name in columns) + " |"
            rule = "|" + "|".join("--:" if name.startswith("#") else "---" for name in columns) + "|"
            body = ["| " + " | ".join(_cell(cell) for cell in _full(row, len(columns))) + " |" for row in rows]
            return [head, rule, *body, *(["", f"*{_line(caption)}*"] if caption else [])]
        case blocks.Chart(caption=caption, title=title, data=data):
            return _block(Table((title, ""), data, caption))
        case blocks.Charts(charts):
            return [line for chart in charts for line in (*_block(chart), "")]
        case blocks.Pair(titles, texts, note, _):
            quoted = [f"**{_cell(title)}**\n\n> {_quote(text)}" for title, text in zip(titles, texts, strict=True)]
            return ["\n\n".join(quoted), *(["", _line(note)] if note else [])]
        case blocks.Excerpt(title, pieces, note):
            whole = _quote("".join(piece for piece, _ in pieces))
            return [f"**{_cell(title)}**\n\n> {whole}", *(["", _line(note)] if note else [])]
        case blocks.Compared(titles=titles, halves=halves):
            return _judged(block, zip(titles, halves, strict=True))
        case blocks.Transcript(turns=turns):
            return _judged(block, ((turn.who, turn.tokens) for turn in turns))
        case blocks.Heat():
            return _block(block.table())
        case blocks.Code(text, caption):
            fence = "`" * (1 + max([2, *(len(run) for run in re.findall("`+", text))]))
            return [fence, visible(text), fence, *(["", _line(caption)] if caption else [])]
        case blocks.Graph(_, mermaid, caption):
            return ["```mermaid", mermaid, "```", "", _line(caption)]
        case blocks.Problem(text):
            return [f"**Not shown:** {_line(text)}"]
        case blocks.Fold(title, folded):
            inner = [line for block in folded for line in (*_block(block), "")]
            return [f"<details><summary>{_line(title)}</summary>", "", *inner, "</details>"]


def _judged(
    block: blocks.Compared | blocks.Transcript, texts: Iterable[tuple[str, Sequence[tuple[str, object]]]]
) -> list[str]:
    said = [
        f"{'✓' if score.passed else '✗'} {score.name} {score.score}"
        for score in block.scores
        if score.passed is not None
    ]
    quoted = [f"{_cell(title)}\n\n> {_quote(''.join(piece for piece, _ in pieces))}" for title, pieces in texts]
    head = f"**{_cell(block.title)}** {_cell(block.remark)}"
    return [head, "", "\n\n".join(quoted), "", _cell(", ".join(said)), *(["", _cell(block.note)] if block.note else [])]


def _full(row: Sequence[str | Spark], columns: int) -> list[str]:
    """The cells of a row as text; a heading's are in bold, and empty but for the first."""
    texts = ["".join(mark for mark, _ in cell.drawn(12)) if isinstance(cell, Spark) else cell for cell in row]
    return texts if len(texts) == columns else [f"**{texts[0]}**", *[""] * (columns - 1)]


def _cell(text: str) -> str:
    return _line(text) if isinstance(text, Verbatim) else _line(text).replace("|", "\\|")


def _line(text: str) -> str:
    """One line; of our own text its `code`, **strong** and links, and nothing else that a name within it may hold."""
    if isinstance(text, Verbatim):
        return plain(text)
    shown = re.sub(r"\]\((?!(?!//)#?[\w./-]+\))", r"]\\(", visible(text).replace("\n", " "))
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;") for part in re.split(r"(`[^`]+`)", shown)
    )


def _quote(text: str) -> str:
    return "\n> ".join(plain(line) for line in text.split("\n"))
