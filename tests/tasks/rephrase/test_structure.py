"""What must stay whole is found, whatever is missing around it; and no text costs more than its length."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.rephrase.segments import estimate_tokens, segment, sentences
from tasks.rephrase.structure import structure

PROSE = "The scope of a name is a region of a program. It begins at the declaration and ends with the block. "
WHOLE = {
    "fence": "```python\na. B\n\n# C. D\n```",
    "tilde fence with backticks inside": "~~~\n```\na. B\n\nC\n~~~",
    "unclosed fence": "```\na. B\n\nC. D",
    "indented code": "    x = a. B\n\n    C. D",
    "doctest": ">>> f(1). Real\n1. One\n>>> g()\n2",
    "table": "| a. B | c |\n|---|---|\n| d. E | f |",
    "table without outer pipes": "a. B | c\n---|---\nd. E | f\nG. H | i",
    "grid": "+-----+-----+\n| a. B| c   |\n+=====+=====+\n| D. E| f   |\n+-----+-----+",
    "simple table": "====  ====\na. B  c\n====  ====\nD. E  f\n====  ====",
    "tabs": "name\tvalue. A\none\t1. B\ntwo\t2. C",
    "columns": "name      value. A\none       1. B\ntwo       2. C",
    "columns of full-width blanks": "姓名\u3000\u3000住址。号\n张三\u3000\u3000东街。一号\n李四\u3000\u3000西街。二号",
    "table with Windows line ends": "a. B | c\r\n---|---\r\nd. E | f\r\nG. H | i",
    "grid with Windows line ends": "+-----+\r\n| a. B|\r\n+=====+\r\n| D. E|\r\n+-----+",
    "quoted table": "> | a. B | c |\n> |---|---|\n> | d. E | f |",
    "HTML table": "<table class='x'>\n<tr><td>a. B</td>\n\n<td><table><tr>C. D</tr></table></td></tr>\n</table>",
    "pre": "<pre>\na. B\n\nC. D\n</pre>",
    "display": "$$\na = b. C\n\n+ d\n$$",
    "brackets": "\\[\na = b. C\n\n+ d\n\\]",
    "nested environments": "\\begin{align}\n\\begin{split}\na &= b. C\n\\end{split}\\\\\n\nd &= e\n\\end{align}",
    "unknown environment": "\\begin{prooftree}\na. B\n\nC. D\n\\end{prooftree}",
}
INLINE = {
    "formula": "$f(x) = 0. A + b$",
    "formula over two lines": "$f(x) = 0. A\n+ b$",
    "parentheses": "\\(f(x) = 0. A + b\\)",
    "code": "`call. Me(x)`",
    "code with a backtick": "`` a ` b. C ``",
    "URL": "https://example.org/a.B?c=D",
}


@pytest.mark.parametrize("name", [*WHOLE, *INLINE])
def test_it_stays_whole_wherever_it_stands(name: str) -> None:
    core = WHOLE.get(name) or INLINE[name]
    for before in (0, 1, 3, 7):
        text = PROSE * before + (f"\n\n{core}\n\n" if name in WHOLE else f"We know that {core} holds. ") + PROSE * 3
        for tokens in (16, 40, 100):
            assert any(core in part.text for part in segment(text, tokens)), (before, tokens)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and that one $7. ",
        "A stray $$ and `one backtick. ",
        "\\begin{theorem}\nEvery number. Has a successor.\n\\end{theorem}\n",
        "An open <table and an open \\[ bracket. ",
        "\\$5 is not \\$7. ",
    ],
)
def test_prices_strays_and_theorems_are_prose(text: str) -> None:
    assert structure(text).protected == []


def test_a_url_ends_where_chinese_begins() -> None:
    text = "见https://example.org/a，这里有说明。然后继续。"
    assert [text[begin:end] for begin, end in structure(text).inline] == ["https://example.org/a"]


def test_a_sentence_ends_behind_a_url() -> None:
    text = "The source is at https://example.org/a.b(c). The next sentence, http://a.org/x: more. And (http://b.org/y)."
    assert [text[begin:end] for begin, end in structure(text).inline] == [
        "https://example.org/a.b(c)",
        "http://a.org/x",
        "http://b.org/y)",
    ]
    assert len(sentences(text)) == 3


def test_a_paragraph_inside_an_item_is_no_code() -> None:
    assert structure("- one\n\n    more of one\n\n- two\n").blocks == []
    assert structure("- one\n\n        code of one\n\n- two\n").blocks


def test_items_and_quotations_stay_whole_where_they_fit() -> None:
    item = "- The first step is this. It has two sentences. And a third one here.\n"
    assert all(part.text.startswith("- The first") for part in segment(item * 12, 40))
    quotation = "他说：“今天下雨。我们不去了。明天再说！”"
    for part in segment(quotation * 12, 50):
        assert part.text.count("“") == part.text.count("”")
    assert len(segment("“好！”他说。" * 2, 16)[0].text) >= 7


def test_a_heading_is_not_parted_from_what_it_heads() -> None:
    text = "".join(f"## Part {number}\n\n{PROSE}\n\n" for number in range(12))
    for part in segment(text, 40):
        assert not part.text.rstrip().splitlines()[-1].startswith("#")


def test_what_has_no_words_is_not_sent() -> None:
    assert [part.kind for part in segment("* * *\n\n", 16)] == ["block"]
    assert segment("http://example.org/" + "a" * 50_000, 64)[0].kind == "block"


atoms = st.sampled_from(
    [
        "word ",
        "And a sentence. ",
        "字。",
        "“",
        "”",
        "$",
        "$$",
        "`",
        "```\n",
        "~~~\n",
        "\n",
        "\n\n",
        "| a | b |\n",
        "- item\n",
        "\\[",
        "\\]",
        "\\begin{align}",
        "\\end{align}",
        "<table>",
        "</table>",
        "    code\n",
        ">>> f()\n",
        "a\tb\n",
        "# H\n",
        "https://a.b/c ",
        "x" * 70,
        "12345 ",
        "\\",
        "=== ===\n",
        "。",
        "……",
        "́",
        "   ",
    ]
)
hostile = st.lists(atoms, max_size=60).map("".join)


@settings(max_examples=120, deadline=None)
@given(hostile, st.integers(16, 120))
def test_laws_of_cutting(text: str, tokens: int) -> None:
    """Nothing lost, nothing cut that must stay whole, no segment too long without a reason, always the same."""
    found = segment(text, tokens)
    spans = structure(text).protected
    assert "".join(part.text for part in found) == text
    assert found == segment(text, tokens)
    for part in found:
        assert not any(begin < part.start < end for begin, end in spans)
        long = [estimate_tokens(text[b:e]) for b, e in spans if b < part.end and e > part.start]
        assert estimate_tokens(part.text) <= max(tokens, *long, 0) + tokens / 8 + 8


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "字",
        " ",
        "\n",
        ".",
        ". ",
        "`a ",
        "```\n",
        "$a ",
        "$$a ",
        "|",
        "|-|-\n",
        "[",
        "\\[",
        "\\begin{align}",
        "<table ",
        "“",
        "- a\n",
        "# a\n",
        "= =\na b\n",
        "a\tb\n",
        "http://",
        "\\",
        ",",
        "    a\n\n",
        "1. ",
    ],
)
def test_a_hostile_line_is_cut(unit: str) -> None:
    """Quadratic work on these would be minutes; what is measured stands in docs/rephrase/segments.md."""
    text = (unit * 50_000)[:50_000]
    assert "".join(part.text for part in segment(text)) == text


def test_environments_nested_a_thousand_deep() -> None:
    text = "\\begin{align}" * 1000 + "x. Y" + "\\end{align}" * 1000
    assert "".join(part.text for part in segment(text)) == text
