"""How people ask: clauses of the families in the frames of a style, in two languages, and which side a wording is on.

A clause is a small grammar: `(send|move) {amount} euros` stands for two. A frame puts the clause into a sentence. What
is held out is a clause, whatever frame it stands in, so that a held-out wording is new in its words and not only in its
courtesies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Literal

from training.draw import draw

Split = Literal["train", "development", "test"]
Language = Literal["english", "chinese"]
SPLITS: tuple[Split, ...] = ("train", "development", "test")
SHARES: Mapping[str, float] = {"wording": 0.12, "arguments": 0.1, "tool": 0.1, "function": 0.06}
"""Of each of the two held-out splits, of everything of that kind."""

FRAMES: Mapping[str, Mapping[Language, tuple[str, ...]]] = {
    "terse": {
        "english": ("{Clause}.", "{clause}", "{Clause}!"),
        "chinese": ("{clause}。", "{clause}", "{clause}！"),
    },
    "polite": {
        "english": (
            "Could you please {clause}?",
            "Please {clause}.",
            "Would you {clause}, please?",
            "Hello! Could you {clause}? Thank you.",
        ),
        "chinese": ("请{clause}。", "麻烦你{clause}，谢谢。", "你好，请{clause}，谢谢你。", "能不能请你{clause}？"),
    },
    "chatty": {
        "english": (
            "Hi, me again. I had no coffee yet, but anyway: {clause}.",
            "So much to do today! First of all, {clause}.",
            "My sister says you are good at this, so {clause}, will you?",
        ),
        "chinese": (
            "又是我。今天真忙，不过先{clause}吧。",
            "朋友说你很能干，那就{clause}吧。",
            "咖啡还没喝呢，不管了，先{clause}。",
        ),
    },
    "formal": {
        "english": ("I would like you to {clause}.", "I kindly ask you to {clause}.", "Your task is to {clause}."),
        "chinese": ("烦请{clause}。", "我希望你{clause}。", "现需要你{clause}。"),
    },
}
QUESTIONS: Mapping[str, Mapping[Language, str]] = {
    "amount": {"english": "How many euros shall I transfer?", "chinese": "要转多少欧元？"},
    "reference": {"english": "Which reference shall I use?", "chinese": "用什么备注？"},
    "start": {"english": "At what time does it begin?", "chinese": "几点开始？"},
    "date": {"english": "On which date?", "chinese": "哪一天？"},
    "quantity": {"english": "How many of them?", "chinese": "要几件？"},
    "target": {"english": "Where shall it go?", "chinese": "放到哪里？"},
    "content": {"english": "What shall it say?", "chinese": "写什么内容？"},
    "priority": {
        "english": "Which priority: low, normal, high or urgent?",
        "chinese": "优先级是什么：low、normal、high 还是 urgent？",
    },
    "person": {"english": "Who shall work on it?", "chinese": "交给谁？"},
    "guest": {"english": "Whom shall I invite?", "chinese": "邀请谁？"},
    "by": {"english": "By how much?", "chinese": "改多少？"},
    "days": {"english": "By how many days?", "chinese": "推迟几天？"},
    "tag": {"english": "Which tag?", "chinese": "什么标签？"},
    "text": {"english": "What shall the note say?", "chinese": "备注写什么？"},
}
"""How an assistant asks for an argument that a user has left out."""

_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")


@cache
def expand(grammar: str) -> tuple[str, ...]:
    """Every text of a grammar, in order."""
    pieces = _CHOICE.split(grammar)
    choices = [piece.split("|") if place % 2 else [piece] for place, piece in enumerate(pieces)]
    return tuple(" ".join("".join(chosen).split()) for chosen in product(*choices))


def fields(text: str) -> set[str]:
    """The names in braces."""
    return set(re.findall(r"\{(\w+)\}", text))


def say(frame: str, clause: str) -> str:
    """A clause in its frame."""
    return frame.format(clause=clause, Clause=clause[:1].upper() + clause[1:])


def split_of(kind: str, name: str) -> Split:
    """The side of a wording, of arguments, of a tool's name or of a function: by hash alone, in any run."""
    share, chance = SHARES[kind], draw(f"agentic-{kind}", 0, name)
    return "test" if chance < share else "development" if chance < 2 * share else "train"


def hardest(splits: list[Split]) -> Split:
    """The split of what has parts: held out as soon as one of them is."""
    return max(splits, key=SPLITS.index, default="train")
