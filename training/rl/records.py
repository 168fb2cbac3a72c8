"""Rollouts as records, to be looked at afterwards: what was asked, drawn, judged and rewarded, a row a response.

One Parquet file a recorded iteration, and one for each measurement on held-out prompts, before and after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.chat import Chat, Text
from training.rl.config import RecordConfig
from training.rl.episodes import Episode
from training.rl.rollout import CRITIQUE, Group, first_of_each

FOLDER = "rollouts"
"""Where they lie in a job's folder; each becomes a part of what the job publishes."""
ANSWER = 4_000
"""Characters of an answer that are kept: a world's final state may be long."""
SCHEMA = pa.schema(
    [
        ("iteration", pa.int32()),  # from 1; a measurement's is the number of iterations before it
        ("kind", pa.string()),  # practice; on held-out prompts: sampled or greedy
        ("problem", pa.string()),
        ("environment", pa.string()),
        ("verifier", pa.string()),
        ("answer", pa.string()),  # what the verifier compares with, JSON
        ("place", pa.int32()),  # among the responses to its prompt
        ("seed", pa.string()),
        ("prompt", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("ids", pa.list_(pa.int32())),  # the policy's turns, and what tools and users said between them
        ("pieces", pa.list_(pa.string())),  # the text of each of them; a character of several is its last token's
        ("versions", pa.list_(pa.int32())),  # the policy that drew each, from 0; -1: none did
        ("log_probs", pa.list_(pa.float32())),  # under the distribution it was drawn from
        ("score", pa.float64()),  # the verifier's
        ("reason", pa.string()),  # why it is not right
        ("finished", pa.bool_()),  # false: cut at a budget or for a loop
        ("reward", pa.float64()),
        ("rewards", pa.struct([(name, pa.float64()) for name in ("verdict", "length", "cut", "critic")])),
    ]
)


class Records:
    """The files of one job; only its first rank writes them."""

    def __init__(self, work: Path, chat: Chat, config: RecordConfig, last: int, writes: bool) -> None:
        """`last` is the number of the last iteration, which is recorded as the first is."""
        self.folder, self.chat, self.config = work / FOLDER, chat, config
        self.last, self.writes = last, writes and config.every > 0

    def practised(self, number: int, groups: Sequence[Group]) -> None:
        """The groups of iteration `number`, where it is one that is recorded."""
        if number in (1, self.last) or (self.config.every and number % self.config.every == 0):
            self._write(f"practice-{number:06d}", number, {"practice": groups})

    def measured(self, number: int, sampled: Sequence[Group], greedy: Sequence[Group]) -> None:
        """Replies to held-out prompts after `number` iterations."""
        self._write(f"heldout-{number:06d}", number, {"sampled": sampled, "greedy": greedy})

    def _write(self, name: str, number: int, groups: Mapping[str, Sequence[Group]]) -> None:
        if not self.writes:
            return
        rows: list[dict[str, Any]] = []
        for kind, each in groups.items():
            kept = {id(problem) for problem in first_of_each([group.problem for group in each], self.config.prompts)}
            for group in each:
                rows += _rows(self.chat, number, kind, group) if id(group.problem) in kept else ()
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{name}.partial"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), partial, compression="zstd", store_schema=False)
        partial.replace(self.folder / f"{name}.parquet")


def sources(kind: str, group: Group, place: int) -> dict[str, float | None]:
    """What the reward of a response is made of; what is cut, and what a critic compared (in practice: held-out replies
    are judged by their rules), has that source alone."""
    response, reward = group.responses[place], group.rewards[place]
    if not response.finished:
        return {"cut": reward}
    if kind == "practice" and group.problem.verifier == CRITIQUE and response.score == 1.0:
        return {"critic": reward}
    return {"verdict": response.score, "length": reward - response.score or None}


def pieces(chat: Chat, ids: Sequence[int]) -> list[str]:
    """The text of each id, special ones by name; all of them joined are the text of all ids."""
    text = Text(chat)
    found = [text.add(token) for token in ids]
    if found and (rest := text.rest()):
        found[-1] += rest
    return found


def _rows(chat: Chat, iteration: int, kind: str, group: Group) -> Iterator[dict[str, Any]]:
    problem = group.problem
    shared = {
        **{"iteration": iteration, "kind": kind, "problem": problem.id, "environment": problem.environment},
        **{"verifier": problem.verifier, "prompt": chat.decode(group.prompt), "prompt_ids": group.prompt},
        "answer": json.dumps(problem.answer, ensure_ascii=False, sort_keys=True)[:ANSWER],
    }
    for place, (response, reward) in enumerate(zip(group.responses, group.rewards, strict=True)):
        told = {"reward": reward, "rewards": sources(kind, group, place), "place": place}
        yield shared | _response(chat, response) | told


def _response(chat: Chat, response: Episode) -> dict[str, Any]:
    names = ("seed", "ids", "versions", "log_probs", "score", "reason", "finished")
    return {name: getattr(response, name) for name in names} | {"pieces": pieces(chat, response.ids)}
