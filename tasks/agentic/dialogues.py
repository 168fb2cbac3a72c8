"""The dialogues stage: verifiable tasks and tool-call dialogues, each held against its rubric, split by problem.

Everything is drawn from the seed. Tool results come from running the tool. A dialogue that breaks its rubric (an
impossible request, a failed tool, too many tokens) goes to `rejected` with the criterion it broke. Parts:

    dialogues/train/ENVIRONMENT, dialogues/heldout/ENVIRONMENT    the columns of `SCHEMA`
    rejected/all                                                  environment, split, reason, messages

Environments: the families of tasks/agentic/problems.py, and `tool_call`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from model.chat import Chat, compact, flat, spaced
from tasks.accounts import Balance, rows_of
from tasks.agentic.config import DialoguesConfig, TaskConfig
from tasks.agentic.problems import FAMILIES, ask, is_heldout, problem_id, same_work
from tasks.agentic.rubric import Rubric, broken_criterion
from tasks.agentic.tools import TOOLS, Tool, ToolError
from tasks.artifact import Artifact, Part, Step
from tasks.launch import Execution
from tasks.progress import Progress
from training.rl.environments import Problem, environment

VERSION = 2  # raise it where the same inputs give other bytes (tasks/code.py)

SCHEMA = pa.schema(
    [
        ("id", pa.string()),  # hash of problem and phrasing
        ("problem", pa.string()),  # hash of the problem: the split goes by it
        ("environment", pa.string()),
        ("verifier", pa.string()),  # key of training.rl.environments.ENVIRONMENTS
        ("messages", pa.string()),  # JSON, OpenAI's layout, the whole dialogue
        ("tools", pa.string()),  # JSON
        ("prompt_turns", pa.int32()),  # messages before the turn that the verifier judges
        ("answer", pa.string()),  # JSON, what the verifier compares with
        ("ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.bool_())),  # True at tokens that are trained
    ]
)
SPLITS = ("train", "heldout")
TRIES = 50  # draws per wanted dialogue before a family counts as exhausted


@dataclass(frozen=True)
class Dialogue:
    """A drawn dialogue, before it is judged."""

    problem: Problem
    messages: list[dict[str, Any]]
    rubric: Rubric
    broken: str | None = None
    """Set where the dialogue could not even be finished."""
    work: tuple[str, ...] = ()
    """Every problem that is solved in it, for the split."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: make the dialogues."""
    return make_dialogues(step, step.input("tokenizer"))


def make_dialogues(step: Step, tokenizer: Artifact) -> Artifact:
    """Write and publish the dialogues of `step.config`, tokenised with `tokenizer`."""
    config = step.config
    assert isinstance(config, DialoguesConfig)
    chat = Chat(Tokenizer.from_file(str(tokenizer.file("tokenizer"))))
    wanted = {f"{split}/{task.family}": getattr(task, split) for task in config.tasks for split in SPLITS}
    wanted |= {f"{split}/tool_call": getattr(config, f"tool_{split}") for split in SPLITS}
    wanted = {key: count for key, count in wanted.items() if count}
    with Progress("dialogues", sum(wanted.values()), "dialogues") as progress:
        for key, count in wanted.items():
            if step.part(f"dialogues/{key}") is None or step.part(f"rejected/{key}") is None:
                split, name = key.split("/")
                kept, rejected, drawn = collect(config, chat, split, name, count)
                write_part(step, f"rejected/{key}", pa.Table.from_pylist(rejected, REJECTED))
                write_part(step, f"dialogues/{key}", pa.Table.from_pylist(kept, SCHEMA), counts(kept) | drawn)
            progress.advance(count)
    made = step.parts(f"dialogues/{key}" for key in wanted)
    refused = step.parts(f"rejected/{key}" for key in wanted)
    balance = Balance(
        "dialogues",
        taken=sum(part.statistics["drawn"] for part in made),
        out="dialogues",
        rejected="rejected",
        dropped=sum(part.statistics["passed_over"] for part in made),
    )
    return step.publish(summary(step, made, refused), [part.key for part in (*made, *refused)], balance)


REJECTED = pa.schema([(name, pa.string()) for name in ("environment", "split", "reason", "messages")])


def collect(
    config: DialoguesConfig, chat: Chat, split: str, name: str, count: int
) -> tuple[list[dict[str, Any]], list[dict[str, str]], dict[str, int]]:
    """`count` rows of `SCHEMA` that pass their rubrics, what was rejected on the way, and how many were `drawn` for it
    and `passed_over`: those that are of the other split, or that were there already.

    Raises:
        ValueError: the family has not so many different prompts.
    """
    kept: dict[str, dict[str, Any]] = {}
    rejected: list[dict[str, str]] = []
    task = next((task for task in config.tasks if task.family == name), None)
    draw = random.Random(f"{config.seed}/{split}/{name}")
    passed_over = 0
    for drawn in range(count * TRIES):
        if len(kept) == count:
            return list(kept.values()), rejected, {"drawn": drawn, "passed_over": passed_over}
        dialogue = _task_dialogue(task, draw) if task else _tool_dialogue(config, draw)
        sides = {is_heldout(work, config.heldout_share) for work in (dialogue.problem.id, *dialogue.work)}
        if sides != {split == "heldout"}:
            passed_over += 1
            continue
        ids, mask = flat(chat.render(dialogue.messages, dialogue.problem.tools))
        row = _row(dialogue, ids, mask)
        reason = dialogue.broken or broken_criterion(dialogue.rubric, dialogue.messages, dialogue.problem.tools)
        if reason is None and len(ids) > config.max_tokens:
            reason = "too many tokens"
        if reason is None and row["id"] in config.refused:
            reason = "people refused it"
        if reason is not None:
            messages = compact(dialogue.messages)
            rejected.append({"environment": name, "split": split, "reason": reason, "messages": messages})
            continue
        environment(dialogue.problem).validate(dialogue.problem)
        passed_over += row["id"] in kept
        kept.setdefault(row["id"], row)
    raise ValueError(
        f"only {len(kept)} of {count} different dialogues of '{name}' were found for {split}: ask for fewer, raise its "
        f"size, or move heldout_share ({config.heldout_share})"
    )


def write_part(step: Step, key: str, table: pa.Table, statistics: dict[str, Any] | None = None) -> None:
    """One parquet part with fixed settings."""

    def write(path: Path) -> None:
        pq.write_table(table, path, compression="zstd", compression_level=3, store_schema=False)

    step.put(key, ".parquet", write, table.num_rows, statistics)


def counts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tokens": sum(len(row["ids"]) for row in rows),
        "trained_tokens": sum(sum(row["mask"]) for row in rows),
        "longest": max(len(row["ids"]) for row in rows),
    }


def summary(step: Step, made: Sequence[Part], refused: Sequence[Part]) -> dict[str, Any]:
    """Statistics of the whole artifact, from what was written; asserts that the splits share no problem."""
    problems: dict[str, set[str]] = {split: set() for split in SPLITS}
    by_environment: dict[str, dict[str, Any]] = {}
    reasons: Counter[str] = Counter()
    for part in made:
        _, split, name = part.key.split("/")
        table = pq.read_table(step.path(part), columns=["problem"])
        problems[split] |= set(table.column("problem").to_pylist())
        entry = by_environment.setdefault(name, {})
        figures = {name: part.statistics[name] for name in ("tokens", "trained_tokens", "longest")}
        entry[split] = {"dialogues": part.rows, **figures}
    for part in refused:
        reasons.update(pq.read_table(step.path(part), columns=["reason"]).column("reason").to_pylist())
    shared = problems["train"] & problems["heldout"]
    assert not shared, f"{len(shared)} problems are in both splits"
    return {
        "dialogues": rows_of(made),
        "rejected": sum(reasons.values()),
        "rejected_by_reason": dict(sorted(reasons.items())),
        "by_environment": dict(sorted(by_environment.items())),
        "problems": {split: len(found) for split, found in problems.items()},
        "tools": len(TOOLS),
    }


def _task_dialogue(task: TaskConfig, draw: random.Random) -> Dialogue:
    family = FAMILIES[task.family]
    key = family.draw(draw, task.size)
    answer = family.answer(key)
    prompt = {"role": "user", "content": ask(family, key, draw)}
    problem = Problem(same_work(task.family, key), task.family, "exact", (prompt,), answer)
    messages = [prompt, {"role": "assistant", "content": answer}]
    return Dialogue(problem, messages, Rubric(tools=(), final=answer))


def _tool_dialogue(config: DialoguesConfig, draw: random.Random) -> Dialogue:
    """One or two requests, each answered by a call, its real result, and a sentence."""
    first = draw.choice(TOOLS)
    needed = [first]
    if draw.random() < config.follow_ups:
        needed.append(draw.choice(TOOLS) if config.tools_offered > 1 else first)
    names = {tool.name for tool in needed}
    others = [tool for tool in TOOLS if tool.name not in names]
    offered = [tool for tool in TOOLS if tool.name in names]
    offered += draw.sample(others, max(0, draw.randint(1, config.tools_offered) - len(offered)))
    draw.shuffle(offered)
    declarations = tuple(tool.declaration for tool in offered)
    messages: list[dict[str, Any]] = []
    work: list[str] = []
    calls: list[dict[str, Any]] = []
    broken, result = None, ""
    for index, tool in enumerate(needed):
        arguments = tool.draw(draw)
        arguments = {name: arguments[name] for name in tool.properties}  # the schema's order
        work.append(_tool_work(tool, arguments))
        calls.append({"name": tool.name, "arguments": arguments, "index": index})
        messages.append({"role": "user", "content": draw.choice(tool.requests).format(**arguments)})
        call_id = f"functions.{tool.name}:{index}"
        function = {"name": tool.name, "arguments": spaced(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        try:
            result = tool.call(arguments)
        except ToolError as error:
            broken = f"the tool failed: {tool.name}"
            result = f"error: {error}"
        messages.append({"role": "tool", "name": tool.name, "tool_call_id": call_id, "content": result})
        messages.append({"role": "assistant", "content": tool.answer.format(result=result)})
        if broken:
            break
    # The verifier judges the first call: the prompt of RL is the first request.
    problem = Problem(work[0], "tool_call", "call", (messages[0],), calls[0], declarations)
    rubric = Rubric(tools=tuple(call["name"] for call in calls), final=result)
    return Dialogue(problem, messages, rubric, broken, tuple(work))


def _tool_work(tool: Tool, arguments: dict[str, Any]) -> str:
    """The id of what a call works out: a sum is the same problem here and in the `addition` family."""
    if tool.name == "calculator":
        a, b = arguments["a"], arguments["b"]
        if arguments["operation"] == "add":
            return same_work("addition", (min(a, b), max(a, b)))
        if arguments["operation"] == "subtract":
            return same_work("subtraction", (a, b))
    return problem_id(tool.name, *(f"{name}={value}" for name, value in sorted(arguments.items())))


def _row(dialogue: Dialogue, ids: list[int], mask: list[bool]) -> dict[str, Any]:
    problem = dialogue.problem
    return {
        "id": problem_id(problem.id, compact(dialogue.messages), compact(list(problem.tools))),
        "problem": problem.id,
        "environment": problem.environment,
        "verifier": problem.verifier,
        "messages": compact(dialogue.messages),
        "tools": compact(list(problem.tools)),
        "prompt_turns": len(problem.messages),
        "answer": compact(problem.answer),
        "ids": ids,
        "mask": mask,
    }
