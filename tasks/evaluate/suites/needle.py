"""Needle in a haystack: a number in one sentence, hidden at some depth among unrelated ones, asked for at the end."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from tasks.evaluate.suites.config import Needle
from tasks.evaluate.suites.item import Item, Measured, Scored, rate
from tasks.evaluate.suites.subject import Ask, Subject
from training.draw import seeded

SUBJECTS = ("The gardener", "A neighbour", "The old clerk", "Her cousin", "The baker", "A visitor", "The captain")
DEEDS = ("walked along", "wrote about", "painted", "remembered", "looked for", "measured", "sketched", "crossed")
THINGS = ("the river", "the harbour", "a narrow bridge", "the market", "the orchard", "a quiet square", "the mill")
TIMES = ("before noon", "in the rain", "last winter", "twice a week", "without a word", "at dusk", "on foot")
CITIES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Dakar", "Turin", "Perth", "Bergen", "Cusco", "Lyon", "Osaka", "Riga")


def measure(suite: Needle, subject: Subject, items: list[Item], seed: int) -> Measured:
    """Every length at every depth, `repeats` times; right where the reply holds the number."""
    places = [
        (length, depth, draw) for length in suite.lengths for depth in suite.depths for draw in range(suite.repeats)
    ]
    asks, numbers = [], []
    for length, depth, draw in places:
        stream = random.Random(seeded(seed, suite.name, length, depth, draw))
        city, number = stream.choice(CITIES), str(stream.randint(10_000, 99_999))
        needle = f"The secret number of {city} is {number}."
        ending = (
            f"\nThe secret number of {city} is"
            if suite.form == "raw"
            else f"\n\nWhat is the secret number of {city}? Answer with the number."
        )
        budget = length - suite.max_new_tokens - subject.count(needle + ending) - 16  # the format's own tokens
        sentences = _filler(subject, stream, budget)
        sentences.insert(round(depth * len(sentences)), needle)
        asks.append(Ask.of(suite.form, " ".join(sentences) + ending, max_new_tokens=suite.max_new_tokens))
        numbers.append(number)
    scored = []
    for (length, depth, draw), number, replies in zip(places, numbers, subject.replies(asks), strict=True):
        said = replies[0].content if replies else ""
        found = re.search(rf"(?<!\d){number}(?!\d)", said.replace(",", "")) is not None
        why = "the window has no room for it" if replies is None else "" if found else f"it was {number}"
        scored.append(Scored(f"{length}@{depth:g}#{draw}", float(found), said, why))
    of: dict[tuple[int, float], list[float]] = {}
    for one, place in zip(scored, places, strict=True):
        of.setdefault(place[:2], []).append(one.score)
    grid = {
        str(length): {f"{depth:g}": sum(of[length, depth]) / suite.repeats for depth in suite.depths}
        for length in suite.lengths
    }
    return Measured("needles found", scored, rate(scored), {"grid": grid})


def _filler(subject: Subject, stream: random.Random, tokens: int) -> list[str]:
    """Sentences that together have about that many tokens, never more."""
    found: list[str] = []
    used = 0
    for sentence in _sentences(stream):
        used += subject.count(" " + sentence) + 1
        if used > tokens:
            return found
        found.append(sentence)
    raise AssertionError("sentences never end")


def _sentences(stream: random.Random) -> Iterator[str]:
    while True:
        yield f"{stream.choice(SUBJECTS)} {stream.choice(DEEDS)} {stream.choice(THINGS)} {stream.choice(TIMES)}."
