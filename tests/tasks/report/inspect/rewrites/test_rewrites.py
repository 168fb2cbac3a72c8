from __future__ import annotations

import io
import random
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import app
from flows.inspection import InspectError, Wanted, show
from flows.request import Request
from tasks.corpus import records
from tasks.rephrase.alignment.stack import NAMES
from tasks.report import html
from tasks.report.inspect.rewrites import page as pages
from tasks.report.inspect.rewrites.attempts import Scores, Selection, survey
from tasks.report.inspect.rewrites.difference import Difference, difference
from tasks.report.inspect.rewrites.limits import SENTENCES
from tasks.report.inspect.rewrites.whole import UnknownDocument, documents
from tests.tasks.report.inspect.hostility import CONTROL, Elements
from tests.tasks.report.inspect.rewrites import data

BUS = records.document_id(data.TEXT)


def printed(artifact, *words: str, width: int = 80, colour: bool = False, **wanted) -> str:
    """What the command prints."""
    out = io.StringIO()
    system = "truecolor" if colour else None
    console = Console(file=out, width=width, force_terminal=colour, color_system=system, highlight=False)
    show(Request(root="nowhere"), Wanted(("rewrites", *words), uri=artifact.uri, **wanted), console)
    return out.getvalue()


def page(artifact, count: int = 5, **selected) -> str:
    return html.page(pages.page(artifact, Selection(**selected), count))


# ------------------------------------------------------------------------------------------------------------- counting


def test_cells_count_attempts_segments_retries_and_fallbacks(tmp_path):
    found = survey(data.publish(tmp_path), Selection())
    cell = found.by(0)["academic"]
    assert (cell.segments, cell.asked, cell.accepted, cell.accepted_first) == (4, 2, 1, 0)
    assert (cell.retried, cell.failed, cell.fallbacks, cell.documents) == (2, 1, 1, 1)
    assert cell.refused == {"numbers": 1, "formulas": 1, "copied": 1}
    assert (cell.acceptance_rate, cell.final_rate, cell.retry_rate, cell.fallback_rate) == (0.25, 0.5, 1.0, 0.5)
    whole = found.whole()
    assert (whole.segments, whole.asked, whole.refused["length"]) == (24, 22, 20)
    assert list(found.by(1)) == ["knowledge", "math"]


def test_refused_nearest_to_the_threshold_come_first(tmp_path):
    found = survey(data.publish(tmp_path), Selection(check="length"), refused=3)
    assert [one.scores["length"] for one in found.nearest["length"]] == [2, 3, 4]
    assert list(found.nearest) == ["length"]


def test_accepted_of_lowest_margin_come_first(tmp_path):
    rows = [
        data.attempt(data.BUS, data.GOOD, index=place, scores={"cosine": 0.75 + 0.02 * place, "length": 1.0})
        for place in range(1, 9)
    ]
    rows.append(data.attempt(data.BUS, data.GOOD, index=9, scores={"length": 1.79}))
    random.Random(1).shuffle(rows)
    found = survey(data.publish(tmp_path, rows), Selection(), accepted=3)
    assert [one.index for one in found.nearest[""]] == [9, 1, 2]


def test_length_is_held_to_the_style_s_own_band(tmp_path):
    """2.15 is near the end of the band of `questions` and far outside that of the others."""
    rows = [
        data.attempt(data.BUS, data.GOOD, style="questions", scores={"length": 2.15}),
        data.attempt(data.BUS, data.GOOD, style="academic", scores={"length": 1.6}),
    ]
    found = survey(data.publish(tmp_path, rows), Selection(), accepted=2)
    assert [one.style for one in found.nearest[""]] == ["questions", "academic"]
    assert "length 2.15 (0.5 to 2.2)" in printed(data.publish(tmp_path, rows), accepted=True)


def test_order_and_partition_change_nothing(tmp_path):
    rows = data.attempts()
    want = survey(data.publish(tmp_path / "a", rows, parts=1), Selection(), 4, 4)
    random.Random(3).shuffle(rows)
    found = survey(data.publish(tmp_path / "b", rows, parts=5), Selection(), 4, 4)
    assert found.cells == want.cells
    assert found.nearest == want.nearest
    assert {name: one.bins() for name, one in found.scores.items()} == {
        name: one.bins() for name, one in want.scores.items()
    }


@pytest.mark.parametrize(
    ("selection", "attempts"),
    [
        (Selection(style="academic"), 4),
        (Selection(domain="math"), 20),
        (Selection(style="academic", domain="math"), 0),
    ],
)
def test_selections(tmp_path, selection, attempts):
    assert survey(data.publish(tmp_path), selection).whole().segments == attempts


@given(st.lists(st.floats(-3, 3).map(lambda score: round(score, 4)), min_size=1, max_size=60), st.randoms())
def test_scores_are_exact_in_any_order(values, draw):
    one, other = Scores(), Scores()
    one.add(pl.Series(values), pl.Series([value < 0 for value in values]))
    draw.shuffle(values)
    for value in values:
        other.add(pl.Series([value]), pl.Series([value < 0]))
    assert one.bins() == other.bins()
    assert sum(one.bins()[1]) == one.total() == len(values)
    ordered = sorted(values)
    assert one.median() == other.median() == ordered[(len(ordered) - 1) // 2]
    assert one.total(True) == sum(value < 0 for value in values)


def test_every_check_is_explained():
    assert not set(NAMES) - set(SENTENCES)


# ----------------------------------------------------------------------------------------------------------- difference


def marks(pieces) -> list[tuple[str, str, str]]:
    return [(piece.text, piece.kind, piece.what) for piece in pieces if piece.kind != "same"]


@pytest.mark.parametrize(
    ("source", "rewrite", "lost", "new"),
    [
        ("It has 3 lines.", "It has 4 lines.", [("3", "lost", "number")], [("4", "new", "number")]),
        ("It has 3 lines.", "It has three lines.", [], []),
        ("It has 1,000 lines.", "It has 1000 lines.", [], []),
        ("It is by Ada Byron.", "It is by Ada Gates.", [("Byron", "lost", "name")], [("Gates", "new", "name")]),
        ("It does not run.", "It does run.", [("not", "lost", "negation")], []),
        ("It does not run.", "It never does run.", [], []),
        ("So $x^2$ is.", "So $x^3$ is.", [("$x^2$", "lost", "formula")], [("$x^3$", "new", "formula")]),
        ("See `foo` there.", "See `bar` there.", [("`foo`", "lost", "code")], [("`bar`", "new", "code")]),
        ("1. Stir well.", "Stir well.", [], []),
        ("A carrier carries.", "A carrier carried.", [], []),
        ("磁盘没有分区。", "磁盘有分区。", [("没", "lost", "negation")], []),
    ],
)
def test_what_differs_is_marked(source, rewrite, lost, new):
    found = difference(source, rewrite)
    assert marks(found.source) == lost
    assert marks(found.rewrite) == new


def test_runs_of_six_words_are_copied():
    run = "one of the words of this run"
    found = difference(f"Here {run}, truly.", f"Elsewhere {run}; falsely.")
    assert (run, "copied", "") in marks(found.source)
    assert (run, "copied", "") in marks(found.rewrite)
    assert ("truly", "lost", "") in marks(found.source)


def test_what_the_reason_names_is_marked():
    found = difference("It takes seven hours.", "It takes 7 hours.", "lost seven; invented 7")
    assert marks(found.source) == [("seven", "lost", "named")]
    assert marks(found.rewrite) == [("7", "new", "named")]
    found = difference("One. Two is here.", "One.", "dropped 'Two is here.'")
    assert marks(found.source) == [("Two is here", "lost", "named")]
    found = difference("More of it.", "Less of it.", "'more' became 'less'")
    assert marks(found.source) == [("More", "lost", "named")]


@given(
    st.text(alphabet="ab 不没的1.3,\n$`x\\", max_size=80),
    st.text(alphabet="ab 不没的1.3,\n$`x\\", max_size=80),
    st.text(alphabet="ab lostinvented';,1", max_size=40),
)
def test_pieces_are_the_whole_texts(source, rewrite, why):
    found = difference(source, rewrite, why)
    assert "".join(piece.text for piece in found.source) == source
    assert "".join(piece.text for piece in found.rewrite) == rewrite
    assert {piece.kind for piece in found.source} <= {"same", "copied", "lost"}
    assert {piece.kind for piece in found.rewrite} <= {"same", "copied", "new"}


@given(st.text(max_size=200))
def test_a_text_differs_from_itself_in_nothing(text):
    found = difference(text, text)
    assert not [piece for piece in (*found.source, *found.rewrite) if piece.kind in ("lost", "new")]


def test_overlong_texts_are_shown_unmarked():
    text = "word " * 20_000
    assert difference(text, "other") == Difference(*(tuple(difference(part, "").source) for part in (text, "other")))


# --------------------------------------------------------------------------------------------------------- the terminal


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("words", [(), ("numbers",), ("length",), ("copied",)])
def test_nothing_is_wider_than_the_terminal(tmp_path, width, words):
    artifact = data.publish(tmp_path)
    for wanted in ({}, {"accepted": True}, {"document": BUS[:8]}) if not words else ({},):
        assert max(map(len, printed(artifact, *words, width=width, **wanted).splitlines())) <= width


def test_overview_says_rates_by_style_and_domain_and_checks(tmp_path):
    text = printed(data.publish(tmp_path))
    assert re.search(r"academic +4 +25\.0 % +0\.0 % +100\.0 % +50\.0 % +1 +1\b", text)
    assert re.search(r"math +20 +0\.0 %", text)
    assert re.search(r"length +24 +20 +83\.3 % +11\.00 0\.5 to 1\.8\* .*│", text)
    assert re.search(r"numbers +3 +1 +33\.3 % +0\.50 +–", text)


def test_sample_names_verdicts_and_trace(tmp_path):
    text = printed(data.publish(tmp_path), "numbers")
    assert "refused: numbers – lost 1983; invented 1984\n1 of 1 · academic" in text
    assert "the source says: It is of 1983. · the rewrite says: It is of 1984." in " ".join(text.split())
    assert "standardised in [-1983-] by" in text
    assert "{+1984+}" in text
    assert "✓ length 1.00 (0.5 to 1.8)" in text
    assert "✗ numbers 0.50" in text
    assert re.search(r"not reached +formulas, code", text)
    assert "prompt 00c0ffee00c0ffee · engine embedded · model SmolLM2 · seed 11" in " ".join(text.split())
    assert f"openk2 lineage {BUS}" in text


def test_side_by_side_where_there_is_room_and_stacked_where_not(tmp_path):
    artifact = data.publish(tmp_path)
    assert re.search(r"source, 97 characters +rewrite, 97 characters", printed(artifact, "numbers", width=120))
    narrow = printed(artifact, "numbers", width=80).splitlines()
    titles = [at for at, line in enumerate(narrow) if re.match(r"(source|rewrite), \d+ characters", line)]
    assert len(titles) == 2
    assert titles[1] > titles[0] + 1


def test_colours_only_in_a_terminal(tmp_path):
    artifact = data.publish(tmp_path)
    assert "\x1b" not in printed(artifact, "numbers")
    coloured = printed(artifact, "numbers", colour=True)
    assert "\x1b[" in coloured
    assert "[-1983-]" not in coloured


def test_whole_document(tmp_path):
    text = printed(data.publish(tmp_path), document=BUS[:12])
    assert "3 segments: 1 rewritten, 1 original, 1 block." in text
    for said in ("accepted\nattempt 2 of 2", "let x = 1", "the original stands", "The joined text", "licence MIT"):
        assert said in text
    assert text.index("attempt 1 of 2") < text.index("attempt 2 of 2") < text.index("let x = 1")


def test_whole_document_by_its_rewrite_s_id(tmp_path):
    artifact = data.publish(tmp_path)
    name = data.rewrite()["id"]
    assert documents(artifact, name[:16]) == documents(artifact, BUS)


def test_dropped_document_has_its_attempts(tmp_path):
    other = documents(data.publish(tmp_path), records.document_id(data.OTHER))[0]
    assert (other.rewrite_id, other.text, len(other.segments)) == ("", "", 20)
    assert {segment.action for segment in other.segments} == {"refused"}


def test_block_without_the_corpus_at_hand(tmp_path):
    artifact = data.publish(tmp_path)
    for manifest in (tmp_path / "corpus").rglob("manifest.json"):
        manifest.unlink()
    block = documents(artifact, BUS)[0].segments[1]
    assert (block.action, block.source) == ("block", "")
    assert "(its text is in the corpus)" in printed(artifact, document=BUS)


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "wanted", "said"),
    [
        (("number",), {}, "no check is called 'number': did you mean 'numbers'"),
        ((), {"style": "acadmic"}, "nothing was rewritten in the style 'acadmic': did you mean 'academic'"),
        ((), {"domain": "maths"}, "nothing was rewritten in the domain 'maths': did you mean 'math'"),
        (("numbers", "length"), {}, "more than one rule"),
        (("numbers",), {"accepted": True}, "leave out 'numbers'"),
        ((), {"source": "foldoc"}, "--source is for corpus"),
        ((), {"kept": True}, "--kept is for corpus"),
        (("numbers",), {"document": "ab"}, "--document shows one document whole"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(tmp_path, words, wanted, said):
    with pytest.raises(InspectError, match=re.escape(said)):
        printed(data.publish(tmp_path), *words, **wanted)


@pytest.mark.parametrize(("name", "said"), [("zz", "no rewritten document"), ("", "no rewritten document")])
def test_unknown_documents_are_refused(tmp_path, name, said):
    with pytest.raises(UnknownDocument, match=said):
        documents(data.publish(tmp_path), name)


def test_ambiguous_and_foreign_documents_are_refused(tmp_path):
    artifact = data.publish(tmp_path)
    with pytest.raises(UnknownDocument, match="was rewritten as academic, not as 'steps'"):
        documents(artifact, BUS, "steps")
    twins = [data.attempt(data.BUS, data.GOOD, source_id=f"ab{place}") for place in range(2)]
    with pytest.raises(UnknownDocument, match="'ab' starts 2 ids"):
        documents(data.publish(tmp_path / "twins", twins, []), "ab")


def test_other_artifacts_are_refused(tmp_path):
    artifact = data.publish(tmp_path)
    corpus = artifact.manifest["inputs"][0]["uri"]
    out = Console(file=io.StringIO())
    with pytest.raises(InspectError, match="holds 'corpus', not 'rewrites': `openk2 inspect corpus --uri"):
        show(Request(root="nowhere"), Wanted(("rewrites",), uri=corpus), out)
    with pytest.raises(InspectError, match="holds 'rewrites', not 'corpus': `openk2 inspect rewrites --uri"):
        show(Request(root="nowhere"), Wanted((), uri=artifact.uri), out)
    with pytest.raises(InspectError, match="--style is for rewrites"):
        show(Request(root="nowhere"), Wanted((), uri=corpus, style="academic"), out)


def test_nothing_was_attempted(tmp_path):
    artifact = data.publish(tmp_path, [], [])
    assert "No attempt was made" in printed(artifact)
    assert "Rates" in page(artifact)


# ------------------------------------------------------------------------------------------------------------ hostility


def test_hostile_text_reaches_the_terminal_as_text(tmp_path):
    artifact = data.hostile(tmp_path)
    said = [printed(artifact), printed(artifact, "numbers"), printed(artifact, accepted=True)]
    said += [printed(artifact, document=BUS, width=width) for width in (80, 140)]
    for text in said:
        assert not CONTROL.search(text)
    assert "[bold]x[/bold]" in said[1]
    assert "⟨U+202E⟩" in said[1]
    assert "\x1b]0;" not in printed(artifact, "numbers", colour=True)


@pytest.mark.parametrize("what", ["all", "document"])
def test_page_is_self_contained_and_hostile_text_stays_text(tmp_path, what):
    artifact = data.hostile(tmp_path)
    if what == "all":
        text = page(artifact)
    else:
        target = tmp_path / "one.html"
        wanted = Wanted(("rewrites", str(target)), uri=artifact.uri, html=True, document=BUS)
        show(Request(root=str(tmp_path)), wanted, Console(file=io.StringIO()))
        text = target.read_text()
    elements = Elements()
    elements.feed(text)
    assert not {"script", "link", "img", "iframe"} & set(elements.seen)
    assert "&lt;script&gt;" in text
    assert not CONTROL.search(text)
    assert "url(" not in text
    assert "default-src 'none'" in text


def test_names_cannot_leave_the_style_sheet(tmp_path):
    rows = [data.attempt(data.BUS, data.GOOD, style=style) for style in ('"]{}</style><b>', "academic")]
    text = page(data.publish(tmp_path, rows))
    rules = re.findall(r"<style>(main:has.*?)</style>", text)
    assert len(rules) == 1
    assert '"]{}' not in rules[0]
    assert "<b>" not in rules[0]


# ------------------------------------------------------------------------------------------------------------- the page


def test_page_has_rates_checks_samples_and_controls(tmp_path):
    artifact = data.publish(tmp_path)
    text = page(artifact, 3)
    for key in ("rates", "accepted", "check-length", "check-numbers"):
        assert text.count(f'id="{key}"') == 1
    assert "limit 0.5" in text
    assert "limit 1.8" in text
    assert '<del class="lost weighty">1983</del>' in text
    assert '<ins class="new weighty">1984</ins>' in text
    assert text.count(' data-check="length"') == 3
    assert '<option value="0">academic</option>' in text
    assert '.compared:not([data-style="academic"])' in text
    assert "25.0 % of 4" in text
    assert text == page(artifact, 3)


def test_page_of_one_check(tmp_path):
    text = page(data.publish(tmp_path), 2, check="numbers")
    assert 'id="check-numbers"' in text
    assert 'id="check-length"' not in text


def test_command_writes_pages_and_says_what_is_wrong_in_a_sentence(tmp_path):
    artifact = data.publish(tmp_path)
    run = CliRunner().invoke
    target = tmp_path / "deep" / "page.html"
    result = run(app, ["inspect", "rewrites", "--uri", artifact.uri, "--html", str(target)])
    assert result.exit_code == 0, result.output
    assert target.read_text().startswith("<!DOCTYPE html>")
    result = run(app, ["inspect", "rewrites", "--uri", artifact.uri, "--root", str(tmp_path), "--html"])
    assert (tmp_path / "rewrites.html").exists(), result.output
    result = run(app, ["inspect", "rewrites", "numbers", "-n", "1", "--uri", artifact.uri])
    assert "refused: numbers" in result.output
    result = run(app, ["inspect", "rewrites", "no", "--uri", artifact.uri])
    assert isinstance(result.exception, InspectError)
