"""Blocks in a terminal: every kind within the columns there are, figures unbroken, hostile text as text."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tasks.report import figures, html, markdown
from tasks.report.blocks import (
    LEVELS,
    Block,
    Charts,
    Code,
    Compared,
    Document,
    Excerpt,
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
    Verbatim,
)
from tasks.report.charts import Line
from tasks.report.terminal import show
from tests.tasks.report.inspect.hostility import CONTROL

EVIL = "\x1b[2J[bold]x[/bold] <script>\u202e `code` **loud** |"


def every_kind(text: str) -> list[Block]:
    """A block of each kind that quotes `text`."""
    data = Verbatim(text)
    score = Score(text, "0.50", "≥ 0.4", True)
    return [
        Prose(data),
        Headline([("1", "thing", "a remark")]),
        Table(
            ("name", "#count", "shape"),
            [[f"{LEVELS} heading"], [data, "1", Spark((0, 1, 2), (1, 4), most=1.0)]],
            "Why.",
        ),
        figures.bars([("a", 2.0, text, "accent")], "Bars."),
        Charts([figures.lines([Line("up", [0, 1, 2], [1.0, 2.0, 4.0])], "x", "Lines.", "Rise")]),
        Pair((data, "kept"), (text, text), data),
        Excerpt(data, [(text, True), (text, False)], data),
        Compared(data, data, ("source", "rewrite"), ([(text, "lost weighty")], [(text, "new")]), [score], data, True),
        Heat("corner", ("a", "b"), [("row", [(0.5, "50 %"), None])]),
        Code(text, "As it is."),
        Graph("<svg></svg>", "graph TD", "Arrows."),
        Problem(data),
        Fold("More", [Prose(data)]),
    ]


def document(text: str) -> Document:
    sections = [Section("all", "All", "", every_kind(text)), Section("none", "None", "", waiting="Run it.")]
    return Document("Title", Verbatim(text), "Lead.", Headline([("1", "thing", "")]), sections)


def printed(shown: Document | Section, width: int) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width, color_system=None), shown)
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int):
    text = printed(document("some words of a text " * 40), width)
    assert max(map(len, text.splitlines())) <= width
    for said in ("Title", "Rise", "More", "Run it.", "50 %"):
        assert said in text


def test_hostile_text_is_shown_and_obeyed_by_no_renderer():
    for text in (printed(document(EVIL), 80), html.page(document(EVIL)), markdown.markdown(document(EVIL))):
        assert not CONTROL.search(text)
        assert "⟨U+202E⟩" in text
    assert "[bold]x[/bold]" in printed(document(EVIL), 120)


def test_headings_stand_over_columns_of_one_width():
    rows = [["first"], ["a", "1"], ["second"], ["longer name", "1,000"]]
    lines = printed(Section("t", "T", "", [Table(("name", "#count"), rows)]), 80).splitlines()
    first, second = (next(line for line in lines if line.startswith(name)) for name in ("a ", "longer name"))
    assert first.rstrip().endswith("1")
    assert len(first.rstrip()) == len(second.rstrip())
    assert sum("count" in line for line in lines) == 1


def test_a_row_of_figures_is_not_broken_where_words_are():
    rows = [["a rule with a very long name that has to be broken", "123,456", "789,012"]]
    text = printed(Section("t", "T", "", [Table(("rule", "#one", "#two"), rows)]), 40)
    assert "123,456 789,012" in text


counts = st.lists(st.integers(0, 10**6), min_size=1, max_size=60)


@given(counts, st.integers(1, 50), st.none() | st.floats(-10, 80), st.booleans())
def test_a_spark_has_the_cells_it_may_and_marks_its_limit(
    values: list[int], cells: int, most: float | None, course: bool
):
    drawn = Spark(range(len(values) + 1), values, most=most, course=course).drawn(cells)
    marks = [mark for mark, side in drawn if side != "limit"]
    assert len(marks) <= cells
    assert set(marks) <= set(LEVELS) | {" "}
    assert sum(side == "limit" for _, side in drawn) == (most is not None)
    assert any(mark != " " for mark in marks) == any(values) or course


def test_a_spark_draws_counts_by_their_root_and_a_course_to_scale():
    assert "".join(mark for mark, _ in Spark((0, 1, 2), (25, 100)).drawn(2)) == "▄█"
    assert "".join(mark for mark, _ in Spark((0, 1, 2), (25, 100), course=True).drawn(2)) == "▂█"
    assert [side for _, side in Spark((0, 1, 2), (1, 1), most=1.0).drawn(2)] == ["passed", "limit", "refused"]


def test_what_is_no_number_is_left_out_of_what_a_chart_says():
    chart = figures.lines([Line("a", [0, 1, 2, 3], [None, 2.0, 3.0, float("nan")])], "x", "c")
    assert dict(chart.data) == {"a": "2 to 3"}
    for edges, values, limit in (((0, 1), (1,), math.inf), ((0, 1), (1,), math.nan), ((0, math.inf), (1,), None)):
        console = Console(file=io.StringIO(), width=80)
        show(console, Section("a", "b", "c", [Table(("x",), [[Spark(edges, values, most=limit)]])]))


def test_names_from_data_within_our_own_text_are_no_markup_in_markdown():
    name = "<img src=x onerror=1>[l](javascript:x)\n# H\x1b\u202e"
    blocks = [Prose(f"Of **{name}**"), Table(("a",), [[name]], name), Code("x", name), Problem(name)]
    text = markdown.markdown(
        Document("t", name, "see [that](#that), `a < b`", Headline([]), [Section("a", "b", name, blocks)])
    )
    assert "<img" not in text
    assert "](javascript" not in text
    assert not [line for line in text.splitlines() if line.startswith("# H")]
    assert not set(text) & {"\x1b", "\u202e"}
    assert "see [that](#that), `a < b`" in text


def test_no_link_within_our_own_text_leads_to_another_host():
    shown = Document("", "", "see [it](//evil.example) and [us](a/b.html)", Headline([]), [])
    assert html.page(shown).count("<a href") == 1
    assert "[us](a/b.html)" in markdown.markdown(shown)
    assert "[it](//" not in markdown.markdown(shown)
