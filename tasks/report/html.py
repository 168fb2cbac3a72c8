"""The report as one HTML page that loads nothing: style inside, drawings inside, no script, and none would run.

`page.jinja` says what each block looks like.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from model.visible import escape
from tasks.report import charts
from tasks.report.blocks import Block, Choice, Document, Verbatim, surprise


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
    filters = _filters(document.choices) if document.choices else ""
    return str(_macros().page(document, style("charts", "page"), filters))


@cache
def _macros() -> Any:
    """The macros of `page.jinja`, whose lines are joined: indentation there is for its readers."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_escaped)
    environment.globals["block"] = _block
    environment.filters |= {
        "said": _said,
        "word": _word,
        "surprise": surprise,
        "kind": lambda column: "n" if column.startswith("#") else "t",
        "unmarked": lambda column: column.removeprefix("#"),
        "mark": lambda good: {True: " good", False: " bad", None: ""}[good],
        "spark": lambda spark: Markup(charts.spark(spark)),
    }
    source = Path(__file__).with_name("page.jinja").read_text(encoding="utf-8")
    return environment.from_string("".join(line.strip() for line in source.splitlines())).module


def _block(block: Block) -> Markup:
    """The macro of this kind of block."""
    return getattr(_macros(), type(block).__name__)(block)


def _escaped(value: Any) -> Markup:
    """What a template shows, with what is invisible spelled out, unless it is markup already."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def _filters(choices: Sequence[Choice]) -> Markup:
    """Controls, and for each value of a tag what it hides."""

    def hidden(choice: Choice, at: int, value: str) -> str:
        key = _word(choice.key)
        return f'main:has(#f-{key} option[value="{at}"]:checked) .compared:not([data-{key}="{_css(value)}"])'

    rules = [hidden(choice, at, value) for choice in choices for at, value in enumerate(choice.values)]
    return _macros().filters(choices, rules)


def _word(text: str) -> str:
    """A tag's key: letters and digits alone."""
    return re.sub(r"[^a-z0-9]+", "", text.lower())


def _css(text: str) -> str:
    """`text` within the quotes of a style sheet's string; every character that could end it as its number."""
    return re.sub(r"[^\w .-]", lambda match: f"\\{ord(match.group()):x} ", text)


def _said(text: str) -> Markup:
    """Escaped, with `code`, **strong** and [links](address) set; text that comes from data is `Verbatim`. No link
    leads to another host, as `//host` would."""
    marked = escape(text, quote=False)
    if not isinstance(text, Verbatim):
        marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", marked)
        marked = re.sub(r"\[([^\]]+)\]\(((?!//)#?[\w./-]+)\)", r'<a href="\2">\1</a>', marked)
        marked = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
    return Markup(marked)
