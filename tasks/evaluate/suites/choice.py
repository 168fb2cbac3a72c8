"""Multiple choice by log-likelihood: which choice the model finds likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.evaluate.suites.config import Choice
from tasks.evaluate.suites.item import Item, Measured, Scored, Unmeasurable, rate
from tasks.evaluate.suites.subject import Subject

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def measure(suite: Choice, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """The likeliest letter behind the question and its choices, or the likeliest text by character behind the question
    alone."""
    pairs: list[tuple[str, str]] = []
    spans: list[tuple[int, int]] = []
    for item in items:
        question, choices, _ = _read(suite, item)
        spans.append((len(pairs), len(pairs) + len(choices)))
        if suite.by == "letter":
            if len(choices) > len(LETTERS):
                raise Unmeasurable(
                    f"item {item.id} of suite '{suite.name}' has {len(choices)} choices and no letters for them: "
                    "set `by: text`"
                )
            listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
            pairs += [(f"{question}\n{listed}\nAnswer:", f" {letter}") for letter in LETTERS[: len(choices)]]
        else:
            pairs += [(f"Question: {question}\nAnswer:", f" {choice}") for choice in choices]
    told = subject.likelihoods(pairs)
    scored = []
    for item, (first, stop) in zip(items, spans, strict=True):
        _, choices, due = _read(suite, item)
        # of texts of several lengths the longer is the less likely: per character they can be compared
        by = [told[place].log_p / (1 if suite.by == "letter" else len(pairs[place][1])) for place in range(first, stop)]
        said = by.index(max(by))
        scored.append(Scored(item.id, float(said == due), choices[said], "" if said == due else f"not {choices[due]}"))
    chance = sum(1 / (stop - first) for first, stop in spans) / len(spans)
    return Measured("right choices", scored, rate(scored), {"chance": round(chance, 4)})


def _read(suite: Choice, item: Item) -> tuple[str, list[str], int]:
    """(question, choices, the right one's number)."""
    row = item.row
    try:
        question, given = str(row[suite.question_field]), row[suite.choices_field]
        choices = [str(one) for one in (given["text"] if isinstance(given, dict) else given)]  # ARC keeps two columns
        # whose labels are not always letters: 1 of 1, 2, 3, 4 is the first
        labels = [str(one) for one in given.get("label", ())] if isinstance(given, dict) else []
        answer = row[suite.answer_field]
        due = labels.index(str(answer)) if str(answer) in labels else _number(answer, choices)
    except (KeyError, TypeError, ValueError) as error:
        raise Unmeasurable(
            f"item {item.id} of suite '{suite.name}' has no {error}: set question_field, choices_field, answer_field"
        ) from None
    return question, choices, due


def _number(answer: Any, choices: Sequence[str]) -> int:
    if isinstance(answer, int) and 0 <= answer < len(choices):
        return answer
    text = str(answer).strip()
    if text in choices:
        return list(choices).index(text)
    if len(text) == 1 and text.upper() in LETTERS[: len(choices)]:
        return LETTERS.index(text.upper())
    if text.isdigit() and int(text) < len(choices):
        return int(text)
    raise ValueError(f"right answer among its choices ({text[:40]!r})")
