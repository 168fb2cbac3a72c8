"""Texts that every rule keeps, for tests that change one thing about them; configurations without a kind of rule."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tasks.corpus.config import CorpusConfig
from tasks.corpus.wordlist import words

PUBLISHED = CorpusConfig()
WHOLE_LINES = dict.fromkeys(type(PUBLISHED.prose.lines).model_fields)
"""Line rules off."""

NOUNS = sorted(
    words("river harbour market valley forest temple garden engine bridge island castle mountain station library")
)
VERBS = sorted(words("crosses follows borders feeds shelters guards reaches divides joins overlooks"))
HAN = "春夏秋冬山川河海城市村庄道路桥梁学校书老师生天空云雨雪花草树木牛羊鱼虫金银石土水火光色"


def sentence(pick: random.Random) -> str:
    """Thirteen words and a full stop."""
    pool = [*NOUNS, *VERBS, *"the of and that with have to be near under over old green quiet".split()]
    return f"{' '.join(pick.choices(pool, k=13)).capitalize()}."


def prose(sentences: int = 30, seed: int = 1) -> str:
    """English sentences that hardly repeat, three to a paragraph."""
    pick = random.Random(seed)
    lines = [sentence(pick) for _ in range(sentences)]
    return "\n\n".join(" ".join(lines[at : at + 3]) for at in range(0, sentences, 3))


def chinese(sentences: int = 20, seed: int = 1) -> str:
    """Chinese sentences that hardly repeat, one to a paragraph."""
    pick = random.Random(seed)

    def word() -> str:
        return "".join(pick.choices(HAN, k=2))

    return "\n\n".join(
        f"{word()}的{word()}在{word()}和{word()}之间，{word()}是{word()}的{word()}。" for _ in range(sentences)
    )


PROGRAM = "\n".join(f"def function_{n}(value):\n    return value * {n} + 1\n" for n in range(10))

_MARKS = (
    "the ", "and ", "be", "word ", " ", "\n", "\n\n", ".", "...", "…", "! ", "。", "，", ",", "- ", "* ", "•",
    "#", "## ", "中", "國", "国", "的", "12", "3.5 ", "x_1 ", "{", "}", "|", "'", '"', "\t", "\ufffd", "\u3000",
    "é", "```", "```\n", "$$", "$$\n", "$", "\\(", "\\)", "\\[", "\\]", "\\", "the and be\n", "[1]", "[edit]",
    "Privacy policy", "JavaScript", "a" * 70, "QUJD" * 20, "0x1f, ", "\\x1f", "\\u4e2d", "1f ", "// ", "İ",
    "\u2028", "\r",
)  # fmt: skip
PIECES = st.lists(st.one_of(st.sampled_from(_MARKS), st.text(max_size=4)), max_size=60).map("".join)
"""Texts made of what the counting has to tell apart."""
