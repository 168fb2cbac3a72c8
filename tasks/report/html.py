"""The report as one HTML page that loads nothing: style inside, drawings inside, no script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

from tasks.report.blocks import (
    Block,
    Chart,
    Charts,
    Code,
    Document,
    Excerpt,
    Fold,
    Graph,
    Headline,
    Pair,
    Problem,
    Prose,
    Section,
    Table,
    Verbatim,
)


@cache
def style() -> str:
    """The page's style sheet."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page(document: Document) -> str:
    """The whole page."""
    body = "".join(_section(section) for section in document.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(document.title)}</title>\n<style>\n{style()}</style></head>\n<body>"
        f'<nav><p class="brand">openk2</p><ol>{_contents(document.sections)}</ol></nav>\n<main>'
        f'<header><h1>{escape(document.title)}</h1><p class="subtitle">{_text(document.subtitle)}</p>'
        f'<p class="lead">{_text(document.lead)}</p>{_headline(document.headline)}</header>\n'
        f"{body}</main></body></html>\n"
    )


def _contents(sections: Sequence[Section]) -> str:
    lines, group = [], ""
    for section in sections:
        if section.group != group:
            group = section.group
            lines.append(f'<li class="group">{escape(group)}</li>')
        kind = "waiting" if section.waiting else ""
        lines.append(f'<li class="{kind}"><a href="#{escape(section.key)}">{escape(section.title)}</a></li>')
    return "".join(lines)


def _section(section: Section) -> str:
    head = f'<section id="{escape(section.key)}"><h2>{escape(section.title)}</h2>'
    if section.waiting:
        return f'{head}<p class="waiting">Not run yet. {_text(section.waiting)}</p></section>\n'
    summary = f'<p class="summary">{_text(section.summary)}</p>' if section.summary else ""
    return f"{head}{summary}{''.join(_block(block) for block in section.blocks)}</section>\n"


def _block(block: Block) -> str:
    match block:
        case Prose(text):
            return f"<p>{_text(text)}</p>"
        case Headline():
            return _headline(block)
        case Table():
            return _table(block)
        case Chart():
            return _chart(block)
        case Charts(charts):
            return f'<div class="charts">{"".join(_chart(chart) for chart in charts)}</div>'
        case Pair():
            return _pair(block)
        case Excerpt(title, pieces, note):
            text = "".join(f"<mark>{escape(piece)}</mark>" if marked else escape(piece) for piece, marked in pieces)
            under = f"<figcaption>{_text(note)}</figcaption>" if note else ""
            return f'<figure class="excerpt"><h4>{_text(title)}</h4><blockquote>{text}</blockquote>{under}</figure>'
        case Code(text, caption):
            under = f"<figcaption>{_text(caption)}</figcaption>" if caption else ""
            return f'<figure class="code"><pre>{escape(text)}</pre>{under}</figure>'
        case Graph(svg, _, caption):
            return f'<figure class="graph">{svg}<figcaption>{_text(caption)}</figcaption></figure>'
        case Problem(text):
            return f'<p class="problem"><strong>Not shown:</strong> {_text(text)}</p>'
        case Fold(title, blocks):
            inner = "".join(_block(inner) for inner in blocks)
            return f"<details><summary>{_text(title)}</summary>{inner}</details>"


def _headline(block: Headline) -> str:
    cards = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(number)}</dd><dd class='remark'>{_text(remark)}</dd></div>"
        for number, what, remark in block.figures
    )
    return f'<dl class="headline">{cards}</dl>'


def _table(table: Table) -> str:
    kinds = ["n" if name.startswith("#") else "t" for name in table.columns]
    head = "".join(
        f'<th class="{kind}">{_text(name.removeprefix("#"))}</th>'
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    caption = f"<figcaption>{_text(table.caption)}</figcaption>" if table.caption else ""
    return f'<figure class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{caption}</figure>'


def _cell(text: str, kind: str) -> str:
    mark = {"✓": " good", "✗": " bad"}.get(text[:1], "")
    return f'<td class="{kind}{mark}">{_text(text)}</td>'


def _chart(chart: Chart) -> str:
    title = f"<h3>{escape(chart.title)}</h3>" if chart.title else ""
    return f'<figure class="chart">{title}{chart.svg}<figcaption>{_text(chart.caption)}</figcaption></figure>'


def _pair(pair: Pair) -> str:
    mark = "" if pair.good is None else (" good" if pair.good else " bad")
    halves = "".join(
        f"<div><h4>{_text(title)}</h4><blockquote>{escape(text)}</blockquote></div>"
        for title, text in zip(pair.titles, pair.texts, strict=True)
    )
    note = f"<figcaption>{_text(pair.note)}</figcaption>" if pair.note else ""
    return f'<figure class="pair{mark}"><div class="halves">{halves}</div>{note}</figure>'


def _text(text: str) -> str:
    """Escaped, with `code`, **strong** and [links](address) set."""
    if isinstance(text, Verbatim):
        return escape(text, quote=False)
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    marked = re.sub(r"\[([^\]]+)\]\((#?[\w./-]+)\)", r'<a href="\2">\1</a>', marked)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
