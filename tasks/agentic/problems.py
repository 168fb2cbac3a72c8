"""Families of verifiable tasks: a problem, ways to ask for it, and the answer by rule.

A family draws keys; the key alone decides the answer, and its hash the split, so that no phrasing (nor the other order
of a commutative sum) of a held-out problem is ever trained on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from training.draw import problem_id
from training.rl.worlds.wording import Split

Key = tuple[int | str, ...]


@dataclass(frozen=True)
class Family:
    """One kind of verifiable task."""

    draw: Callable[[random.Random, int], Key]
    """A key of the given size (digits or letters)."""
    answer: Callable[[Key], str]
    phrasings: tuple[str, ...]
    """With {0}, {1}, ... for the key's items."""
    swaps: bool = False
    """Whether the order of the key's items does not matter: they are then asked in either."""


def _number(draw: random.Random, digits: int) -> int:
    return draw.randint(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)


def _pair(draw: random.Random, digits: int) -> Key:
    one, other = _number(draw, digits), _number(draw, digits)
    return min(one, other), max(one, other)


def _falling(draw: random.Random, digits: int) -> Key:
    low, high = _pair(draw, digits)
    return high, low


def _digits(draw: random.Random, count: int) -> Key:
    return ("".join(str(draw.randint(0, 9)) for _ in range(count)),)


FAMILIES: Mapping[str, Family] = {
    "addition": Family(
        _pair,
        lambda key: str(int(key[0]) + int(key[1])),
        ("{0}+{1}=", "What is {0} plus {1}?", "Add {0} and {1}.", "{0}加{1}等于几?"),
        swaps=True,
    ),
    "subtraction": Family(
        _falling,
        lambda key: str(int(key[0]) - int(key[1])),
        ("{0}-{1}=", "What is {0} minus {1}?", "Take {1} from {0}.", "{0}减{1}等于几?"),
    ),
    "larger": Family(
        _pair,
        lambda key: str(max(int(item) for item in key)),
        ("Which is larger, {0} or {1}?", "The larger of {0} and {1}?", "{0}和{1}哪个大?"),
        swaps=True,
    ),
    "reverse": Family(
        _digits,
        lambda key: str(key[0])[::-1],
        ("Reverse {0}.", "Write {0} backwards.", "把{0}倒过来写。"),
    ),
    "copy": Family(_digits, lambda key: str(key[0]), ("Repeat {0}.", "Say {0}.", "请重复{0}。")),
    "sort": Family(
        _digits,
        lambda key: "".join(sorted(str(key[0]))),
        ("Sort the digits of {0}.", "Put {0} in order.", "把{0}从小到大排列。"),
    ),
    "rotate": Family(
        _digits,
        lambda key: str(key[0])[1:] + str(key[0])[:1],
        ("Rotate {0} to the left.", "Move the first digit of {0} to the end.", "把{0}的第一位移到最后。"),
    ),
    "successor": Family(
        lambda draw, digits: (_number(draw, digits),),
        lambda key: str(int(key[0]) + 1),
        ("What comes after {0}?", "Count on from {0}.", "{0}后面的数是几?"),
    ),
}


def side(problem: str, share: float) -> Split:
    """The split of a problem, by its hash alone, in any run and any order; each held-out one has a `share` of all."""
    chance = int(problem[:8], 16) / 2**32
    return "test" if chance < share else "development" if chance < 2 * share else "train"


def same_work(name: str, key: Key) -> str:
    """The id of a family's problem. A sum is one problem whether it is asked for bare, through the calculator, or
    as what comes after a number."""
    if name == "successor":
        number = int(key[0])
        name, key = "addition", (min(1, number), max(1, number))
    return problem_id(name, *key)


def ask(family: Family, key: Key, draw: random.Random) -> str:
    """One way to ask for the problem."""
    items = list(key)
    if family.swaps:
        draw.shuffle(items)
    return draw.choice(family.phrasings).format(*items)
