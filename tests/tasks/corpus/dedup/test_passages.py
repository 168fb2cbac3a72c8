"""Paragraphs and lines that stand in several documents: what goes, what stays; code and formulas are left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.codepoints import tokens
from tasks.corpus.dedup.config import DedupConfig, PassagesConfig
from tasks.corpus.dedup.passages import blocks, cut, fingerprints, sentences
from tests.linear import assert_linear

ALONE = DedupConfig(near={"enabled": False})
LINE = "This line stands in the footer of all pages."


@pytest.fixture
def pages(write_sentences, make_row):
    """Rows of `count` documents of their own words, each with something added."""

    def make(count: int, added: str, **more):
        return [
            make_row("\n\n".join([*write_sentences(number, 9), added]), f"s:{number:03}", **more)
            for number in range(count)
        ]

    return make


def test_a_repeated_paragraph_stays_in_the_longest_document(pages, write_sentences, make_row, deduplicated):
    paragraph = " ".join(write_sentences(99, 4))
    rows = [*pages(4, paragraph), make_row("\n\n".join([*write_sentences(5, 30), paragraph]), "s:longest")]
    kept, rejected = deduplicated([rows[:2], rows[2:]], ALONE)
    assert not rejected
    assert [row["url"] for row in kept if paragraph in row["text"]] == ["s:longest"]
    assert [row["text"] for row in kept][:4] == ["\n\n".join(write_sentences(number, 9)) for number in range(4)]


def test_case_spaces_and_punctuation_do_not_hide_a_copy(pages, write_sentences, deduplicated):
    paragraph = " ".join(write_sentences(99, 4))
    other = "  ".join(paragraph.upper().replace(".", " !").split(" "))
    kept, _ = deduplicated([pages(2, paragraph)[:1] + pages(2, other)[1:]], ALONE)
    assert sum(len(row["text"].split("\n\n")) for row in kept) == 9 + 9 + 1


def test_boilerplate_stays_nowhere(pages, write_sentences, deduplicated, make_corpus):
    settings = DedupConfig(near={"enabled": False}, passages=PassagesConfig(paragraph_boilerplate_min=8))
    paragraph = " ".join(write_sentences(99, 4))
    assert all(paragraph in row["text"] for row in deduplicated([pages(7, paragraph)], settings)[0]) is False
    assert sum(paragraph in row["text"] for row in deduplicated([pages(7, paragraph)], settings)[0]) == 1
    assert sum(paragraph in row["text"] for row in deduplicated([pages(8, paragraph)], settings)[0]) == 0
    assert sum(LINE in row["text"] for row in deduplicated([pages(6, LINE)], settings)[0]) == 6
    corpus = make_corpus([pages(7, LINE), []], settings)
    corpus.find()
    assert not any(LINE in row["text"] for row in corpus.result()[0])
    (row,) = corpus.table("passages").to_pylist()
    assert (row["kind"], row["documents"], row["removed"], row["text"]) == ("line", 7, 7, LINE)
    part = corpus.step.part("removals/s/000")
    assert part.statistics == {
        "by_reason": {"cut": 7}, "spans": {"boilerplate_line": 7}, "chars": {"boilerplate_line": 7 * len(LINE)},
    }  # fmt: skip


def test_bounds_for_boilerplate_grow_with_the_corpus(pages, deduplicated):
    settings = DedupConfig(near={"enabled": False}, passages=PassagesConfig(bucket_documents=5))
    kept, _ = deduplicated([pages(8, LINE)], settings)  # 7 * 8 / 5 = 12 documents are needed
    assert all(LINE in row["text"] for row in kept)


@pytest.mark.parametrize(
    "added",
    [
        f"# {LINE}",
        f"```\n{LINE}\n```",
        f"~~~ python\n\n{LINE}\n~~~",
        f"$$\n{LINE}\n$$",
        f"\\[\n{LINE}\n\\]",
        "See also\nthe index",
        f"a | {LINE} | b",
        "请参阅下一节",
    ],
)
def test_headings_code_formulas_tables_and_labels_are_left_alone(pages, deduplicated, added):
    kept, rejected = deduplicated([pages(60, added)], ALONE)
    assert not rejected
    assert all(row["text"].endswith(added) for row in kept)


@pytest.mark.parametrize("domain", ["code", "web"])
def test_programs_are_left_alone_whatever_their_source(pages, deduplicated, domain):
    kept, _ = deduplicated([pages(60, LINE, domain=domain, code=True)], ALONE)
    assert all(row["text"].endswith(LINE) for row in kept)
    kept, _ = deduplicated([pages(60, LINE, domain=domain)], ALONE)
    assert not any(LINE in row["text"] for row in kept)


def test_a_document_left_too_short_is_rejected_with_its_reason(write_sentences, make_row, deduplicated, pages):
    paragraph = " ".join(write_sentences(99, 4))
    rows = [make_row(f"{paragraph}\n\nShort.", "s:short"), *pages(1, paragraph)]
    kept, rejected = deduplicated([rows], ALONE)
    assert [row["url"] for row in kept] == ["s:000"]
    (row,) = rejected
    assert (row["url"], row["stage"], row["reason"], row["number"], row["limit"]) == (
        "s:short", "dedup", "too_short_after_cuts", 6, 20,
    )  # fmt: skip


def test_blocks_are_prose_between_blank_lines():
    text = (
        "# Title\nOne.\nTwo.\n\n```\ncode\n\ncode\n```\nThree.\n\n$$ x $$\n$$\ny\n$$\nFour.\n\\[ a \\] five\n \n|six|"
    )
    found = [[text[begin:end] for begin, end in block] for block in blocks(text)]
    assert found == [["One.", "Two."], ["Three."], ["$$ x $$"], ["Four.", "\\[ a \\] five"], ["|six|"]]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("```\n\nOne.\n\nWrite ``` around code.", ["```", "One.", "Write ``` around code."]),
        ("Head\n~~~~~\n\nOne.\n\nTwo\n~~~~~\n\nThree.", ["Head", "~~~~~", "One.", "Two", "~~~~~", "Three."]),
    ],
)
def test_what_is_no_fence_hides_no_prose(text, lines):
    assert [text[begin:end] for block in blocks(text) for begin, end in block] == lines


@pytest.mark.parametrize("mark", ["$$ is the shell's own number.", "The pattern \\[ begins a class.", "```"])
def test_a_mark_that_never_closes_hides_no_boilerplate(pages, deduplicated, mark):
    kept, _ = deduplicated([pages(60, f"{mark}\n\n{LINE}")], ALONE)
    assert not any(LINE in row["text"] for row in kept)


@given(st.text(alphabet="ab#`~$|\\[]\n. 中", max_size=80))
def test_blocks_are_lines_of_the_text_in_order(text):
    lines, at = [], 0
    for line in text.split("\n"):
        lines.append((at, at + len(line)))
        at += len(line) + 1
    flat = [span for block in blocks(text) for span in block]
    assert flat == [span for span in lines if span in set(flat)]
    assert all(text[begin:end].strip() for begin, end in flat)


@given(st.text(alphabet="ab \n", max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_cuts_take_the_spans_and_nothing_else(text, spans):
    spans = [(min(*span, len(text)), min(max(span), len(text))) for span in spans]
    left = cut(text, spans)
    outside = [char for at, char in enumerate(text) if not any(begin <= at < end for begin, end in spans)]
    assert [char for char in left if char not in " \n"] == [char for char in outside if char not in " \n"]
    assert cut(text, []) == text


def test_cuts_leave_one_blank_line_and_no_half_sentence():
    text = "One two.\n\nThree four. Five six. Seven.\n\n    Eight."
    assert cut(text, [(10, 38)]) == "One two.\n\n    Eight."
    assert cut(text, [(22, 32)]) == "One two.\n\nThree four. Seven.\n\n    Eight."
    assert cut(text, [(0, 8)]) == "Three four. Five six. Seven.\n\n    Eight."
    found = sentences(text, 12, 33)
    assert [text[begin:end] for begin, end in found] == ["Five six. "]
    assert sentences("(One two.) Three.", 1, 9) == [(0, 11)]


def test_hostile_texts_take_linear_time():
    def work(text: str) -> None:
        fingerprints([text], tokens([text]), PassagesConfig())
        sentences(text, 0, len(text))
        cut(text, [(at, at + 1) for at in range(0, len(text) // 5, 2)])

    work("compiled")
    for unit in ("```\n", "\\[ ", "$$\n", "a.\n", ".", "a"):
        assert_linear(lambda size, unit=unit: work(unit * (size // len(unit))), 60_000)
