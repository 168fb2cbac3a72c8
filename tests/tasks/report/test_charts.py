from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.report import charts, words
from tasks.report.charts import Band, Line

number = st.floats(min_value=-1e9, max_value=1e12, allow_nan=False)


def points(svg: str) -> list[list[tuple[float, float]]]:
    found = re.findall(r'points="([^"]*)"', svg)
    return [[tuple(map(float, pair.split(","))) for pair in line.split()] for line in found]


@given(st.lists(number, min_size=1, max_size=50))
@example([5e-324])
def test_any_values_give_well_formed_svg_inside_its_frame(ys):
    svg = charts.lines([Line("a & <b>", range(len(ys)), ys)], "steps")
    assert ET.fromstring(svg).attrib["viewBox"] == "0 0 720 260"
    for line in points(svg):
        for x, y in line:
            assert 0 <= x <= 720
            assert 0 <= y <= 260


def test_larger_values_are_drawn_higher():
    (line,) = points(charts.lines([Line("a", [0, 1, 2], [1.0, 3.0, 2.0])], "x"))
    ys = [y for _, y in line]
    assert ys[1] < ys[2] < ys[0]


def test_what_is_no_number_is_left_out_and_nothing_at_all_is_an_error():
    (line,) = points(charts.lines([Line("a", [0, 1, 2, 3], [1.0, math.nan, 2.0, math.inf])], "x"))
    assert len(line) == 2
    with pytest.raises(ValueError, match="no values to draw for loss"):
        charts.lines([Line("loss", [0], [math.nan])], "x")


def test_dots_are_not_joined():
    svg = charts.lines([Line("a", [0, 1, 2], [1.0, 2.0, 3.0]), Line("b", [0, 2], [1.0, 2.0], dots=True)], "x")
    assert len(points(svg)) == 1
    assert svg.count("<circle") == 2


def test_long_series_are_thinned_and_keep_their_ends():
    ys = [float(n) for n in range(100_000)]
    (line,) = points(charts.lines([Line("a", range(len(ys)), ys)], "x"))
    assert len(line) <= charts.POINTS + 2
    assert line[0][0] < 60
    assert line[-1][0] > 690


def test_labels_of_lines_that_end_together_do_not_overlap():
    series = [Line(f"line {n}", [0, 1], [0.0, 1.0 + n * 1e-6]) for n in range(5)]
    svg = charts.lines(series, "x")
    ys = sorted(float(y) for y in re.findall(r'class="end [^"]*" x="[^"]*" y="([^"]*)"', svg))
    assert len(ys) == 5
    assert all(b - a >= 13.9 for a, b in pairwise(ys))
    assert ys[-1] < 260


def test_stage_names_never_run_into_each_other():
    bands = [Band("warm-up", 0, 5), Band("constant", 5, 80), Band("annealing", 80, 84), Band("long context", 84, 100)]
    svg = charts.lines([Line("a", range(101), [1.0] * 101)], "x", bands=bands)
    placed = re.findall(r'class="tick" x="([\d.]+)" y="([\d.]+)" text-anchor="start">([^<]*)<', svg)
    assert [label for *_, label in placed] == [band.label for band in bands]
    rows: dict[str, float] = {}
    for x, y, label in placed:
        assert float(x) >= rows.get(y, 0.0)
        rows[y] = float(x) + 5.8 * len(label)


@given(st.lists(number, min_size=1, max_size=300))
def test_smoothing_stays_within_the_values(ys):
    means = charts.smooth(ys)
    assert len(means) == len(ys)
    slack = 1e-6 * max(abs(y) for y in ys) + 1e-9
    assert min(ys) - slack <= min(means)
    assert max(means) <= max(ys) + slack


def test_smoothing_of_a_constant_is_the_constant():
    assert charts.smooth([0.01] * 200) == [0.01] * 200


def test_bars_are_as_long_as_their_values():
    svg = charts.bars([("a", 4.0, "4", "accent"), ("b", 1.0, "1", "warm"), ("c", 0.0, "none", "warm")])
    widths = [float(width) for width in re.findall(r'class="bar[^"]*" x="[^"]*" y="[^"]*" width="([^"]*)"', svg)]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)
    assert widths[2] == 0


def test_words_of_any_length_leave_room_for_the_drawing():
    for label, text in (("w" * 500, "1"), ("a", "t" * 500), ("w" * 500, "t" * 500)):
        for width in (720, 400):
            rows = [(label, 1.0, text, "web"), ("short", 2.0, "2", "web")]
            drawings = [
                charts.bars(rows, width),
                charts.spans([(label, 0.0, 0.5, 1.0, text, "web")]),
                charts.stacked([(label, [(1.0, "web")], text)], [("web", "web")]),
                charts.heat([(label, [1.0, 2.0])], "x", 2.0),
            ]
            for svg in drawings:
                ET.fromstring(svg)
                assert all(float(size) >= 0 for size in re.findall(r' width="([^"]+)"', svg))
                assert all(float(place) <= 720 for place in re.findall(r' x2?="([^"]+)"', svg))


def test_words_of_east_asia_have_the_room_that_they_take():
    svg = charts.bars([("指数族分布", 1.0, "1", "web")])
    (end,) = re.findall(r'class="label" x="([^"]*)"', svg)
    assert float(end) >= 5 * 12, "five characters of 12 units end there"
    svg = charts.bars([("指" * 60, 1.0, "1", "web")])
    (label,) = re.findall(r'class="label"[^>]*>([^<]*)<', svg)
    assert len(label) <= charts.WIDTH // 36 + 1


def test_bars_of_nothing_but_losses_are_empty():
    assert 'width="0.0"' in charts.bars([("a", -5.0, "-5", "web")])


def test_heat_is_deepest_where_the_value_is_largest():
    svg = charts.heat([("layer 0", [0.0, 1.0]), ("layer 1", [2.0, 4.0])], "steps", 4.0)
    assert [float(depth) for depth in re.findall(r'opacity="([^"]*)"', svg)] == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.2, "3.2 s"), (59.97, "1:00 min"), (187, "3:07 min"), (7500, "2:05 h"), (-0.0, "0.0 s")],
)
def test_durations(value, text):
    assert words.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1204, "1.2k"),
        (12_345_678, "12.3M"),
        (15.5e12, "15.5T"),
        (999_950, "1M"),
        (2e15, "2,000T"),
        (0.31, "0.31"),
        (7, "7"),
    ],
)
def test_short_numbers(value, text):
    assert words.short(value) == text


@pytest.mark.parametrize(
    ("value", "decimal", "binary"),
    [(1000, "1.0 kB", "1,000 B"), (1 << 20, "1.0 MB", "1.0 MiB"), (1 << 30, "1.1 GB", "1.0 GiB"), (12, "12 B", "12 B")],
)
def test_bytes_are_told_in_powers_of_ten_or_of_two(value: int, decimal: str, binary: str) -> None:
    assert (words.size(value), words.size(value, binary=True)) == (decimal, binary)


def rectangles(svg: str, colour: str) -> list[tuple[float, float, float, float]]:
    found = re.findall(rf'<rect class="f-{colour}" x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"', svg)
    return [tuple(map(float, one)) for one in found]


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=40),
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
    st.one_of(st.none(), st.floats(-1e7, 1e7), st.just(math.nan)),
    st.one_of(st.none(), st.floats(-1e7, 1e7), st.just(math.nan)),
)
def test_any_histogram_is_well_formed_and_inside_its_frame(counts, low, width, least, most):
    edges = [low + width * at for at in range(len(counts) + 1)]
    svg = charts.histogram(edges, counts, "value & <b>", least, most)
    ET.fromstring(svg)
    for x, y, wide, tall in (*rectangles(svg, "accent"), *rectangles(svg, "warm")):
        assert -0.2 <= x <= 720.2
        assert x + wide <= 722
        assert 0 <= y <= 190
        assert 0 <= tall <= 190


def test_histogram_paints_the_refused_side():
    svg = charts.histogram([0, 1, 2, 3, 4], [5, 5, 5, 5], "x", most=3.0)
    assert len(rectangles(svg, "warm")) == 1
    assert len(rectangles(svg, "accent")) == 3
    assert len(rectangles(charts.histogram([0, 1, 2], [5, 5], "x", 0.5), "warm")) == 1, "a bin is cut"
    assert not rectangles(charts.histogram([0, 1, 2], [5, 5], "x"), "warm")


def test_histogram_heights_grow_with_the_square_root():
    heights = [tall for *_, tall in rectangles(charts.histogram([0, 1, 2, 3], [100, 25, 0], "x"), "accent")]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert heights[2] == 0


def test_histogram_wants_an_edge_more_than_counts():
    with pytest.raises(ValueError, match="3 counts need 4 edges"):
        charts.histogram([0, 1, 2], [1, 2, 3], "x")


def test_stacked_shares_fill_the_bar():
    svg = charts.stacked([("a", [(0.75, "accent"), (0.25, "warm")], "75 %")], [("kept", "accent"), ("lost", "warm")])
    (_, kept), (_, lost) = rectangles(svg, "accent"), rectangles(svg, "warm")
    assert kept[2] == pytest.approx(3 * lost[2], rel=0.01)
    assert kept[0] + kept[2] == pytest.approx(lost[0], abs=0.2)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40))
def test_points_lie_in_the_frame_and_say_what_they_are(places):
    rows = [(x, y, "<i>a & b", "k1") for x, y in places]
    svg = charts.scatter(rows, [("commerce", "k1")])
    root = ET.fromstring(svg)
    groups = [node for node in root if node.tag.endswith("g")]
    assert len(groups) == len(places)
    for title, spot in groups:
        assert 0 <= float(spot.get("cx")) <= 720
        assert 0 <= float(spot.get("cy")) <= 520
        assert title.text == "<i>a & b"
