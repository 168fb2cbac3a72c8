"""Cutting documents: nothing lost, nothing cut that must stay whole, and about the right length."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.rephrase.segments import estimate_tokens, segment, sentences
from tasks.rephrase.structure import structure

ENGLISH = (
    "The scope of an identifier is a region of a program. It usually begins at the declaration, e.g. in a block, and "
    "ends with the block (see Fig. 3 of the manual). Dr. Knuth wrote 3.5 chapters about it! Is that enough? "
)
CHINESE = "系统启动时，内核首先初始化内存管理。然后它会挂载根文件系统，并启动第一个进程。这个过程通常需要几秒钟！"
FENCED = "```python\nfor line in file:\n\n    print(line. strip())\n\n# Not a heading. Not a sentence.\n```\n"
DISPLAY = "$$\na = b. C = d\n\n+ e\n$$\n"
ALIGN = "\\begin{align}\nx &= 1. Y \\\\\n\ny &= 2\n\\end{align}\n"
TABLE = "| name | value. A |\n|------|------|\n| one  | 1 |\n| two  | 2 |\n"
INDENTED = "Example:\n\n    def f(x):\n        return x. Y\n\n    f(1)\n\n"
INLINE = "We know that $f(x) = 0. A + b$ holds and `call. Me(x)` returns, see https://example.org/a.B?c. "

pieces = st.sampled_from(
    [ENGLISH, CHINESE, FENCED, DISPLAY, ALIGN, TABLE, INDENTED, INLINE, "# Heading\n", "\n\n", " "]
)
wild = st.text(alphabet=st.sampled_from("abc XYZ.。！\n\t`$|#-12中文\\()[]{}~>"), max_size=400)
documents = st.lists(pieces | wild, max_size=12).map("".join)


@settings(max_examples=150, deadline=None)
@given(documents, st.integers(16, 300))
def test_segments_put_together_are_the_document(text: str, tokens: int) -> None:
    found = segment(text, tokens)
    assert "".join(part.text for part in found) == text
    assert [part.index for part in found] == list(range(len(found)))
    assert all(text[part.start : part.end] == part.text for part in found)
    assert all(part.text for part in found)


@settings(max_examples=150, deadline=None)
@given(documents, st.integers(16, 300))
def test_no_cut_lies_inside_what_must_stay_whole(text: str, tokens: int) -> None:
    cuts = [part.start for part in segment(text, tokens)]
    for begin, end in structure(text).protected:
        assert not [cut for cut in cuts if begin < cut < end], text[begin:end]


@pytest.mark.parametrize("block", [FENCED, DISPLAY, ALIGN, TABLE, INDENTED.removeprefix("Example:\n\n"), INLINE])
def test_blocks_stay_whole_at_every_length(block: str) -> None:
    """Independent of `protected`: the block's own text must be found in one segment, wherever it stands."""
    core = block.strip("\n") if block is not INLINE else "$f(x) = 0. A + b$"
    for before in range(0, 12, 3):
        text = ENGLISH * before + "\n\n" + block + "\n\n" + ENGLISH * 4
        for tokens in (16, 40, 100):
            assert any(core in part.text for part in segment(text, tokens)), (before, tokens)


@pytest.mark.parametrize("sentence", [ENGLISH, CHINESE])
def test_segments_of_prose_are_about_as_long_as_asked(sentence: str) -> None:
    found = segment(sentence * 60, 256)
    lengths = [estimate_tokens(part.text) for part in found]
    assert all(length <= 256 for length in lengths)
    assert all(length >= 0.6 * 256 for length in lengths[:-1])


def test_prose_is_cut_between_sentences() -> None:
    for part in segment(ENGLISH * 20, 100):
        assert part.text.rstrip()[-1] in ".!?"
    for part in segment(CHINESE * 20, 100):
        assert part.text.rstrip()[-1] in "。！？"


def test_a_hard_wrapped_sentence_is_not_cut_at_its_line_breaks() -> None:
    wrapped = "Binary transmission was replaced in\nmost places by a newer protocol. It was\nmade for batches. "
    for part in segment(wrapped * 12, 20):
        assert part.text.rstrip().endswith(("protocol.", "batches."))


def test_items_of_a_list_are_cut_apart() -> None:
    text = "\n".join(f"- the item number {number} with a few words and no full stop" for number in range(20))
    assert all(part.text.startswith("- the item") for part in segment(text, 40))


def test_abbreviations_and_decimals_end_no_sentence() -> None:
    assert sentences(ENGLISH) == [
        "The scope of an identifier is a region of a program.",
        "It usually begins at the declaration, e.g. in a block, and ends with the block (see Fig. 3 of the manual).",
        "Dr. Knuth wrote 3.5 chapters about it!",
        "Is that enough?",
    ]
    assert len(sentences(CHINESE)) == 3


def test_a_heading_goes_with_what_follows_it() -> None:
    text = ENGLISH * 3 + "\n\n## Blocks\n\n" + ENGLISH * 3
    found = segment(text, estimate_tokens(ENGLISH) * 4)
    assert [part.text.startswith("## Blocks") for part in found] == [False, True]


@pytest.mark.parametrize("character", ["a", "字", "word, and ", "1", "-"])
def test_one_endless_line_is_cut_in_time(character: str) -> None:
    text = (character * 50_000)[:50_000]
    found = segment(text, 256)
    assert "".join(part.text for part in found) == text
    assert len(found) > 5
    assert max(estimate_tokens(part.text) for part in found) <= 300


def test_code_is_told_from_prose() -> None:
    kinds = [part.kind for part in segment(ENGLISH * 3 + "\n\n" + FENCED * 6 + "\n" + ENGLISH * 3, 120)]
    assert kinds[0] == kinds[-1] == "prose"
    assert "block" in kinds


def test_an_empty_document_has_no_segments() -> None:
    assert segment("") == []


def test_unclosed_fences_and_dollars_do_no_harm() -> None:
    text = "It costs $5 and $7. Then ```\nnothing closes this. " + ENGLISH * 30
    assert "".join(part.text for part in segment(text, 60)) == text


def test_estimate_is_additive_enough_and_near_a_real_tokenizer() -> None:
    """About 4.5 characters a token in English; a character a token in Chinese, never far off."""
    assert 0.18 < estimate_tokens(ENGLISH) / len(ENGLISH) < 0.32
    assert 0.8 < estimate_tokens(CHINESE) / len(CHINESE) < 1.1
    generator = random.Random(1)
    cut = sorted(generator.sample(range(len(ENGLISH)), 5))
    parts = [ENGLISH[a:b] for a, b in zip([0, *cut], [*cut, None], strict=True)]
    assert abs(sum(map(estimate_tokens, parts)) - estimate_tokens(ENGLISH)) <= 6
