"""Multiple choice by log-likelihood: which choice the model finds likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluate.suites.config import Choice
from tasks.evaluate.suites.item import Item, Measured, Scored, Unmeasurable, rate
from tasks.evaluate.suites.subject import Subject

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def measure(suite: Choice, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """The likeliest letter behind the question and its choices, or the likeliest text by character behind the question
    alone."""
    rows = [_read(suite, item) for item in items]
    dues = _due(suite, items, rows)
    pairs: list[tuple[str, str]] = []
    spans: list[tuple[int, int]] = []
    for item, row in zip(items, rows, strict=True):
        question, choices = row.question, row.choices
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
    for item, row, due, (first, stop) in zip(items, rows, dues, spans, strict=True):
        # of texts of several lengths the longer is the less likely: per character they can be compared
        by = [told[place].log_p / (1 if suite.by == "letter" else len(pairs[place][1])) for place in range(first, stop)]
        said = by.index(max(by))
        wrong = "" if said == due else f"not {row.choices[due]}"
        scored.append(Scored(item.id, float(said == due), row.choices[said], wrong))
    chance = sum(1 / (stop - first) for first, stop in spans) / len(spans)
    return Measured("right choices", scored, rate(scored), {"chance": round(chance, 4)})


@dataclass(frozen=True)
class _Row:
    """An item as it is asked."""

    question: str
    choices: list[str]
    labels: list[str]
    """Of the choices, where they come with some; not always letters: 1 of 1, 2, 3, 4 is the first."""
    answer: Any


def _read(suite: Choice, item: Item) -> _Row:
    row = item.row
    try:
        question, given, answer = str(row[suite.question_field]), row[suite.choices_field], row[suite.answer_field]
        texts, labels = (
            (given["text"], given.get("label", [])) if isinstance(given, dict) else (given, [])
        )  # ARC has both
        if not isinstance(texts, list):
            raise ValueError(f"list of choices ({str(texts)[:40]!r})")
        return _Row(question, [str(one) for one in texts], [str(one) for one in labels], answer)
    except (KeyError, TypeError, ValueError) as error:
        raise Unmeasurable(
            f"item {item.id} of suite '{suite.name}' has no {error}: set question_field, choices_field, answer_field"
        ) from None


def _label(row: _Row) -> int | None:
    return row.labels.index(str(row.answer)) if str(row.answer) in row.labels else None


def _text(row: _Row) -> int | None:
    text = str(row.answer).strip()
    return row.choices.index(text) if isinstance(row.answer, str) and text in row.choices else None


def _letter(row: _Row) -> int | None:
    text = str(row.answer).strip().upper()
    return LETTERS.index(text) if len(text) == 1 and text in LETTERS[: len(row.choices)] else None


def _place(row: _Row) -> int | None:
    text = str(int(row.answer) if isinstance(row.answer, bool) else row.answer).strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) < len(row.choices) else None


def _due(suite: Choice, items: Sequence[Item], rows: Sequence[_Row]) -> list[int]:
    """The right choice's number in each item. How texts name it is read off all of them: `1` may be a choice's text or
    its place, and `A` its letter or its text. Raises Unmeasurable where no reading fits all."""
    readings = (_text, _letter, _place)
    sure = [_label(row) if row.labels else _place(row) if isinstance(row.answer, int) else None for row in rows]
    for reading in readings:
        found = [reading(row) if number is None else number for row, number in zip(rows, sure, strict=True)]
        if None not in found:
            return [number for number in found if number is not None]
    bad = next((at for at, row in enumerate(rows) if all(reading(row) is None for reading in readings)), 0)
    raise Unmeasurable(
        f"item {items[bad].id} of suite '{suite.name}' has no right answer among its choices "
        f"({str(rows[bad].answer)[:40]!r}), or the suite's answers are written in several ways: set answer_field"
    )
