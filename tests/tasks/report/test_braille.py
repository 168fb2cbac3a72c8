"""Curves in braille: where dots lie, how panels share the room, and that nothing is wider than asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.report.braille import DOTS, Curve, Panel, draw


def dots(lines: list[str]) -> set[tuple[int, int]]:
    """(column, row from the top) of every dot in rows of braille."""
    return {
        (2 * x + dx, 4 * y + dy)
        for y, line in enumerate(lines)
        for x, character in enumerate(line)
        for dy, row in enumerate(DOTS)
        for dx, bit in enumerate(row)
        if 0x2800 <= ord(character) < 0x2900 and (ord(character) - 0x2800) & bit
    }


def body(lines: list[str], rows: int) -> list[str]:
    """The rows of the first curve, without its axis."""
    return [line.partition("┤")[2] for line in lines if "┤" in line][:rows]


def test_a_ramp_rises_from_the_lower_left_to_the_upper_right() -> None:
    ramp = Curve("ramp", lambda _, share: share, 4, "{:g}".format)
    lines = draw([Panel("up", 1)], [ramp], width=20)
    found = dots(body(lines, 4))
    wide = max(x for x, _ in found)
    assert (0, 15) in found
    assert (wide, 0) in found
    for x in range(wide):
        assert {y for at, y in found if at == x}, "no column is empty"
        assert max(y for at, y in found if at == x) >= max(y for at, y in found if at == x + 1)


def test_a_constant_is_one_line_of_dots_at_its_height() -> None:
    half = Curve("half", lambda at, _: (1.0, 0.5)[at], 3, "{:g}".format)
    rows = body(draw([Panel("a", 1), Panel("b", 1)], [half], width=24), 3)
    left, right = ([row.split("┊")[side] for row in rows] for side in (0, 1))
    assert {y for _, y in dots(left)} == {0}
    assert {y for _, y in dots(right)} == {11 - round(0.5 * 11)}


def test_a_warm_up_of_a_500th_of_the_run_keeps_room_for_its_name() -> None:
    panels = [Panel("warm-up", 1, ("34B",)), Panel("constant", 299), Panel("long context", 200, ("16T",))]
    curve = Curve("rate", lambda at, share: share if not at else 1.0, 6, "{:.0e}".format)
    lines = draw(panels, [curve], width=80)
    assert all(panel.name in lines[0] for panel in panels)
    widths = [len(cell) for cell in body(lines, 1)[0].split("┊")]
    assert widths[0] >= 7
    assert widths[1] > widths[2] > widths[0]
    assert lines[-1].endswith("16T")
    assert max(map(len, lines)) <= 80


NAMES = st.text("abc -", max_size=30)


@given(
    panels=st.lists(st.builds(Panel, NAMES, st.floats(0, 1e15), st.tuples(NAMES)), min_size=1, max_size=9),
    width=st.integers(60, 120),
    scale=st.floats(0, 1e6),
)
def test_whatever_the_panels_it_fits_and_says_every_row(panels: list[Panel], width: int, scale: float) -> None:
    curve = Curve("c", lambda at, share: scale * (at + share), 3, "{:.3g}".format)
    lines = draw(panels, [curve, curve], width)
    assert max(map(len, lines)) <= width
    assert sum("┤" in line for line in lines) == 6


def test_a_curve_of_nothing_but_zeros_lies_on_the_axis() -> None:
    rows = body(draw([Panel("a", 1)], [Curve("0", lambda *_: 0.0, 2, "{:g}".format)], 20), 2)
    assert {y for _, y in dots(rows)} == {7}


@pytest.mark.parametrize("rows", [5, 7])
def test_an_odd_axis_names_its_middle(rows: int) -> None:
    lines = draw([Panel("a", 1)], [Curve("c", lambda _, share: 8 * share, rows, "{:g}".format)], 30)
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line and line.split("┤")[0].strip()] == [
        "8",
        "4",
        "0",
    ]
