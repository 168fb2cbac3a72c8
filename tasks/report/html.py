"""The report as one HTML page that loads nothing: style inside, drawings inside, no script, and none would run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from model.visible import escape
from tasks.report import charts
from tasks.report.blocks import (
    Block,
    Chart,
    Charts,
    Code,
    Compared,
    Document,
    Excerpt,
    Filters,
    Fold,
    Graph,
    Headline,
    Heat,
    Pair,
    Problem,
    Prose,
    Score,
    Section,
    Spark,
    Table,
    Transcript,
    Turn,
    Verbatim,
    surprise,
)


@cache
def style(*names: str) -> str:
    """Style sheets: `charts` has the colours and what drawings need, `page` the rest of a page."""
    return "".join(Path(__file__).with_name(f"{name}.css").read_text(encoding="utf-8") for name in names)


def drawing(svg: str) -> str:
    """A chart (`tasks/report/charts.py`) as an SVG file of its own, on the page's ground and in its colours."""
    root = '<svg xmlns="http://www.w3.org/2000/svg" '
    sheet = f"<style>\n{style('charts')}svg {{ background: var(--page); }}\n</style>"
    head, _, rest = svg.replace("<svg ", root, 1).partition(">")
    return f"{head}>{sheet}{rest}\n"


def page(document: Document) -> str:
    """The whole page."""
    body = [_section(section) for section in document.sections]
    if document.filters:
        body.insert(1, _filters(document.filters))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # what a document or a model wrote could do nothing even where it were taken for markup
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(document.title)}</title>\n<style>\n{style('charts', 'page')}</style></head>\n<body>"
        f'<nav><p class="brand">openk2</p><ol>{_contents(document.sections)}</ol></nav>\n<main>'
        f'<header><h1>{escape(document.title)}</h1><p class="subtitle">{_text(document.subtitle)}</p>'
        f'<p class="lead">{_text(document.lead)}</p>{_headline(document.headline)}</header>\n'
        f"{''.join(body)}</main></body></html>\n"
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
        case Charts(several):
            return f'<div class="charts">{"".join(map(_chart, several))}</div>'
        case Pair():
            return _pair(block)
        case Excerpt(title, pieces, note):
            text = "".join(f"<mark>{escape(piece)}</mark>" if marked else escape(piece) for piece, marked in pieces)
            under = f"<figcaption>{_text(note)}</figcaption>" if note else ""
            return f'<figure class="excerpt"><h4>{_text(title)}</h4><blockquote>{text}</blockquote>{under}</figure>'
        case Compared():
            return _compared(block)
        case Transcript():
            return _transcript(block)
        case Heat():
            return _heat(block)
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
    rows = "".join(_row(row, kinds) for row in table.rows)
    caption = f"<figcaption>{_text(table.caption)}</figcaption>" if table.caption else ""
    return f'<figure class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{caption}</figure>'


def _row(row: Sequence[str | Spark], kinds: Sequence[str]) -> str:
    if len(row) == 1 < len(kinds):
        return f'<tr class="heading"><th colspan="{len(kinds)}">{_text(str(row[0]))}</th></tr>'
    return f"<tr>{''.join(_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True))}</tr>"


def _cell(text: str | Spark, kind: str) -> str:
    if isinstance(text, Spark):
        return f'<td class="spark">{charts.spark(text)}</td>'
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


MARKS = ("copied", "lost", "new", "weighty")


def _compared(block: Compared) -> str:
    halves = "".join(
        f"<div><h4>{_text(title)}</h4><blockquote>{''.join(map(_piece, pieces))}</blockquote></div>"
        for title, pieces in zip(block.titles, block.halves, strict=True)
    )
    return _judged(block, f'<div class="halves">{halves}</div>')


def _transcript(block: Transcript) -> str:
    return _judged(block, "".join(map(_turn, block.turns)))


def _judged(block: Compared | Transcript, inner: str) -> str:
    """`inner` with the verdicts on it, behind a line that opens it."""
    tags = "".join(f' data-{_word(key)}="{escape(value)}"' for key, value in block.tags)
    mark = "" if block.good is None else (" good" if block.good else " bad")
    scores = "".join(map(_score, block.scores))
    note = f'<p class="trace">{_text(block.note)}</p>' if block.note else ""
    return (
        f'<details class="compared{mark}"{tags}{" open" if block.open else ""}><summary><b>{_text(block.title)}</b> '
        f'<span>{_text(block.remark)}</span></summary>{inner}<ul class="scores">{scores}</ul>{note}</details>'
    )


def _turn(turn: Turn) -> str:
    """Neighbours that nobody drew are one run of text."""
    spans = "".join(
        f'<span class="p{surprise(probability)}" title="{probability:.3g}">{escape(text)}</span>'
        if probability is not None
        else escape(text)
        for text, probability in turn.tokens
    )
    drawn = " drawn" if any(probability is not None for _, probability in turn.tokens) else ""
    return f'<div class="turn{drawn}"><h4>{_text(turn.who)}</h4><blockquote>{spans}</blockquote></div>'


def _piece(piece: tuple[str, str]) -> str:
    text, marks = piece
    kinds = [mark for mark in marks.split() if mark in MARKS]
    if not kinds:
        return escape(text)
    name = "del" if "lost" in kinds else "ins" if "new" in kinds else "span"
    return f'<{name} class="{" ".join(kinds)}">{escape(text)}</{name}>'


def _score(score: Score) -> str:
    kind, sign = {True: ("good", "✓"), False: ("bad", "✗"), None: ("ahead", "")}[score.passed]
    said = f" <b>{escape(score.score)}</b>" if score.score else ""
    limit = f" <i>{escape(score.threshold)}</i>" if score.threshold else ""
    return f'<li class="{kind}">{sign} {escape(score.name)}{said}{limit}</li>'


def _filters(block: Filters) -> str:
    """Select boxes, and a rule for each value that hides what has another: no script."""
    boxes, rules = [], []
    for choice in block.choices:
        key = _word(choice.key)
        options = "".join(f'<option value="{at}">{escape(value)}</option>' for at, value in enumerate(choice.values))
        boxes.append(
            f'<label>{escape(choice.label)} <select id="f-{key}"><option>all</option>{options}</select></label>'
        )
        rules += [
            f'main:has(#f-{key} option[value="{at}"]:checked) .compared:not([data-{key}="{_css(value)}"])'
            for at, value in enumerate(choice.values)
        ]
    style = f"<style>{','.join(rules)}{{display:none}}</style>" if rules else ""
    return (
        f'{style}<form class="filters" autocomplete="off">{"".join(boxes)}<button type="reset">show all</button></form>'
    )


def _heat(block: Heat) -> str:
    head = "".join(f'<th class="n">{_text(name)}</th>' for name in block.columns)
    rows = []
    for name, cells in block.rows:
        inner = "".join(
            f'<td class="n" style="--share:{100 * min(max(cell[0], 0.0), 1.0):.1f}%">{_text(cell[1])}</td>'
            if cell
            else '<td class="n none">–</td>'
            for cell in cells
        )
        rows.append(f'<tr><td class="t">{_text(name)}</td>{inner}</tr>')
    caption = f"<figcaption>{_text(block.caption)}</figcaption>" if block.caption else ""
    return (
        f'<figure class="table heat"><table><thead><tr><th class="t">{_text(block.corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{caption}</figure>"
    )


def _word(text: str) -> str:
    """A tag's key: letters and digits alone."""
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def _css(text: str) -> str:
    """`text` within the quotes of a style sheet's string; every character that could end it as its number."""
    return re.sub(r"[^\w .-]", lambda match: f"\\{ord(match.group()):x} ", text)


def _text(text: str) -> str:
    """Escaped, with `code`, **strong** and [links](address) set."""
    if isinstance(text, Verbatim):
        return escape(text, quote=False)
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    marked = re.sub(r"\[([^\]]+)\]\((#?[\w./-]+)\)", r'<a href="\2">\1</a>', marked)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
