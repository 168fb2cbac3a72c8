"""Chinese into English, held to the same gate as far as it reaches across languages."""

from __future__ import annotations

import pytest

from tasks.rephrase.alignment.answer import language, length
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import MONOLINGUAL, align
from tasks.rephrase.alignment.translation import sentencewise
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()
PAIRS = [
    (
        "质数是大于1且只能被1和它自身整除的自然数。2是唯一的偶质数。欧几里得证明了质数有无穷多个：假设只有有限个质数，"
        "把它们相乘再加1，所得的数不能被其中任何一个整除，这与假设矛盾。",
        "A prime number is a natural number greater than 1 that is divisible only by 1 and by itself. 2 is the only "
        "even prime. Euclid proved that there are infinitely many primes: suppose there were only finitely many; "
        "multiply them together and add 1, and the number obtained is divisible by none of them, which contradicts the "
        "assumption.",
    ),
    (
        "系统启动时，内核首先初始化内存管理。然后它会挂载根文件系统，并启动第一个进程。这个过程通常需要几秒钟。如果磁盘损坏，"
        "启动会停止，并显示错误信息。",
        "When the system boots, the kernel first initialises memory management. It then mounts the root file system "
        "and starts the first process. This usually takes a few seconds. If the disk is damaged, booting stops and an "
        "error message is displayed.",
    ),
    (
        "解：设 $x$ 为所求的数，则 $2x+3=11$。两边同时减去 $3$，得 $2x=8$。因此 $x=4$。",
        "Solution: let $x$ be the number we are looking for; then $2x+3=11$. Subtracting $3$ from both sides gives "
        "$2x=8$. Hence $x=4$.",
    ),
]


class Nobody:
    """A network that reads English alone is not asked about Chinese."""

    def vector(self, text: str) -> None:
        raise AssertionError("asked")


@pytest.mark.parametrize("pair", PAIRS)
def test_a_true_translation_passes(pair: tuple[str, str]) -> None:
    alignment = align(Pair(*pair, translated="zh"), CONFIG, Nobody())
    assert alignment.accepted, alignment.why
    scores = alignment.scores()
    assert {name for name, score in scores.items() if score is None} == MONOLINGUAL | {"judge"}


def test_a_sentence_left_out_shows_in_the_lengths() -> None:
    source, translation = PAIRS[0]
    dropped = Pair(source, translation[: translation.index("Euclid")], translated="zh")
    verdict = sentencewise(dropped, CONFIG)
    assert not verdict.passed
    assert "missing" in verdict.why
    added = Pair(
        source, translation + " It has been studied ever since by many people in many countries." * 2, translated="zh"
    )
    assert sentencewise(added, CONFIG).score > sentencewise(Pair(source, translation, translated="zh"), CONFIG).score


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [("$2x=8$", "$2y=8$", "formulas"), ("Hence $x=4$", "因此 $x=4$，这就是所求的数，请再检验一次", "language")],
)
def test_what_must_be_the_same_in_every_language(old: str, new: str, check: str) -> None:
    source, translation = PAIRS[2]
    assert old in translation
    alignment = align(Pair(source, translation.replace(old, new), translated="zh"), CONFIG, Nobody())
    assert alignment.reason == check


def test_the_source_again_is_no_translation() -> None:
    source = PAIRS[1][0]
    assert not language(Pair(source, source, translated="zh"), CONFIG).passed
    assert not length(Pair(source, source, translated="zh"), CONFIG).passed
    assert not length(Pair(source, PAIRS[1][1] * 3, translated="zh"), CONFIG).passed
    assert not length(Pair(source, PAIRS[1][1], translated="de"), CONFIG).passed
