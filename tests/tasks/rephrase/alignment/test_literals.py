"""Code, URLs, paths and identifiers stand in the rewrite letter for letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.literals import code
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()


@pytest.mark.parametrize(
    ("source", "rewrite", "passes"),
    [
        ("Call `f(x)` with max_size set.", "With max_size set, `f(x)` is called.", True),
        ("It is -5 to 15 °C there.", "There it is from minus five to 15 °C.", True),
        ("Kill it with -9 now.", "Now kill it with nine.", False),
        ("It is dated 25.12.2021.", "Its date is December 25, 2021.", True),
        ('He said "it is dead on arrival".', "In his words, “it is dead on arrival”.", True),
        ('He said "it is dead on arrival".', "In his words, “it is late on arrival”.", False),
        ('He said "it is dead on arrival".', "“It is dead ...”, he said.", True),
        ('"It is dead," he said, "and buried for good."', "He said: “It is dead and buried for good.”", True),
        ("子曰：“学而时习之，不亦说乎？”", "“学而时忘之，不亦说乎？”是孔子的话。", False),
        ("Call `f(x)` with max_size set.", "With min_size set, `f(x)` is called.", False),
        ("Run it with --verbose.", "Use --verbose when you run it.", True),
        ("Run it with --verbose.", "Use --quiet when you run it.", False),
        ("Run it with --verbose.", "Use --verbos when you run it.", False),
        ("Run it with -v.", "Run it with --version.", False),
        ("Use os.path.join here.", "Here os.path.join is of use.", True),
        ("Write to a@b.org.", "Send a mail to c@b.org.", False),
        ("A plain sentence.", "A sentence with `invented_code`.", False),
        ("Commit with `git`.", "With git, commit.", True),
        ("Use `git commit`.", "Use `git reset`.", False),
        ("The file /etc/nginx/nginx.conf is read.", "It reads /etc/nginx/nginx.conf.", True),
        ("The file /etc/nginx/nginx.conf is read.", "It reads /etc/nginx.", False),
        ("Set $HOME first.", "First set $HOME.", True),
        ("Set $HOME first.", "First set $PATH.", False),
        ("Python 3.11.7 is needed.", "You need Python 3.11.8.", False),
        ("See https://a.org/b_(c).", "It is at https://a.org/b_(c), which see.", True),
        ("See https://a.org/b?c=1.", "It is at https://a.org/b?c=2.", False),
        ("It hashes to 3f2a9bc41d.", "Its hash is 3f2a9bc41e.", False),
        ("Text is in UTF-8.", "UTF-16 is the text's encoding.", False),
        ("CO₂ warms the air.", "Carbon dioxide makes air warmer.", True),
        ("It holds 35 cubic metres.", "It holds 35 m³, or 35 m3.", True),
        ("It is 2.5 mol/L.", "It is 2.5 mol L⁻¹.", True),
        ("Cells hold Ca²⁺ back.", "Ca2+ is held back by cells.", True),
        ("CO₂ warms the air.", "CO warms the air, as does CO₃.", False),
        ("The net 10.0.0.0/8 is private.", "Private is 10.0.0.0/8, a net.", True),
        ("The net 10.0.0.0/8 is private.", "Private is 10.0.0.0/16, a net.", False),
        ("It works, e.g. here.", "For example here, i.e. it works.", True),
        ("Combine `find -print0` with care.", "Take care when you give `find` its `-print0`.", True),
        ("用`git revert`撤销。", "要撤销，用`git revert`。", True),
        ("用`git revert`撤销。", "要撤销，用`git reset`。", False),
        ("Call `free(p)`; `free()` ends it.", "`free` ends it, called as `free(p)`.", True),
        ("Write `MAX` there.", "There, write `MIN`.", False),
        ("```\nx = 1\n```", "```\nx = 2\n```", False),
        ("The half-life of carbon-14 is known.", "Carbon-14 has a known half-life.", True),
        ("The half-life of carbon-14 is known.", "Carbon-12 has a known half-life.", False),
        ("Ext4 uses extents.", "Extents are used by ext4.", True),
        ("A Java `String` is compared so.", "So are Java strings compared.", True),
        ("A Java `String` is compared so.", "So are Java's `Strings` compared.", False),
        ("The host runs macOS.", "macOS runs on the Mac.", True),
    ],
)
def test_code(source: str, rewrite: str, passes: bool) -> None:
    assert code(Pair(source, rewrite), CONFIG).passed is passes


def test_a_name_of_the_segment_before_is_no_invention() -> None:
    before = "The function `parse_args` comes first."
    assert code(Pair("It reads the options.", "`parse_args` reads the options.", before_source=before), CONFIG).passed
    assert not code(Pair("It reads the options.", "`parse_args` reads the options."), CONFIG).passed
    pair = Pair("Then `read_file` follows.", "Then `parse_args` follows.", before_source=before)
    assert not code(pair, CONFIG).passed


def test_the_verdict_says_what_became_what() -> None:
    assert code(Pair("Set max_size.", "Set min_size."), CONFIG).why == "max_size became min_size"


@given(st.text(max_size=200) | st.text(alphabet="ab1`./-_$(){}:@ \n", max_size=120))
def test_a_text_has_its_own_literals(text: str) -> None:
    assert code(Pair(text, text), CONFIG).passed


LOOP = """The divisor is found by a loop, which needs few steps.

    while b:
        a, b = b, a % b
    return a

| size | steps |
|------|-------|
| small | few |
| large | many |

Nobody knows a simpler one."""
SAID = LOOP.replace("The divisor is found by a loop, which needs few steps.", "A loop of few steps finds the divisor.")


@pytest.mark.parametrize(
    "spoil",
    [
        ("a, b = b, a % b", "b, a = a, b % a"),
        ("while b:", "while a:"),
        ("    return a\n", ""),
        ("    return a", "        return a"),
        ("| small | few |\n| large | many |", "| small | many |\n| large | few |"),
        ("| small | few |\n| large | many |", "| large | many |\n| small | few |"),
        ("| large | many |\n", ""),
        ("    while b:\n        a, b = b, a % b\n    return a\n\n", ""),
        ("    while b:\n        a, b = b, a % b", "        a, b = b, a % b\n    while b:"),
    ],
)
def test_code_and_tables_within_prose_are_kept_line_by_line(spoil: tuple[str, str]) -> None:
    assert code(Pair(LOOP, SAID), CONFIG).passed
    spoilt = SAID.replace(*spoil)
    assert spoilt != SAID
    verdict = code(Pair(LOOP, spoilt), CONFIG)
    assert not verdict.passed
    assert verdict.why


def test_lines_of_a_doctest_are_kept() -> None:
    source = "It adds.\n\n>>> add(1, 2)\n3\n\nThat is all."
    assert code(Pair(source, source.replace("It adds.", "This adds.")), CONFIG).passed
    assert not code(Pair(source, "This adds.\n\n>>> add(2, 1)\n3\n\nThat is all."), CONFIG).passed


@pytest.mark.parametrize(
    ("source", "rewrite"),
    [
        (
            LOOP,
            SAID.replace("    while", "```python\nwhile").replace("\n    ", "\n").replace("return a", "return a\n```"),
        ),
        (LOOP, SAID.replace("|------|-------|", "| :--- | :---: |").replace("| small |", "|  small  |")),
        ("    x = f(y)\n    g(x)\n\nIt calls both.", "x = f(y)\n    g(x)\n\nBoth are called."),
        ("It is so:\n\n    $$a = b + c$$\n\nas was said.", "As was said:\n\n$$b + c = a$$\n\nThat is so."),
        ("- One.\n\n    It goes on in a paragraph of its own.\n", "- One.\n\n    A paragraph continues it."),
        (
            "He wrote:\n\n    The night was dark,\n    and the sea was rough.\n\nThat is all.",
            "He wrote of a dark night.",
        ),
        ("```python\n```", ""),
    ],
)
def test_what_may_change_of_a_block_may_change(source: str, rewrite: str) -> None:
    assert code(Pair(source, rewrite), CONFIG).passed, code(Pair(source, rewrite), CONFIG).why


def test_a_table_is_translated_but_its_code_is_not() -> None:
    source = "如下：\n\n| 大小 | 步数 |\n|---|---|\n| 小 | 少 |\n\n    x = f(y)\n\n完。"
    good = "As follows:\n\n| size | steps |\n|---|---|\n| small | few |\n\n    x = f(y)\n\nThe end."
    assert code(Pair(source, good, translated="zh"), CONFIG).passed
    assert not code(Pair(source, good.replace("f(y)", "y"), translated="zh"), CONFIG).passed
