"""Recorded rollouts of a made-up run, through the real writer."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from model.chat import Chat, user
from tests.posttraining import byte_tokenizer
from training.rl.config import RecordConfig
from training.rl.environments import Problem
from training.rl.episodes import INSERTED, Episode
from training.rl.records import Records
from training.rl.rollout import Group

HOSTILE = "</blockquote><script>alert(1)</script>\x1b[2J"
"""What a model may write."""
CHAT = Chat(byte_tokenizer())


def problem(name: str, environment: str, asked: str, answer: Any) -> Problem:
    return Problem(name, environment, "exact", (user(asked),), answer)


def episode(text: str, score: float = 1.0, version: int = 0, reason: str = "", probability: float = 0.9) -> Episode:
    """One turn, every token of which was drawn with the same probability."""
    ids = [*CHAT.encode(text), CHAT.stop]
    drawn = [math.log(probability)] * len(ids)
    reason = reason or ("" if score else "another answer")
    return Episode("seed", [], ids, drawn, [version] * len(ids), True, True, score, reason)


def called(text: str, result: str, last: str, version: int) -> Episode:
    """Two turns with what a tool said between them."""
    first, second = episode(text, version=version), episode(last, version=version)
    said = CHAT.following([{"role": "tool", "tool_call_id": "functions.f:0", "name": "f", "content": result}])
    return Episode(
        "seed",
        [],
        [*first.ids, *said, *second.ids],
        [*first.log_probs, *[0.0] * len(said), *second.log_probs],
        [*first.versions, *[INSERTED] * len(said), *second.versions],
        True,
        True,
        1.0,
    )


def group(asked: Problem, episodes: Sequence[Episode], rewards: Sequence[float] = ()) -> Group:
    for one in episodes:
        one.prompt = CHAT.prompt(asked.messages)
    return Group(asked, list(episodes), list(rewards) or [one.score for one in episodes])


SUMS = [problem(f"sum{place}", "addition", f"What is {place}+4?", str(place + 4)) for place in range(10)]
ESSAYS = [problem(f"essay{place}", "essay", f"Write about number {place}.", place) for place in range(10)]


def practice(number: int) -> list[Group]:
    """Iteration 1 or 2: sums that are learned, and essays that every rule has something to say of."""
    version = number - 1
    if number == 1:
        cut = Episode("seed", [], [65] * 9, [-0.1] * 9, [0] * 9, True, False, 0.0, "over its budget")
        sums = [group(SUMS[0], [episode("4"), episode("5", 0.0), cut], [1.0, 0.0, -0.5])]
        return [*sums, *(group(each, [episode(f"{place} " + "word " * 4, 0.0)]) for place, each in enumerate(ESSAYS))]
    told = [f"number {place} is prime" for place in range(8)]  # what is typical
    said = [*told, "4", "and so on " * 10]
    essays = [group(each, [episode(text, 1.0, version)]) for each, text in zip(ESSAYS, said, strict=True)]
    more = ["this answer is correct", "I agree", "I agree", "I agree"]
    essays += [group(each, [episode(text, 1.0, version)]) for each, text in zip(ESSAYS, more, strict=False)]
    hostile = group(SUMS[2], [episode(HOSTILE, 0.0, version, f"it said {HOSTILE}", 0.01)])
    return [group(SUMS[1], [called("calling", HOSTILE, "5", version)]), hostile, *essays]


def write(folder: Path, chat: Chat = CHAT) -> None:
    """The records of a run of two iterations, all of them."""
    records = Records(folder, chat, RecordConfig(prompts=16), 2, True)
    records.measured(0, [group(SUMS[3], [episode("6", 0.0), episode("7")])], [group(SUMS[3], [episode("6", 0.0)])])
    for number in (1, 2):
        records.practised(number, practice(number))
    records.measured(2, [group(SUMS[3], [episode("7"), episode("7")])], [group(SUMS[3], [episode("7")])])


def parts() -> dict[str, Any]:
    """As the parts of an artifact."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return dict(_parts(Path(folder)))


def _parts(folder: Path) -> Iterator[tuple[str, tuple[str, pl.DataFrame]]]:
    for path in sorted((folder / "rollouts").iterdir()):
        yield f"rollouts/{path.stem}", (".parquet", pl.read_parquet(path))
