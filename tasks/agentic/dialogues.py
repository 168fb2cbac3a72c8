"""The dialogues stage: verifiable tasks, call dialogues and worlds, each held against its rubric, split by problem.

Everything is drawn from the seed. Tool results come from running the tool. A dialogue that breaks its rubric (an
impossible request, a failed tool, an assistant that is wrong, too many tokens) goes to `rejected` with the criterion it
broke. Parts:

    dialogues/SPLIT/ENVIRONMENT    the columns of `SCHEMA`
    rejected/SPLIT/ENVIRONMENT     those of `REJECTED`
    card                           a data card in markdown

Splits: `train` to learn from; `development` stops, selects and gates, and RL watches it; `test` is looked at once, by
the evaluation and by RL's report. Environments: the families of tasks/agentic/problems.py, those of
tasks/agentic/calls.py, `tool_call_server` (tools of real servers, as the tools stage recorded them), `world`
(hand-written ones) and `world_synthetic` (domains of the tools stage).
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from expectations.config import NOT_CHOSEN
from model.chat import Chat, compact, flat
from tasks.accounts import Balance, rows_of
from tasks.agentic.calls import call_dialogue, on_side
from tasks.agentic.card import Origin, data_card
from tasks.agentic.catalogue import CATALOGUE
from tasks.agentic.config import OF_SERVERS, DialoguesConfig, JudgeConfig, TaskConfig
from tasks.agentic.dialogue import BY_PEOPLE, FILTERS, TOO_LONG, Dialogue, filter_of
from tasks.agentic.judging import known_dialogues
from tasks.agentic.mcp.recorded import RecordedTool, recorded_tools
from tasks.agentic.problems import FAMILIES, ask, same_work, side
from tasks.agentic.roles import Roles, open_roles
from tasks.agentic.rubric import Rubric, broken_criterion, shown
from tasks.agentic.trajectories import Domain, domains_of, draw_from, world_dialogue
from tasks.artifact import Artifact, Part, Step
from tasks.launch import Execution
from tasks.part import write_table
from tasks.progress import Progress
from training.draw import problem_id
from training.rl.environments import Problem
from training.rl.environments.table import environment
from training.rl.worlds.filters import Trajectory
from training.rl.worlds.personas import PERSONAS
from training.rl.worlds.wording import SPLITS, Split

VERSION = 12  # raise it where the same inputs give other bytes (tasks/code.py)

SCHEMA = pa.schema(
    [
        ("id", pa.string()),  # hash of problem and phrasing
        ("problem", pa.string()),  # hash of the problem: the split goes by it
        ("environment", pa.string()),
        ("topic", pa.string()),  # the function of a call, the family of a world: results are told apart by it
        ("unseen", pa.list_(pa.string())),  # what in it no training dialogue has
        ("licence", pa.string()),  # of what in it others wrote (SPDX); empty where that is nothing
        ("player", pa.string()),  # who played the assistant: a script, or a model
        ("persona", pa.string()),  # who the user is (training/rl/worlds/personas.py); empty: nobody in particular
        ("rubric", pa.string()),  # JSON: what a right dialogue meets (tasks/agentic/rubric.py)
        ("verdicts", pa.string()),  # JSON: what each filter said
        ("verifier", pa.string()),  # key of training.rl.environments.ENVIRONMENTS
        ("messages", pa.string()),  # JSON, OpenAI's layout, the whole dialogue
        ("tools", pa.string()),  # JSON
        ("prompt_turns", pa.int32()),  # messages before the turn that the verifier judges
        ("answer", pa.string()),  # JSON, what the verifier compares with
        ("ids", pa.list_(pa.int32())),
        ("mask", pa.list_(pa.bool_())),  # True at tokens that are trained
    ]
)
REJECTED = pa.schema(
    [
        (name, pa.string())
        for name in ("environment", "split", "topic", "player", "persona", "rubric", "reason", "messages", "tools")
    ]
)
WAY = ("drawn", "passed_over", *FILTERS, "kept")
"""What becomes of the dialogues of an environment: drawn for it, of another split or there already, refused by each
filter, kept."""
log = logging.getLogger(__name__)

Maker = Callable[[], Dialogue | None]
AHEAD = 8
"""Dialogues begun or finished for each slot: those behind a long one, ten times as long as others, go on meanwhile."""
TRIES = 50
"""Draws per wanted dialogue before an environment counts as exhausted."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: make the dialogues."""
    return make_dialogues(step, step.input("tokenizer"), step.input("tools"), execution)


def make_dialogues(
    step: Step, tokenizer: Artifact, tools: Artifact | None = None, execution: Execution | None = None
) -> Artifact:
    """Write and publish the dialogues of `step.config`, tokenised with `tokenizer`; `tools`: the synthetic ones.

    Raises:
        ValueError: synthetic tools are asked for and not given, or there are not so many different dialogues.
        EngineError: a model is to play or to judge and cannot be reached.
    """
    config = step.config
    assert isinstance(config, DialoguesConfig)
    if config.synthetic.train and tools is None:
        raise ValueError("dialogues.synthetic.train asks for synthetic tools: give the artifact of the stage `tools`")
    chat = Chat(Tokenizer.from_file(str(tokenizer.file("tokenizer"))))
    domains = domains_of(tools) if tools is not None and config.synthetic.train else []
    recorded = recorded_tools(tools) if tools is not None and config.servers.train else []
    wanted = {key: count for key, count in config.wanted.items() if recorded or not key.endswith(f"/{OF_SERVERS}")}
    if wanted != config.wanted:
        log.warning("no dialogues with tools of real servers are made: none of tools.servers took part")
    with (
        Progress("dialogues", sum(wanted.values()), "dialogues") as progress,
        open_roles(config, execution or Execution(), step.root) as roles,
    ):
        if roles.judge and config.judge:
            roles.judge.calibrate(calibration(config, config.judge, domains))
        for key, count in wanted.items():
            if step.part(f"dialogues/{key}") is None or step.part(f"rejected/{key}") is None:
                split, name = key.split("/")
                makers = makers_of(config, split, name, domains, roles, recorded)  # type: ignore[arg-type]
                slots = roles.slots if name in config.in_worlds else 1  # the others share one stream of draws
                kept, rejected, drawn = collect(config, chat, split, name, count, makers, slots)  # type: ignore[arg-type]
                write_part(step, f"rejected/{key}", pa.Table.from_pylist(rejected, REJECTED))
                write_part(step, f"dialogues/{key}", pa.Table.from_pylist(kept, SCHEMA), counts(kept) | drawn)
            progress.advance(count)
        agreement = {"judge": roles.judge.agreement} if roles.judge else {}
    made = step.parts(f"dialogues/{key}" for key in wanted)
    refused = step.parts(f"rejected/{key}" for key in wanted)
    balance = Balance(
        "dialogues",
        taken=sum(part.statistics["drawn"] for part in made),
        out="dialogues",
        rejected="rejected",
        dropped=sum(part.statistics["passed_over"] for part in made),
    )
    statistics = summary(step, made, refused) | agreement
    step.put("card", ".md", lambda path: path.write_text(card(step, statistics), encoding="utf-8"))
    return step.publish(statistics, [*(part.key for part in (*made, *refused)), "card"], balance)


def calibration(config: DialoguesConfig, judge: JudgeConfig, domains: Sequence[Domain]) -> list[Trajectory]:
    """Scripted dialogues of known verdict for the judge, of every kind of world alike, each half right and half wrong:
    where one kind were right, a judge that only tells the kinds apart would be believed.

    Raises:
        ValueError: a kind of world has not so many tasks.
    """
    draw = random.Random(f"{config.seed}/judge")
    found: list[Trajectory] = []
    pairs, kinds = (judge.calibration + 1) // 2, len(config.in_worlds)
    for place, (name, world) in enumerate(config.in_worlds.items()):
        count = 2 * len(range(place, pairs, kinds))
        source = domains if name == "world_synthetic" else None
        drawn = (draw_from(world, "train", draw, source) for _ in range(count * TRIES))
        tasks = list(islice((one.task for one in drawn if one), count))
        if len(tasks) < count:
            raise ValueError(
                f"only {len(tasks)} of {count} tasks to try the judge on were found in '{name}': ask for fewer "
                f"(dialogues.judge.calibration), or for more tools of each domain (tools.per_domain)"
            )
        found += known_dialogues(tasks)
    return found[: judge.calibration]


def collect(
    config: DialoguesConfig,
    chat: Chat,
    split: Split,
    name: str,
    count: int,
    makers: Iterator[Maker],
    slots: int = 1,
) -> tuple[list[dict[str, Any]], list[dict[str, str]], dict[str, int]]:
    """`count` rows of `SCHEMA` that pass their filters, one of each task that was played several times, rows of
    `REJECTED`, and how many were `drawn` for it and `passed_over`: those that are of another split, or that were there
    already. `slots` makers are at work at once.

    Raises:
        ValueError: there are not so many different dialogues.
    """
    kept: dict[str, dict[str, Any]] = {}
    rejected: list[dict[str, str]] = []
    drawn = passed_over = 0
    with closing(ahead(islice(makers, count * TRIES), slots, lambda: count - len(kept))) as dialogues:
        for dialogue in dialogues:
            if dialogue is None or any(side(work, config.heldout_share) != split for work in dialogue.work):
                drawn, passed_over = drawn + 1, passed_over + 1
                continue
            chosen = False
            for play in (dialogue, *dialogue.others):
                drawn += 1
                ids, mask = flat(chat.render(play.messages, play.problem.tools))
                row = _row(play, ids, mask)
                reason = play.broken or (TOO_LONG if len(ids) > config.max_tokens else None)
                if reason is None and row["id"] in config.refused:
                    reason = BY_PEOPLE
                if reason is None and chosen:
                    reason = NOT_CHOSEN
                if reason is not None:
                    rejected.append(_refused(play, split, reason))
                    continue
                environment(play.problem).validate(play.problem)
                chosen = True
                passed_over += row["id"] in kept
                kept.setdefault(row["id"], row)
            if len(kept) == count:
                return list(kept.values()), rejected, {"drawn": drawn, "passed_over": passed_over}
    raise ValueError(
        f"only {len(kept)} of {count} different dialogues of '{name}' were found for {split}: ask for fewer, raise its "
        f"size or dialogues.max_tokens ({config.max_tokens}), or move heldout_share ({config.heldout_share})"
    )


def ahead(makers: Iterator[Maker], slots: int, wanted: Callable[[], int]) -> Generator[Dialogue | None]:
    """What the makers make, in their order; `slots` of them are at work at once, and none that is not `wanted` yet."""
    if slots == 1:
        yield from (make() for make in makers)
        return
    with ThreadPoolExecutor(slots) as pool:
        waiting: deque[Future[Dialogue | None]] = deque()
        try:
            while True:
                room = min(AHEAD * slots, max(1, wanted())) - len(waiting)
                waiting.extend(pool.submit(make) for make in islice(makers, max(0, room)))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def makers_of(
    config: DialoguesConfig,
    split: Split,
    name: str,
    domains: Sequence[Domain],
    roles: Roles,
    recorded: Sequence[RecordedTool] = (),
) -> Iterator[Maker]:
    """An endless stream of what makes dialogues of an environment."""
    draw = random.Random(f"{config.seed}/{split}/{name}")
    task = next((task for task in config.tasks if task.family == name), None)
    world = config.in_worlds.get(name)
    served = on_side(recorded, split, config.heldout_share) if name == OF_SERVERS else ()
    calls = config.calls.model_copy(update={"requests": config.servers.requests}) if served else config.calls
    while True:
        if task:
            yield partial(_task_dialogue, task, draw)
        elif world:
            found = domains if name == "world_synthetic" else None
            yield world_dialogue(world, split, name, draw, found, roles)
        else:
            yield partial(call_dialogue, calls, config.heldout_share, split, name, draw, served)


def _task_dialogue(task: TaskConfig, draw: random.Random) -> Dialogue:
    family = FAMILIES[task.family]
    key = family.draw(draw, task.size)
    answer = family.answer(key)
    prompt = {"role": "user", "content": ask(family, key, draw)}
    problem = Problem(same_work(task.family, key), task.family, "exact", (prompt,), answer)
    messages = [prompt, {"role": "assistant", "content": answer}]
    broken = broken_criterion(Rubric(tools=(), final=answer), messages, ())
    rubric = shown([f"answers without a call: {prompt['content']}"], [], [[answer]])
    return Dialogue(problem, messages, broken, work=(problem.id,), rubric=rubric)


def write_part(step: Step, key: str, table: pa.Table, statistics: dict[str, Any] | None = None) -> None:
    """One parquet part with fixed settings."""
    step.put(key, ".parquet", lambda path: write_table(path, table), table.num_rows, statistics)


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
    players: Counter[str] = Counter()
    personas: Counter[str] = Counter()
    licences: Counter[str] = Counter()
    unseen: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    funnel: dict[str, Counter[str]] = {}
    for part in made:
        _, split, name = part.key.split("/")
        way = {one: part.statistics[one] for one in ("drawn", "passed_over")}
        funnel.setdefault(name, Counter()).update(way | {"kept": part.rows or 0})
        table = pq.read_table(step.path(part), columns=["problem", "player", "persona", "unseen", "licence"])
        problems[split] |= set(table.column("problem").to_pylist())
        players.update(table.column("player").to_pylist())
        personas.update(filter(None, table.column("persona").to_pylist()))
        licences.update(filter(None, table.column("licence").to_pylist()))
        if split != "train":
            unseen.setdefault(f"{name}, {split}", Counter()).update(chain(*table.column("unseen").to_pylist()))
        figures = {name: part.statistics[name] for name in ("tokens", "trained_tokens", "longest")}
        by_environment.setdefault(name, {})[split] = {"dialogues": part.rows, **figures}
    for part in refused:
        found = pq.read_table(step.path(part), columns=["reason"]).column("reason").to_pylist()
        name = part.key.split("/")[2]
        reasons.setdefault(name, Counter()).update(found)
        funnel[name].update(map(filter_of, found))
    together: Counter[str] = sum(reasons.values(), Counter())
    for one, other in (("train", "development"), ("train", "test"), ("development", "test")):
        shared = problems[one] & problems[other]
        assert not shared, f"{len(shared)} problems are in {one} and in {other}"
    return {
        "dialogues": rows_of(made),
        "rejected": together.total(),
        "rejected_by_reason": dict(sorted(together.items())),
        "filters": {name: dict(sorted(found.items())) for name, found in sorted(reasons.items()) if found},
        "funnel": {name: {one: way[one] for one in WAY} for name, way in sorted(funnel.items())},
        "by_environment": dict(sorted(by_environment.items())),
        "players": dict(sorted(players.items())),
        "personas": dict(sorted(personas.items())),
        "licences": dict(sorted(licences.items())),
        "unseen": {name: dict(sorted(found.items())) for name, found in sorted(unseen.items()) if found},
        "problems": {split: len(found) for split, found in problems.items()},
        "tools": len(CATALOGUE),
        "wordings": sum(len(tool.wordings(language)) for tool in CATALOGUE for language in tool.requests),
    }


def card(step: Step, s: Mapping[str, Any]) -> str:
    """The data card, from the statistics alone."""
    environments, splits = s["by_environment"], s["by_environment"].values()
    origins = [Origin(name, count, name.startswith("model")) for name, count in s["players"].items()]
    made = [
        (name, *(str(found.get(split, {}).get("dialogues", 0)) for split in SPLITS))
        for name, found in environments.items()
    ]
    unseen = [
        (name, ", ".join(f"{part}: {count}" for part, count in found.items())) for name, found in s["unseen"].items()
    ]
    refused = [(name, reason, str(count)) for name, found in s["filters"].items() for reason, count in found.items()]
    ways = [(name, *(f"{way[one]:,}" for one in WAY)) for name, way in s["funnel"].items()]
    heads = ("drawn", "other splits, twice", *FILTERS.values(), "kept")
    tables = {
        "From drawn to kept": [("environment", *heads), *ways],
        "Dialogues by environment": [("environment", *SPLITS), *made],
        "What no training dialogue has": [("dialogues", "new in so many of them"), *unseen],
        "Personas of the users": [
            ("persona", "style", "who it is", "dialogues"),
            *((one.name, one.style, one.who, str(s["personas"].get(one.name, 0))) for one in PERSONAS),
        ],
        "Filters": [("environment", "reason", "dialogues"), *refused],
    }
    if judge := s.get("judge"):
        rows = [
            (name, f"{found['judged_rightly']} of {found['dialogues']}")
            for name, found in judge["by_assistant"].items()
        ]
        tables["The judge on scripted dialogues"] = [("assistant", "judged rightly"), *rows]
    return data_card(
        "Dialogues",
        f"{s['dialogues']:,} dialogues in {len(environments)} environments, "
        f"{sum(found['train']['tokens'] for found in splits if 'train' in found):,} tokens to train on.",
        step.fingerprint,
        origins,
        {"kept": s["dialogues"], "rejected": s["rejected"]},
        tables,
        [f"{count} dialogues with what tools of real servers say: {name}" for name, count in s["licences"].items()],
    )


def _refused(dialogue: Dialogue, split: Split, reason: str) -> dict[str, str]:
    return {**dialogue.columns, "split": split, "reason": reason}


def _row(dialogue: Dialogue, ids: list[int], mask: list[bool]) -> dict[str, Any]:
    problem, columns = dialogue.problem, dialogue.columns
    return {
        **columns,
        "id": problem_id(problem.id, columns["messages"], columns["tools"]),
        "problem": problem.id,
        "unseen": list(dialogue.unseen),
        "licence": dialogue.licence,
        "verdicts": compact(dict(dialogue.verdicts)),
        "verifier": problem.verifier,
        "prompt_turns": len(problem.messages),
        "answer": compact(problem.answer),
        "ids": ids,
        "mask": mask,
    }
