from __future__ import annotations

import io
import random
import re
from itertools import pairwise
from unittest.mock import ANY

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import app
from flows.inspection import InspectError, Wanted, show
from flows.request import Request
from model.visible import flat, visible
from tasks.corpus import records
from tasks.report import html
from tasks.report.inspect.corpus import kept, overview
from tasks.report.inspect.corpus import page as pages
from tasks.report.inspect.corpus.evidence import evidence, merged, pieces
from tasks.report.inspect.corpus.rejects import Histogram, Selection, heads, survey
from tests.tasks.report.inspect.corpus import data
from tests.tasks.report.inspect.hostility import CONTROL, Elements


def printed(artifact, *words: str, colour: bool = False, **wanted) -> str:
    """What the command prints on 80 columns."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=colour, highlight=False)
    show(Request(root="nowhere"), Wanted(words, uri=artifact.uri, **wanted), console)
    return out.getvalue()


def build(artifact, selection, count: int) -> str:
    """The page."""
    return html.page(pages.page(artifact, selection, count))


# -------------------------------------------------------------------------------------------------------- which samples


def test_nearest_to_the_threshold_come_first(tmp_path):
    found = survey(data.publish(tmp_path), Selection(reason="fineweb_short_lines"), 5)
    numbers = [sample.number for sample in found.nearest["quality", "fineweb_short_lines"]]
    assert numbers == pytest.approx([0.70, 0.71, 0.72, 0.73, 0.74])
    below = survey(data.publish(tmp_path), Selection(reason="gopher_words_min"), 3)
    assert [sample.number for sample in below.nearest["quality", "gopher_words_min"]] == [19, 18, 17]


def test_order_and_partition_change_nothing(tmp_path):
    rows = data.rejects()
    want = survey(data.publish(tmp_path / "a", rows, parts=1), Selection(), 4)
    random.Random(3).shuffle(rows)
    found = survey(data.publish(tmp_path / "b", rows, parts=7), Selection(), 4)
    assert found.counts == want.counts
    assert found.nearest == want.nearest
    assert {key: one.bins() for key, one in found.numbers.items()} == {
        key: one.bins() for key, one in want.numbers.items()
    }


def test_memory_is_bounded_by_row_groups_not_by_the_table(tmp_path, monkeypatch):
    rows = [data.reject("too_short", number % 200, f"text {number}", limit=200.0) for number in range(9000)]
    artifact = data.publish(tmp_path, rows, parts=1)
    heights = []
    real = pl.DataFrame.sort

    def sort(self, *args, **kwargs):
        heights.append(self.height)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(pl.DataFrame, "sort", sort)
    found = survey(artifact, Selection(), 3)
    assert [sample.number for sample in found.nearest["quality", "too_short"]] == [199, 199, 199]
    assert max(heights) <= 4096 + 3


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        (Selection(source="foldoc"), 1),
        (Selection(stage="dedup"), 1),
        (Selection(language="zh", languages={"web": "en", "foldoc": "zh"}), 1),
        (Selection(language="ro", languages={"web": "en", "foldoc": "zh"}), 1),
        (Selection(), 85),
    ],
)
def test_selections(tmp_path, selection, count):
    assert sum(survey(data.publish(tmp_path), selection, 0).counts.values()) == count


@given(st.lists(st.floats(-1e12, 1e12) | st.just(float("nan")), min_size=1, max_size=60), st.randoms())
def test_histogram_is_the_same_in_any_order(numbers, draw):
    one, other = Histogram(), Histogram()
    one.add(pl.Series(numbers))
    draw.shuffle(numbers)
    for number in numbers:
        other.add(pl.Series([number]))
    assert one.bins() == other.bins()
    edges, counts = one.bins()
    assert len(counts) <= 48
    assert sum(counts) == sum(number == number for number in numbers)
    assert len(edges) == len(counts) + 1 or not counts


def test_survivors_of_duplicates_are_found_and_strangers_left_out(tmp_path):
    artifact = data.publish(tmp_path)
    name = data.document(data.SURVIVOR)["id"]
    assert heads(artifact, [name, "0" * 32], 8) == {name: (data.SURVIVOR[:8], "web:24")}


# --------------------------------------------------------------------------------------------------------- the terminal


def test_limits_of_several_routes_are_not_drawn_as_one(tmp_path):
    rows = [data.reject("fineweb_short_lines", 0.7 + 0.1 * at, "x", limit=limit) for at, limit in ((0, 0.67), (1, 0.8))]
    artifact = data.publish(tmp_path, rows)
    (route,) = overview.inspect(artifact, Selection(source="web"), 1).rule("fineweb_short_lines").routes
    assert (route.limit, route.direction) == (None, "")
    assert "; limit" not in printed(artifact, "fineweb_short_lines", source="web")


def test_figures_of_the_whole_corpus_do_not_stand_over_a_part_of_it(tmp_path):
    artifact = data.publish(tmp_path)
    for figure in ("documents read", "Masked"):
        assert figure in printed(artifact)
        assert figure not in printed(artifact, source="foldoc")


def test_overview_has_every_rule_that_dropped_something(tmp_path):
    text = printed(data.publish(tmp_path))
    for name in ("fineweb_short_lines", "gopher_words_min", "unreadable", "near_duplicate", "contaminated"):
        assert name in text
    assert "gopher_hashes" not in text
    assert "1 more rules refused nothing" in text
    assert re.search(r"EMAIL +12 *\n *KEY +3\b", text)
    assert re.search(r"fineweb_short_lines +prose +100 +60 +30 +0\.67 .*│", text)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("rule", ["fineweb_short_lines", "near_duplicate", "contaminated", "unreadable", "too_short"])
def test_rule_page_fits_80_columns(tmp_path, rule):
    text = printed(data.publish(tmp_path), rule)
    assert rule in text
    assert max(map(len, text.splitlines())) <= 80


def test_rule_page_says_why_and_shows_value_limit_and_other_reasons(tmp_path):
    text = " ".join(printed(data.publish(tmp_path), "fineweb_short_lines", count=2).split())
    assert "FineWeb (Penedo et al., arXiv 2406.17557)" in text
    assert "1 of 60: 0.7 against 0.67, 4.5 % past it" in text
    assert "Also refused by c4_sentences" in text
    assert "3 of 60" not in text


def test_near_duplicates_stand_side_by_side(tmp_path):
    text = printed(data.publish(tmp_path), "near_duplicate")
    assert re.search(r"The text stayed, nearly\. +The text stayed, wholly\.", text)
    assert "similarity 0.8213" in text


def test_kept_documents_nearest_to_a_threshold(tmp_path):
    words = "one two three and four to five of six the seven have eight with nine that ten be. "
    texts = [f"{words * times}Sentence {times}. Another one. And a third one." for times in (3, 4, 5, 6)]
    artifact = data.publish(tmp_path, documents=[data.document(text) for text in texts])
    found, judged = kept.nearest(artifact, "gopher_words_min", Selection(), 2)
    assert judged == 5
    assert [sample.head for sample in found] != []
    assert [sample.distance for sample in found] == sorted(sample.distance for sample in found)
    best = min((abs(len(text.split()) - 50), text) for text in [*texts, data.SURVIVOR])[1]
    assert found[0].head == best
    assert "short of it" in printed(artifact, "gopher_words_min", kept=True)


def test_kept_documents_are_asked_what_their_reader_took_them_for(tmp_path):
    """A page of prose in a source of programs, and a program on the web."""
    page = data.document("A page says what the programs beside it are for. " * 9, domain="code", url="code:README.md")
    program = data.document("number = number + 1\n" * 60, url="web:a.py", meta=records.meta(code=True))
    artifact = data.publish(tmp_path, documents=[page, program])
    judged = {
        rule: {sample.url for sample in kept.nearest(artifact, rule, Selection(), 9)[0]}
        for rule in ("gopher_words_min", "code_lines_max")
    }
    assert judged == {"gopher_words_min": {"code:README.md", "web:24"}, "code_lines_max": {"web:a.py"}}


def test_kept_is_refused_for_what_cannot_be_measured_again(tmp_path):
    artifact = data.publish(tmp_path)
    with pytest.raises(kept.KeptError, match="judges no kept document"):
        printed(artifact, "near_duplicate", kept=True)
    with pytest.raises(InspectError, match="openk2 inspect RULE --kept"):
        printed(artifact, kept=True)


# ------------------------------------------------------------------------------------------------------------ hostility


@given(st.text(max_size=200))
def test_visible_text_controls_nothing(text):
    assert not CONTROL.search(visible(text))
    assert "\n" not in flat(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "␛[2J"),
        ("a\tb", "a→   b"),
        ("\u202e", "⟨U+202E⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("你好 é ✓", "你好 é ✓"),
    ],
)
def test_invisible_characters_are_spelled_out(text, shown):
    assert visible(text) == shown


def hostile(tmp_path):
    rows = [
        data.reject(
            "too_short", 9, data.EVIL, limit=200.0, url=f"web:{data.EVIL}", source=data.EVIL, others=(data.EVIL,)
        ),
        data.reject("licence_not_allowed", data.EVIL, data.EVIL, "licence"),
        data.reject(data.EVIL, 1, data.EVIL, data.EVIL, 2.0),
        data.reject("near_duplicate", f"{data.document(data.EVIL)['id']} 0.9", data.EVIL, "dedup"),
    ]
    return data.publish(tmp_path, rows, [data.document(data.EVIL, url=data.EVIL)])


def test_hostile_text_reaches_the_terminal_as_text(tmp_path):
    artifact = hostile(tmp_path)
    said = [
        printed(artifact),
        *(printed(artifact, rule) for rule in ("too_short", "licence_not_allowed", "near_duplicate")),
    ]
    for text in said:
        assert not CONTROL.search(text)
    assert "[bold]x[/bold]" in said[1]
    assert "\x1b]0;" not in printed(artifact, "too_short", colour=True)


def test_page_is_self_contained_and_hostile_text_stays_text(tmp_path):
    page = build(hostile(tmp_path), Selection(), 5)
    elements = Elements()
    elements.feed(page)
    assert not {"script", "link", "img", "iframe", "b"} & set(elements.seen)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not CONTROL.search(page)
    assert "url(" not in page


# ------------------------------------------------------------------------------------------------------------- the page


def test_page_has_a_section_a_rule_with_its_reason_and_histogram(tmp_path):
    page = build(data.publish(tmp_path), Selection(), 5)
    for rule in ("quality-fineweb-short-lines", "dedup-near-duplicate", "quality-gopher-hashes"):
        assert page.count(f'id="{rule}"') == 1
        assert f'href="#{rule}"' in page
    assert "limit 0.67" in page
    assert "refuses what lies above" in page
    assert "2 more samples" in page
    assert "mathematics" in page
    assert "Masked" in page
    assert page == build(data.publish(tmp_path), Selection(), 5)


def test_evidence_is_marked_on_the_page(tmp_path):
    assert "<mark>longest of al</mark>" in build(data.publish(tmp_path), Selection(stage="decontamination"), 5)


# ------------------------------------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize(
    ("rule", "text", "marked"),
    [
        ("c4_lorem_ipsum", "It says Lorem ipsum dolor", ["Lorem ipsum"]),
        ("gopher_repeated_lines", "one\ntwo\none\n", ["one"]),
        ("gopher_repeated_5_grams", "a b c d e f a b c d e g", ["a b c d e"]),
        ("gopher_top_2_gram", "go on and go on", ["go on", "go on"]),
        ("fineweb_short_lines", f"short\n{'long ' * 10}", ["short"]),
        ("fineweb_punctuated_lines", "Ends well.\nDoes not", ["Does not"]),
        ("gopher_alphabetic_words", "word 12 !!", ["12", "!!"]),
        ("files_generated", "# Automatically generated by x", ["Automatically generated"]),
        ("no_such_rule", "anything", []),
    ],
)
def test_evidence(rule, text, marked):
    found = [piece for piece, is_evidence in pieces(text, evidence(rule, text)) if is_evidence]
    assert found == marked


@given(
    st.text(alphabet="ab \n.#…，你好1", max_size=80), st.sampled_from(["top_2_gram", "repeated_5_grams", "hashes", "x"])
)
def test_pieces_are_the_whole_text(text, rule):
    assert "".join(piece for piece, _ in pieces(text, evidence(rule, text))) == text


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_merged_spans_are_apart_and_ascending(spans):
    found = merged(spans)
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert {at for a, b in spans for at in range(a, b)} == {at for a, b in found for at in range(a, b)}


# ---------------------------------------------------------------------------------------------------------- the command


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["inspect", *words])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def test_command_writes_the_page_where_it_is_told(tmp_path):
    uri, target = data.publish(tmp_path / "data").uri, tmp_path / "out" / "rules.html"
    assert run("--uri", uri, "--html", str(target))[0] == 0
    assert run("corpus", "too_short", "--uri", uri, "--html", "--root", str(tmp_path))[0] == 0
    assert target.read_text(encoding="utf-8").count("<section") > (tmp_path / "inspect.html").read_text().count(
        "<section"
    )


def test_no_page_is_written_of_a_rule_that_is_not_there(tmp_path):
    uri, target = data.publish(tmp_path / "data").uri, tmp_path / "rule.html"
    assert run("corpus", "too_shrt", "--uri", uri, "--html", str(target))[0] != 0
    assert not target.exists()


def test_the_page_of_one_rule_is_written_wherever_its_path_stands(tmp_path):
    uri, pages = data.publish(tmp_path / "data").uri, [tmp_path / f"{number}.html" for number in range(3)]
    for words in (("--html", str(pages[0]), "too_short"), ("--html", "too_short", str(pages[1])),
                  ("--html", str(pages[2]), "corpus", "too_short")):  # fmt: skip
        assert run("--uri", uri, *words) == (0, ANY)
    assert len({page.read_text() for page in pages}) == 1


def test_where_nothing_was_dropped_that_is_said(tmp_path):
    code, output = run("--language", "fr", "--uri", data.publish(tmp_path).uri)
    assert code == 0
    assert "Nothing of what was asked for was dropped" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fineweb_short_line",), "did you mean 'fineweb_short_lines'"),
        (("prose/fineweb_short_lines",), "no rule of this corpus is called 'prose/fineweb_short_lines': did you mean"),
        (("--stage", "qualty"), "there is no stage 'qualty': choose one of read"),
        (("--source", "wev"), "there is no source 'wev': did you mean 'web'"),
        (("too_short", "--source", "web"), "dropped nothing of what was asked for"),
        (("too_short", "unreadable"), "more than one rule"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(tmp_path, words, said):
    code, output = run(*words, "--uri", data.publish(tmp_path).uri)
    assert code == 1
    assert said in output


def test_terminal_and_page_tell_of_the_same_rules(tmp_path):
    artifact = data.publish(tmp_path)
    found = overview.inspect(artifact, Selection(), 1)
    page, text = build(artifact, Selection(), 1), printed(artifact)
    assert found.rules
    assert all(f">{rule.name}<" in page for rule in found.rules)
    assert all(rule.name in text for rule in found.rules if rule.dropped)
