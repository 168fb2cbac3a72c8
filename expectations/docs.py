"""Data Docs that open from disk without a network: an index in plain words, and Great Expectations' own pages made
offline (what they load from elsewhere is taken out, one style sheet of ours is put in)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lxml import html as lxml_html

from expectations.rules import Table, say
from expectations.suite import Judgement
from model.visible import escape

MOST = 200  # rows of metrics on a page


@cache
def style() -> str:
    """Our style sheet; it also draws the few classes of Bootstrap and Font Awesome that the pages use."""
    return Path(__file__).with_name("docs.css").read_text(encoding="utf-8")


def offline(page: str, table: Table, index: str = "") -> str:
    """A page rendered by Great Expectations without its scripts, remote assets, logo, run times and random ids; the
    metrics that were judged are added at its end. `index` is the address of the index, where there is one."""
    tree = lxml_html.document_fromstring(page)
    for element in tree.xpath("//script | //link | //style | //footer | //nav[contains(@class,'navbar-expand-md')]"):
        element.drop_tree()
    # The filter buttons need scripts; the folded block holds run times and random ids and nothing about the data.
    for element in tree.xpath("//div[contains(@id,'collapse-body')] | //a[@data-toggle='collapse']"):
        element.drop_tree()
    for element in tree.xpath("//div[contains(concat(' ',@class,' '),' card ')][.//strong[text()='Actions']]"):
        element.drop_tree()
    for element in tree.xpath("//*[@src or @href]"):
        for name in ("src", "href"):
            if not element.get(name, "#").startswith("#"):
                del element.attrib[name]
    head = tree.find("head")
    for title in head.findall("title"):
        head.remove(title)
    head.append(lxml_html.fragment_fromstring(f"<title>{escape(table.name)}: {escape(table.title)}</title>"))
    style_element = lxml_html.fragment_fromstring("<style></style>")
    style_element.text = style()
    head.append(style_element)
    body = tree.find("body")
    back = f'<p class="back"><a href="{escape(index)}">All expectations of this gate</a></p>' if index else ""
    body.insert(0, lxml_html.fragment_fromstring(f"<header>{back}<h1>{escape(table.title.capitalize())}</h1></header>"))
    metrics = f'<section class="metrics"><h2>The metrics that were judged</h2>{metrics_table(table)}</section>'
    body.append(lxml_html.fragment_fromstring(metrics))
    text = lxml_html.tostring(tree, encoding="unicode", doctype="<!DOCTYPE html>")
    return re.sub(r"[ \t]*\n\s*\n+", "\n", text) + "\n"


def metrics_table(table: Table) -> str:
    """The table's frame as HTML, numbers aligned, its first MOST rows."""
    columns = [name for name, kind in table.frame.schema.items() if not kind.is_nested()]
    units: dict[str, Any] = {rule.column: rule.unit for rule in table.rules}
    units.setdefault("bytes", "bytes")
    units["floor"] = units.get("share", "")
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    rows = []
    for record in table.frame.select(columns).head(MOST).iter_rows(named=True):
        cells = [
            _cell(say(value, units.get(name, "")), "text" if isinstance(value, str) else "number")
            for name, value in record.items()
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    more = f"<p>{table.frame.height - MOST:,} more rows.</p>" if table.frame.height > MOST else ""
    return f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>{more}'


def index_page(
    gate: str, subject: str, judgements: Sequence[Judgement], tables: Sequence[Table], links: Mapping[str, str]
) -> str:
    """The page a person opens first: what failed and what to do, then every expectation with what was observed."""
    failed = [judgement for judgement in judgements if not judgement.success]
    verdict = (
        f"{len(failed)} of {len(judgements)} expectations failed: the next stage does not run"
        if failed
        else f"all {len(judgements)} expectations hold"
    )
    blocks = [
        f"<header><h1>{escape(gate)}</h1>"
        f'<p class="verdict {"failed" if failed else "passed"}">{escape(subject)}: {verdict}.</p></header>'
    ]
    for judgement in failed:
        blocks.append(_failure(judgement))
    for table in tables:
        own = [judgement for judgement in judgements if judgement.table == table.name]
        rows = "".join(
            f"<tr>{_mark(judgement.success)}"
            f'<td class="text">{escape(judgement.sentence)}<br><span class="why">{escape(judgement.why)}</span></td>'
            f'<td class="text">{escape(judgement.expected)}</td><td class="text">{escape(judgement.observed)}</td></tr>'
            for judgement in own
        )
        link = links.get(table.name)
        more = f' <a href="{escape(link)}">Great Expectations\' own page</a>' if link else ""
        blocks.append(
            f"<section><h2>{escape(table.title.capitalize())}</h2>"
            '<table class="table verdicts"><thead><tr><th></th><th>Expectation</th><th>Expected</th>'
            f"<th>Observed</th></tr></thead><tbody>{rows}</tbody></table>"
            f"<details><summary>The metrics</summary>{metrics_table(table)}</details><p>{more}</p></section>"
        )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="UTF-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(gate)}: {escape(verdict)}</title><style>{style()}</style></head>\n"
        f"<body class='index'>{''.join(blocks)}</body></html>\n"
    )


def _prose(text: str) -> str:
    """Escaped, with `names in backticks` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _mark(success: bool) -> str:
    return _cell("✓", "mark passed") if success else _cell("✗", "mark failed")


def _cell(text: str, kind: str) -> str:
    return f'<td class="{kind}">{escape(text)}</td>'


def _failure(judgement: Judgement) -> str:
    examples = ""
    if judgement.examples:
        names = list(judgement.examples[0])
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        rows = "".join(
            "<tr>" + "".join(f'<td class="text">{escape(str(example[name])[:200])}</td>' for name in names) + "</tr>"
            for example in judgement.examples
        )
        examples = f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        f'<section class="failure"><h2>✗ {escape(judgement.sentence)}</h2>'
        f"<p>Expected {escape(judgement.expected)}; observed {escape(judgement.observed)}. It matters because "
        f"{escape(judgement.why)}. <strong>What to do:</strong> {_prose(judgement.remedy)}.</p>{examples}</section>"
    )
