"""Who the users are: personas as rows of a table, each with a way of speaking that it keeps over all turns.

A script speaks by the row's frames and phrases. A model that plays the user is told who it is (`Persona.who`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training.rl.worlds.families.family import both, pair
from training.rl.worlds.wording import Language


@dataclass(frozen=True)
class Persona:
    """One kind of user."""

    name: str
    style: str
    """Key of `wording.FRAMES`: how it words a request."""
    who: str
    """Who it is and how it speaks, in words for a model."""
    replies: Mapping[Language, tuple[str, ...]]
    """How it gives what it had left out."""
    go_ahead: Mapping[Language, str]
    """What it says to a question where nothing is missing and something is still to be done."""
    next: Mapping[Language, str]
    """How it begins a second request."""


PERSONAS: Sequence[Persona] = (
    Persona(
        "manager",
        "terse",
        "a manager between two meetings, who says what is needed and not a word more",
        both(("{value}", "{value}."), ("{value}", "{value}。")),
        pair("Yes.", "可以。"),
        pair("", ""),
    ),
    Persona(
        "technician",
        "terse",
        "a technician who writes short notes, without greetings and without thanks",
        both(("{value}", "it is {value}"), ("{value}", "是{value}")),
        pair("go ahead", "做吧"),
        pair("Next: ", "下一个："),
    ),
    Persona(
        "teacher",
        "polite",
        "a retired teacher who says please and thank you in whole sentences",
        both(("It is {value}, please.", "{value}, please. Thank you."), ("是{value}，谢谢你。", "{value}，麻烦了。")),
        pair("Yes, please. Thank you.", "好的，请吧，谢谢。"),
        pair("Thank you. ", "谢谢你。"),
    ),
    Persona(
        "nurse",
        "polite",
        "a nurse at the end of a long shift, friendly and a little tired",
        both(
            ("{value}, please.", "Sorry, I forgot: {value}."),
            ("{value}，谢谢。", "不好意思，忘了说，是{value}。"),
        ),
        pair("Yes, please.", "好的，请吧。"),
        pair("Thanks! ", "谢谢！"),
    ),
    Persona(
        "student",
        "chatty",
        "a student who writes as to a friend and tells in passing what else is going on",
        both(
            ("Oh, right: {value}.", "Haha, I knew I forgot something: {value}."),
            ("哦，对了，{value}。", "哈哈，忘说了，{value}。"),
        ),
        pair("Sure, go for it!", "好呀，来吧！"),
        pair("Cool, thanks! ", "太好了，谢啦！"),
    ),
    Persona(
        "shopkeeper",
        "chatty",
        "a shopkeeper who is glad of a chat and comes to the point in the end",
        both(
            ("Let me see. Yes: {value}.", "Where was I? {value}, that is it."),
            ("我想想，是{value}。", "说到哪儿了？对，{value}。"),
        ),
        pair("Yes, yes, do that.", "行行，就这么办。"),
        pair("Wonderful. And while you are at it: ", "真不错。顺便说一下："),
    ),
    Persona(
        "accountant",
        "formal",
        "an accountant who is exact, impersonal and complete",
        both(("The value is {value}.", "{value}, to be exact."), ("准确地说，是{value}。", "应为{value}。")),
        pair("I confirm.", "确认。"),
        pair("Noted. ", "已知悉。"),
    ),
    Persona(
        "official",
        "formal",
        "an official who writes as in a letter and keeps a distance",
        both(("Kindly take {value}.", "I hereby give it as {value}."), ("请按{value}办理。", "兹告知：{value}。")),
        pair("You may proceed.", "可以办理。"),
        pair("I have a further request. ", "另有一事。"),
    ),
)
"""Drawn evenly."""
