"""Call dialogues: a few small tools, some requests, and for each the right call with its result, or none at all.

What is new in a dialogue of a held-out split is one of `config.NOVELTIES`, and its environment is named after it; in
training nothing is. Every request's problem (the function with its arguments) lies on its split's side.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.dialogue import PREFIX, spaced, tool_result, user
from tasks.agentic.catalogue import CATALOGUE
from tasks.agentic.config import CallsConfig
from tasks.agentic.dialogue import Dialogue
from tasks.agentic.mcp.recorded import RecordedTool
from tasks.agentic.problems import FAMILIES, ask, same_work, side
from tasks.agentic.rubric import Rubric, broken_criterion, shown
from tasks.agentic.tools import Tool, ToolError
from training.draw import problem_id
from training.rl.environments import Problem
from training.rl.worlds.personas import PERSONAS
from training.rl.worlds.wording import FRAMES, Language, Split, expand, say, split_of

log = logging.getLogger(__name__)

TRIES = 400
ABSENT: Mapping[Language, str] = {"english": "I have no tool for that.", "chinese": "我没有合适的工具。"}
TALK: Mapping[Language, tuple[tuple[str, str], ...]] = {
    "english": (
        ("(Hi|Hello|Good morning|Good evening|Hey)( there|)(!|.)", "Hello! What can I do for you?"),
        ("(Thanks|Thank you)( so much| a lot|)(!|.)", "You are welcome."),
        ("(Bye|Goodbye|See you|Good night)( then| for now|)(!|.)", "Goodbye!"),
        ("(Who|What) are you( really|)?", "I am an assistant with tools."),
    ),
    "chinese": (
        ("(你好|您好|早上好|晚上好)(啊|呀|)(！|。)", "你好！有什么可以帮你？"),
        ("(谢谢|多谢|感谢)(你|您|)(！|。)", "不客气。"),
        ("(再见|回头见|晚安)(了|啦|)(！|。)", "再见！"),
        ("你(是谁|叫什么|是什么)(呀|呢|)？", "我是会使用工具的助手。"),
    ),
}
"""Grammars of what people say without wanting anything done, and what is said to it."""


@dataclass
class _Writing:
    """A dialogue under way."""

    toolbox: Mapping[str, Tool]
    language: Language
    messages: list[dict[str, Any]] = field(default_factory=list)
    work: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    criteria: list[str] = field(default_factory=list)
    made: list[tuple[str, Mapping[str, Any], bool]] = field(default_factory=list)
    """The calls, for the rubric."""
    final: str = ""
    """What the last turn must say."""
    broken: str | None = None

    def ask(self, text: str, reply: str, work: str) -> None:
        """A request that is answered in words."""
        self.messages += [user(text), {"role": "assistant", "content": reply}]
        self.work.append(work)
        self.criteria.append(f"answers without a call: {text}")
        self.final = reply

    def call(self, text: str, name: str, arguments: dict[str, Any]) -> None:
        """A request that is answered by a call, its real result, and a sentence."""
        tool, call_id = self.toolbox[name], f"{PREFIX}{name}:{len(self.called)}"
        self.called.append(name)
        self.criteria.append(f"does what was asked: {text}")
        self.made.append((name, arguments, True))
        self.work.append(work_of(tool, arguments))
        try:
            result = tool.call(arguments)
        except ToolError as error:
            self.broken, result = f"the tool failed: {tool.name}", f"error: {error}"
        reply = tool.reply(self.language, arguments, result)
        function = {"name": name, "arguments": spaced(arguments)}
        self.messages += [
            user(text),
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            tool_result(name, call_id, result),
            {"role": "assistant", "content": reply},
        ]
        self.final = result if result in reply else ""


def call_dialogue(
    config: CallsConfig,
    share: float,
    split: Split,
    environment: str,
    draw: random.Random,
    recorded: Sequence[RecordedTool] = (),
) -> Dialogue:
    """A dialogue of one to `config.requests` requests; the first is its environment's, and RL's problem. `recorded` are
    the tools of real servers, which are asked for in English."""
    language: Language = "chinese" if draw.random() < config.chinese and not recorded else "english"
    persona = draw.choice([one for one in PERSONAS if one.style in config.styles])
    toolbox = _toolbox(config, split, environment, language, draw, recorded)
    writing = _Writing(toolbox, language)
    declarations = tuple(tool.declaration(name, config.descriptions) for name, tool in toolbox.items())
    focus = next(iter(toolbox))  # what the environment is about, until the declarations are mixed
    declarations = tuple(draw.sample(declarations, len(declarations)))
    answer: Any = None
    for number in range(draw.randint(1, config.requests)):
        due = environment != "no_call" if number == 0 else draw.random() >= config.silent
        if due:
            name = focus if number == 0 else draw.choice(list(toolbox))
            novelty = environment if number == 0 else "tool_call"
            text, arguments = _request(toolbox[name], language, split, share, novelty, persona.style, draw)
            writing.call(text, name, arguments)
            answer = answer or {"name": name, "arguments": arguments, "index": 0}
        else:
            text, reply, work = _idle(persona.style, toolbox, language, split, share, draw)
            writing.ask(text, reply, work)
            answer = answer or reply
        if writing.broken:
            break
    verifier = "exact" if environment == "no_call" else "call"
    problem = Problem(writing.work[0], environment, verifier, (writing.messages[0],), answer, declarations)
    rubric = Rubric(tools=tuple(writing.called), final=writing.final)
    broken = writing.broken or broken_criterion(rubric, writing.messages, declarations, toolbox)
    topic = toolbox[focus].name if verifier == "call" else ""
    new = ("arguments",) if recorded else ("arguments", *(environment.split("_")[2:]))
    unseen = () if split == "train" else new
    licence = ", ".join(sorted({tool.licence for tool in toolbox.values() if isinstance(tool, RecordedTool)}))
    return Dialogue(
        problem,
        writing.messages,
        broken,
        tuple(writing.work),
        unseen,
        persona=persona.name,
        topic=topic,
        licence=licence,
        rubric=shown(writing.criteria, writing.made, [[writing.final]] if writing.final else []),
    )


def work_of(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """The id of what a call works out: a sum is the same problem here and in the `addition` family."""
    if tool.name == "math.add":
        return same_work("addition", (min(arguments["a"], arguments["b"]), max(arguments["a"], arguments["b"])))
    if tool.name == "math.subtract":
        return same_work("subtraction", (arguments["a"], arguments["b"]))
    return problem_id(tool.name, *(f"{name}={value}" for name, value in sorted(arguments.items())))


def on_side(recorded: Sequence[RecordedTool], split: Split, share: float) -> list[RecordedTool]:
    """The tools of servers that were called on the split's side, each with those calls alone. A tool without arguments
    has one call, and that lies on one side.

    Raises:
        ValueError: there is none.
    """
    found: list[RecordedTool] = []
    for tool in recorded:
        calls = tuple(one for one in tool.calls if side(work_of(tool, one), share) == split)
        found += [tool.with_calls(calls)] if calls else []
    if not found:
        raise ValueError(
            f"none of the recorded calls of tools.servers is on the side of {split}: record more of them "
            f"(tools.recorded), add a tool with more arguments, or hold out another share than {share}"
        )
    if without := sorted({tool.name for tool in recorded} - {tool.name for tool in found}):
        log.warning("no dialogue of %s has %s: none of their recorded calls is on its side", split, ", ".join(without))
    return found


def _toolbox(
    config: CallsConfig,
    split: Split,
    environment: str,
    language: Language,
    draw: random.Random,
    recorded: Sequence[RecordedTool],
) -> dict[str, Tool]:
    """Tools by the names that are declared, that of the environment first: known ones, but for what is to be new. Half
    of the dialogues with real tools offer others of them beside, as servers do, half our own."""
    known: list[Tool] = [tool for tool in CATALOGUE if tool.split == "train"]
    first = draw.choice(recorded or _candidates(split, environment, language))
    others = draw.sample([tool for tool in known if tool is not first], len(known) - 1)
    if recorded and draw.random() < 0.5:
        others = [*draw.sample([tool for tool in recorded if tool is not first], len(recorded) - 1), *others]
    chosen = [first, *others[: draw.randint(1, config.offered) - 1]]
    toolbox: dict[str, Tool] = {}
    for tool in chosen:
        if isinstance(tool, RecordedTool):
            toolbox[tool.name] = tool
            continue
        new = environment == "tool_call_name" and tool is first
        names = [name for name in tool.names if split_of("tool", name) == (split if new else "train")]
        toolbox[draw.choice(names if new else names[: config.names])] = tool
    return toolbox


def _candidates(split: Split, environment: str, language: Language) -> list[Tool]:
    """Functions of which the first request of an environment may be."""
    if environment == "tool_call_tool":
        return [tool for tool in CATALOGUE if tool.split == split]
    known = [tool for tool in CATALOGUE if tool.split == "train"]
    if environment == "tool_call_name":
        return [tool for tool in known if any(split_of("tool", name) == split for name in tool.names)]
    if environment == "tool_call_wording":
        return [tool for tool in known if _wordings(tool, language, split)]
    return known


def _wordings(tool: Tool, language: Language, split: Split) -> list[str]:
    return [wording for wording in tool.wordings(language) if split_of("wording", wording) == split]


def _request(
    tool: Tool, language: Language, split: Split, share: float, novelty: str, style: str, draw: random.Random
) -> tuple[str, dict[str, Any]]:
    """Words that ask for the tool, and the arguments they name, which are on the split's side."""
    wordings: Split = split if novelty == "tool_call_wording" else "train"
    for _ in range(TRIES):
        drawn = tool.draw(draw)
        arguments = {name: drawn[name] for name in tool.properties if name in drawn}  # the schema's order
        if side(work_of(tool, arguments), share) == split:
            frame = draw.choice(FRAMES[style][language])
            clause = draw.choice(tool.clauses(language, wordings, arguments))
            return clause if clause.endswith("?") else say(frame, clause), arguments
    raise ValueError(
        f"{tool.name} has no arguments on the side of {split}: hold out more than {share}, or another tool"
    )


def _idle(
    style: str,
    toolbox: Mapping[str, Tool],
    language: Language,
    split: Split,
    share: float,
    draw: random.Random,
) -> tuple[str, str, str]:
    """A request that needs no call: (what is said, the reply, its problem)."""
    kind = draw.random()
    if kind < 0.4:
        for _ in range(TRIES):
            grammar, reply = draw.choice(TALK[language])
            text = draw.choice(expand(grammar))
            work = problem_id("talk", text)
            if side(work, share) == split:
                return text, reply, work
    if kind < 0.6:
        for _ in range(TRIES):
            name = draw.choice(("copy", "reverse", "sort"))
            key = FAMILIES[name].draw(draw, 3)
            if side(same_work(name, key), share) == split:
                return ask(FAMILIES[name], key, draw), FAMILIES[name].answer(key), same_work(name, key)
    absent = [tool for tool in CATALOGUE if tool.split == "train" and tool not in toolbox.values()]
    tool = draw.choice(absent)
    text, arguments = _request(tool, language, split, share, "tool_call", style, draw)
    return text, ABSENT[language], work_of(tool, arguments)
