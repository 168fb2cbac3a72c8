"""Dialogues with bfcl-eval's simulated APIs (files, tickets, bookings, trading, ...), judged by the states they leave.

The APIs are other people's code, and what it is called with was written by a model: it is read and never imported here,
and runs in the sandbox alone. A step plays all calls so far from the beginning, so that nothing has to be kept between
two steps. The file system is a simulation in memory; the sandbox would hold it if it were not.

BFCL v4 judges after every turn of the user in which calls are due: at least one was made, every API's public state is
that of the right calls, and every result of the right calls is among the results so far, in any order. Whoever needs
more calls than those, or another way, is right too. More than `STEPS` replies with calls in a turn are wrong, and so is
one that cannot be read, where BFCL would end the turn.

`answer` is {"apis": names, "initial": their states, "long": whether the context is padded, "turns": the user's messages
by turn, "added": functions that come later, by turn, "due": the right calls, by turn}.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from model.chat import Reply, ToolCall, user
from model.dialogue import tool_result
from training.draw import problem_id
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.functions import declared
from training.rl.environments.protocol import Environment, Observation, Outcome, Problem, verdict
from training.rl.sandbox.config import Program, SandboxUnavailable, Status

WORKER = Path(__file__).with_name("apis_worker.py")
PACKAGE = "bfcl_eval"
SOURCES = "eval_checker/multi_turn_eval/func_source_code"
APIS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Where BFCL v4 keeps each, in its sources and in its descriptions of functions."""
STEPS = 20
"""BFCL's limit."""
ATTEMPTS = 3
"""Times that right calls are played which fail."""
ADDED = "More functions are declared now. Please try again."
"""What the user says where a function comes later."""
CATEGORIES = ("base", "miss_param", "long_context")
"""What is practised; where functions come later (`miss_func`), an episode's declarations would have to change."""


class Apis(Environment):
    """Turns of the user, in each of which the policy calls as often as it likes and ends with an answer in words."""

    turns = 8 * (STEPS + 1)
    waits = True

    def begin(self, problem: Problem) -> Observation:
        self.made: list[list[list[dict[str, Any]]]] = [[]]
        """Turn by turn, reply by reply, the calls."""
        self.tools = problem.tools
        return Observation(problem.messages, problem.tools)

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        if reply.calls:
            first = sum(map(len, self._calls()))
            if any(call.index != first + place for place, call in enumerate(reply.calls)):
                return verdict(False, "a call's id does not count on")
            if len(self.made[-1]) == STEPS:
                return verdict(False, f"more than {STEPS} replies with calls in a turn")
            self.made[-1].append([{"name": call.name, "arguments": call.arguments} for call in reply.calls])
            played = self._played(problem, self._calls())
            if isinstance(played, str):
                return verdict(False, played)
            said = zip(reply.calls, played["texts"], strict=True)
            return Outcome(False, messages=tuple(tool_result(call.name, call.id, text) for call, text in said))
        following = len(self.made)
        if following == len(problem.answer["turns"]):
            return self._judge(problem)
        self.made.append([])
        self.tools = (*self.tools, *problem.answer["added"].get(str(following), ()))
        return Outcome(False, messages=tuple(problem.answer["turns"][following]), tools=self.tools)

    def _calls(self) -> list[list[dict[str, Any]]]:
        """Turn by turn, whichever reply made them."""
        return [[call for reply in turn for call in reply] for turn in self.made]

    def _judge(self, problem: Problem) -> Outcome:
        due = self.services.once(("apis", problem.id), lambda: self._due(problem))
        played = self._played(problem, self._calls())
        if isinstance(played, str):
            return verdict(False, played)
        fault = wrong(played["turns"], due["turns"])
        return verdict(not fault, fault)

    def _due(self, problem: Problem) -> dict[str, Any]:
        """What the right calls come to. Raises EnvironmentUnavailable where they fail again and again: that somebody
        kills their process makes no reply wrong."""
        for _ in range(ATTEMPTS):
            due = self._played(problem, problem.answer["due"])
            if isinstance(due, dict):
                return due
        raise EnvironmentUnavailable(f"problem {problem.id}: its right calls cannot be played: {due}")

    def _played(self, problem: Problem, turns: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any] | str:
        """What the calls came to, or why they could not be played to their end."""
        answer, last = problem.answer, self.made[-1][-1] if self.made[-1] else ()
        given = {
            "modules": {name: f"{PACKAGE}.{SOURCES}.{APIS[name]}".replace("/", ".") for name in answer["apis"]},
            "initial": answer["initial"],
            "long": answer["long"],
            "turns": turns,
            "last": len(last),
        }
        files = self.services.once(("apis", *answer["apis"]), lambda: sources(self.services.apis, answer["apis"]))
        if any(call["name"] == "logarithm" for calls in turns for call in calls):
            files = files | self.services.once("mpmath", mathematics)
        program = Program(source=WORKER.read_text(encoding="utf-8"), stdin=json.dumps(given), files=files)
        try:
            sandbox = self.services.calls
            (ended,) = sandbox.run([program])
        except SandboxUnavailable as error:
            raise EnvironmentUnavailable(f"problem {problem.id} calls APIs that run in the sandbox: {error}") from None
        if ended.status is Status.TIMEOUT and ended.seconds >= sandbox.config.wall_seconds:
            raise EnvironmentUnavailable(
                f"problem {problem.id}: calls of simulated APIs had no {sandbox.config.cpu_seconds} CPU-seconds in "
                f"{sandbox.config.wall_seconds:g} s: too much else runs on this machine for a verdict on them"
            )
        if ended.status is not Status.OK:
            return f"{ended.status}: {ended.reason}"
        found = json.loads(ended.stdout)
        assert isinstance(found, dict)
        return found

    def gold(self, problem: Problem) -> list[Reply]:
        return _replies(problem.answer["due"])

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        due = problem.answer["due"]
        last = max(turn for turn, calls in enumerate(due) if calls)
        *before, call = due[last]
        wrong = [[*due[:last], before, *due[last + 1 :]], [[] for _ in due]]
        for name, value in list(call["arguments"].items())[:1]:
            changed = {**call, "arguments": {**call["arguments"], name: _other(value)}}
            wrong.append([*due[:last], [*before, changed], *due[last + 1 :]])
        return [_replies(calls) for calls in wrong]


def wrong(played: Sequence[Mapping[str, Any]], due: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with the first turn in which something is; empty where nothing is."""
    so_far: Counter[str] = Counter()
    for number, (found, wanted) in enumerate(zip(played, due, strict=True), 1):
        so_far.update(found["results"])
        if not wanted["results"]:
            continue
        if not found["results"]:
            return f"turn {number}: no call"
        if other := [name for name, state in wanted["states"].items() if found["states"][name] != state]:
            return f"turn {number}: {other[0]} is in another state"
        if Counter(wanted["results"]) - so_far:
            return f"turn {number}: a result that was asked for is missing"
    return ""


def _replies(turns: Sequence[Sequence[Mapping[str, Any]]]) -> list[Reply]:
    """Each turn's calls in one reply, then words."""
    found: list[Reply] = []
    count = 0
    for calls in turns:
        if calls:
            made = [ToolCall(call["name"], call["arguments"], count + place) for place, call in enumerate(calls)]
            found.append(Reply("", tuple(made)))
            count += len(calls)
        found.append(Reply("Done."))
    return found


def _other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return -value - 7
        case str():
            return f"{value}x"
        case list():
            return [*value[:-1], *map(_other, value[-1:])]
    return None


# ------------------------------------------------------------------------------------------------------------ problems


def problem_of(row: Mapping[str, Any], due: Sequence[Sequence[str]], package: Traversable) -> Problem:
    """One of BFCL's multi-turn questions; `due` are its right calls, written in Python."""
    apis = row["involved_classes"]
    functions = [one for name in apis for one in _functions(package, name)]
    parameters = {one["name"]: list(one["parameters"]["properties"]) for one in functions}
    later = {turn: set(names) for turn, names in row.get("missed_function", {}).items()}
    hidden = {*row.get("excluded_function", ()), *(name for names in later.values() for name in names)}
    tools = declared([one for one in functions if one["name"] not in hidden])
    added = {turn: declared([one for one in functions if one["name"] in names]) for turn, names in later.items()}
    turns = [list(turn) or [user(ADDED)] for turn in row["question"]]
    answer = {
        "apis": apis,
        "initial": row["initial_config"],
        "long": "long_context" in row["id"],
        "turns": turns,
        "added": added,
        "due": [[_call(text, parameters) for text in calls] for calls in due],
    }
    category = row["id"].removeprefix("multi_turn_").rpartition("_")[0]
    return Problem(problem_id("apis", row["id"]), f"apis.{category}", "apis", tuple(turns[0]), answer, tuple(tools))


def problems(count: int, seed: str) -> list[Problem]:
    """At most `count` of BFCL's questions, those of odd numbers: the even ones are left to be measured with. Of the
    variants of a scenario, which have one number, one is taken, or others of them would be held out.

    Raises:
        EnvironmentUnavailable: bfcl-eval is not installed.
    """
    package, draw = installed(), random.Random(f"apis/{seed}")
    variants: dict[str, list[tuple[dict[str, Any], list[list[str]]]]] = {}
    for category in CATEGORIES:
        for row, due in questions(package, category):
            if practised(row["id"]):
                variants.setdefault(row["id"].rpartition("_")[2], []).append((row, due))
    taken = [draw.choice(found) for found in variants.values()]
    draw.shuffle(taken)
    return [problem_of(row, due, package) for row, due in taken[:count]]


def practised(identifier: str) -> bool:
    """Whether `problems` gives a question: all of a scenario's variants have its number."""
    return int(identifier.rpartition("_")[2]) % 2 == 1


def questions(package: Traversable, category: str) -> Iterator[tuple[dict[str, Any], list[list[str]]]]:
    """(question, right calls) of a category."""
    name = f"BFCL_v4_multi_turn_{category}.json"
    due = {row["id"]: row["ground_truth"] for row in _rows(package / "data" / "possible_answer" / name)}
    for row in _rows(package / "data" / name):
        yield row, due[row["id"]]


def installed() -> Traversable:
    """The folder of the installed package, found and not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentUnavailable(
            "the environment 'apis' plays with the APIs of bfcl-eval, which is not installed: "
            "pip install --no-deps bfcl-eval==2026.3.23 (its dependencies would replace others), or leave it out"
        )
    return Path(spec.submodule_search_locations[0])


def sources(package: Traversable | None, apis: Sequence[str]) -> dict[str, str]:
    """The files that these APIs are made of, by the path at which they are imported."""
    folder = (package or installed()) / SOURCES
    names = [*(APIS[name] for name in apis), "long_context"]
    return {f"{PACKAGE}/{SOURCES}/{name}.py": (folder / f"{name}.py").read_text(encoding="utf-8") for name in names}


def mathematics() -> dict[str, str]:
    """The files of mpmath, which torch brings: logarithms are taken by it."""
    spec = importlib.util.find_spec("mpmath")
    assert spec is not None
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    paths = [path for path in sorted(root.rglob("*.py")) if "tests" not in path.parts]
    return {f"mpmath/{path.relative_to(root)}": path.read_text(encoding="utf-8") for path in paths}


def _functions(package: Traversable, api: str) -> list[dict[str, Any]]:
    return list(_rows(package / "data" / "multi_turn_func_doc" / f"{APIS[api]}.json"))


def _rows(file: Traversable) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def _call(text: str, parameters: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A call written in Python, read without running it."""
    tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ValueError(f"{text[:80]!r} is no call of a function")
    name = tree.func.id
    arguments = dict(zip(parameters[name], map(ast.literal_eval, tree.args), strict=False))
    arguments |= {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
    return {"name": name, "arguments": arguments}
