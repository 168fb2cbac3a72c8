"""Tasks of the library `verifiers` and their rewards: a question a line on stdin, its answer a line on stdout. It runs
under the interpreter that has the library and imports nothing of ours, so that it starts by its path alone.

The first question names the task set; later ones ask for a task, or for what follows a reply: what is said to it, or
the reward of the episode that it ends. Every question brings all replies so far, and nothing is kept in between.

The library has had two forms. A task set (`Tasks`, from 0.4 on) describes its tasks: tools run in this process, and the
replies become a trace that the library's own `Task.score` judges without a runtime, as in its `replay`. An environment
(`Played`, before 0.4: a module with `load_environment`) plays its tasks itself: it is given a model that says the
replies so far, and is stopped where it asks for one more.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import json
import os
import random
import sys
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path

ROWS = 100_000
"""Tasks of a finite set that are looked at."""
LONGEST = 20_000
"""Characters of what a tool says that a model sees."""
LONGEST_LINE = 1 << 20
"""Bytes of an answer that is read (`line_process.LONGEST_ANSWER`). A longer one would end the job: what is said instead
makes a task left out, or a reply wrong."""


def main() -> None:
    # What a library prints must not end up among the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer) -> None:  # type: ignore[no-untyped-def]
        line = json.dumps(answer)
        if len(line) >= LONGEST_LINE:  # what one prompt, or the results of one reply's many calls, may come to
            line = json.dumps({"raised": f"too much: an answer of more than {LONGEST_LINE:,} bytes"})
        print(line, file=out, flush=True)

    try:
        tasks = opened_set(**json.loads(sys.stdin.readline()))
    except BaseException as error:  # whatever a package does when it is imported
        say({"error": f"{type(error).__name__}: {error}"[:2000]})
        return
    say({"count": tasks.count})
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            question = json.loads(line)
            try:
                say(runner.run(tasks.turn(**question) if "turns" in question else tasks.row(**question)))
            except Exception as error:
                say({"raised": f"{type(error).__name__}: {error}"[:500]})


def opened_set(module, arguments, answer, calls):  # type: ignore[no-untyped-def]
    if os.sep in module:  # a package, or a file, that is not installed
        path = Path(module).resolve()
        sys.path.insert(0, str(path.parent))
        module = path.stem
    name = module.rpartition("/")[2].replace("-", "_")
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A set that is there and misses a module of its own says which. One that is not there itself, the library looks
        # for in further places, and it says what is missing, where it is of the form that does.
        absent = f"{name}.".startswith(f"{error.name}.")
        before = importlib.util.find_spec("verifiers") and not importlib.util.find_spec("verifiers.v1")
        if not absent or before:
            raise
        return Tasks(module, arguments, answer, calls)
    if hasattr(found, "load_environment"):
        return Played(found.load_environment(**arguments), answer, calls)
    return Tasks(module, arguments, answer, calls)


# Task sets


class Tasks:
    """The tasks of a set, in its order."""

    def __init__(self, module, arguments, answer, calls):  # type: ignore[no-untyped-def]
        from verifiers.v1.env import Env
        from verifiers.v1.utils import loaders

        exported = vars(loaders.import_taskset(module))
        for name in exported.get("__all__", ()):
            if isinstance(exported[name], type) and issubclass(exported[name], Env):
                raise NotImplementedError(
                    f"{name} plays its tasks itself, with agents, and a policy's tokens would be unknown"
                )
        config = loaders.taskset_config_type(module).model_validate({"id": module, **arguments})
        taskset = loaders.load_taskset(config)
        if taskset.toolsets(config):
            raise NotImplementedError("its tasks share tools: what one episode does, another would see")
        self.answer, self.calls = answer, calls
        self.tasks = list(islice(taskset, ROWS)) if taskset.bounded else []
        self.more = iter(()) if taskset.bounded else iter(taskset)
        self.count = len(self.tasks) if taskset.bounded else None

    def task(self, row):  # type: ignore[no-untyped-def]
        """None behind the last."""
        self.tasks += islice(self.more, max(0, row + 1 - len(self.tasks)))
        return self.tasks[row] if row < len(self.tasks) else None

    async def row(self, row):  # type: ignore[no-untyped-def]
        """What is asked, with which tools, what is right, and by which key the task is known."""
        task = self.task(row)
        if task is None:
            return {"end": True}
        if reason := unfit(task):
            return {"refused": reason}
        messages = [{"role": one.role, "content": text(one)} for one in prompt(task.data)]
        data = task.data.model_dump(mode="json")
        async with AsyncExitStack() as stack:
            tools = [
                {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
                for name, (_, tool) in (await opened(task, state_of(task), stack)).items()
            ]
        found = {"messages": messages, "answer": data.get(self.answer), "key": task.key, "tools": tools}
        return {**found, "calls": data.get(self.calls)} if self.calls else found

    async def turn(self, row, key, turns):  # type: ignore[no-untyped-def]
        """What the tools say to the last reply; to one without calls the weighted sum of the task's rewards."""
        import verifiers.v1 as vf
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask
        from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage

        task = self.task(row)
        if task is None or task.key != key:
            return {"changed": True}
        state, messages, said = state_of(task), prompt(task.data), []
        asked = len(messages)
        async with AsyncExitStack() as stack:
            tools = await opened(task, state, stack) if any(turn["calls"] for turn in turns) else {}
            for turn in turns:
                calls = [
                    ToolCall(id=call["id"], name=call["name"], arguments=json.dumps(call["arguments"]))
                    for call in turn["calls"]
                ]
                messages.append(AssistantMessage(content=turn["content"], tool_calls=calls or None))
                said = [await result(tools, call) for call in turn["calls"]]
                messages += [
                    ToolMessage(tool_call_id=call.id, content=words, name=call.name)
                    for call, words in zip(calls, said, strict=True)
                ]
        if said:
            return {"said": [{"text": words, "call": place} for place, words in enumerate(said)]}
        trace = Trace(
            task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=state,
            agent=AgentInfo(config=vf.AgentConfig()),
            nodes=[
                MessageNode(
                    parent=place - 1 if place else None,
                    message=message,
                    sampled=place >= asked and message.role == "assistant",
                )
                for place, message in enumerate(messages)
            ],
            is_completed=True,
            ok=True,
        )
        await task.score(trace)
        return {"reward": float(trace.reward)}


def state_of(task):  # type: ignore[no-untyped-def]
    """What tools and rewards of an episode share, as it is at first."""
    from verifiers.v1.state import state_cls

    return state_cls(type(task))()


async def opened(task, state, stack):  # type: ignore[no-untyped-def]
    """The task's tools by the names that the library shows them under: (its server, the tool as MCP describes it)."""
    from mcp.server.mcpserver import MCPServer

    async def pull():  # type: ignore[no-untyped-def]
        return state

    async def push(before):  # type: ignore[no-untyped-def]
        """The state is one object here; the library's own sends it to a server."""

    found = {}
    for toolset in type(task).toolsets(task.config):
        toolset._pull_state, toolset._push_state = pull, push
        stack.push_async_callback(toolset._exit_stack.aclose)
        await toolset.setup()
        await toolset.setup_task(task.data)
        server = MCPServer(toolset.server_name or type(toolset).__name__)
        toolset.register(server)
        for tool in await server.list_tools():
            name = "_".join(filter(None, (toolset.server_name, tool.name)))
            if name in found:
                raise ValueError(f"two of its tools are called {name!r}")
            found[name] = server, tool
    return found


async def result(tools, call):  # type: ignore[no-untyped-def]
    """What a tool says to a call, its errors too."""
    if call["name"] not in tools:
        return f"there is no tool {call['name']!r}"
    server, tool = tools[call["name"]]
    try:
        found = await server.call_tool(tool.name, call["arguments"])
    except Exception as error:  # whatever a tool raises, MCP says to the model
        return str(error)[:LONGEST]
    return "\n".join(block.text if block.type == "text" else f"[{block.type}]" for block in found.content)[:LONGEST]


def prompt(data):  # type: ignore[no-untyped-def]
    """The messages that a task begins with."""
    from verifiers.v1.types import SystemMessage, UserMessage

    given = data.prompt
    messages = [UserMessage(content=given)] if isinstance(given, str) else list(given or [])
    return [*([SystemMessage(content=data.system_prompt)] if data.system_prompt else []), *messages]


def text(message):  # type: ignore[no-untyped-def]
    from verifiers.v1.types import content_text

    return content_text(message.content)


def unfit(task):  # type: ignore[no-untyped-def]
    """Why it cannot be played here, empty where it can."""
    import inspect

    from verifiers.v1.runtimes import SubprocessConfig
    from verifiers.v1.state import State
    from verifiers.v1.task import Task

    kind = type(task)
    if reason := unaskable(prompt(task.data)):
        return reason
    if task.NEEDS_CONTAINER or task.data.image:
        return "it needs a container"
    for toolset in kind.toolsets(task.config):
        config = toolset.config
        if getattr(config, "url", None) or getattr(config, "colocated", False):
            return "its tools are elsewhere"
        if not isinstance(getattr(config, "runtime", SubprocessConfig()), SubprocessConfig):
            return "its tools need a container"
        if toolset._state_cls is not State and not isinstance(state_of(task), toolset._state_cls):
            return "its tools keep a state that it does not have"
    if kind.setup is not Task.setup or kind.finalize is not Task.finalize:
        return "it prepares a runtime"
    rewards = [*task.hooks("reward"), *(judge.score for judge in task.plugged_judges())]
    for reward in rewards:
        asked = inspect.signature(reward).parameters.get("runtime")
        if asked is not None and asked.default is inspect.Parameter.empty:
            return f"its reward {reward.__name__} needs a runtime"
    return "" if rewards else "it has no reward"


def unaskable(messages):  # type: ignore[no-untyped-def]
    """Why a task cannot begin with these messages, empty where it can."""
    found = [fields(one) for one in messages]
    if not found or found[-1].get("role") != "user":
        return "it does not begin with what a user asks"
    if any(one["role"] == "tool" or one.get("tool_calls") for one in found):
        return "its prompt has calls of tools"
    return "its prompt has pictures" if any(words(one["content"]) is None for one in found) else ""


# Environments that play themselves


class Enough(Exception):
    """Ends an episode where it asks for a reply that is not there yet."""


class Played:
    """The rows of an environment's training data, in their order."""

    def __init__(self, environment, answer, calls):  # type: ignore[no-untyped-def]
        if environment.requires_group_rollouts:
            raise NotImplementedError("its rewards compare the replies of a group with each other; here each is judged")
        self.environment, self.answer, self.calls = environment, answer, calls
        self.rows = environment.get_dataset()
        self.count = min(len(self.rows), ROWS)

    def given(self, row):  # type: ignore[no-untyped-def]
        """(what the environment is given, the key of it)."""
        found = self.rows[row]
        whole = json.dumps(found, sort_keys=True, default=str)
        return found, hashlib.sha256(whole.encode()).hexdigest()

    async def row(self, row):  # type: ignore[no-untyped-def]
        """As of `Tasks`: what the environment asks its model first."""
        if row >= self.count:
            return {"end": True}
        given, key = self.given(row)
        model, _ = await self.played(given, key, [])
        if model.wanted is None:
            return {"refused": "it ends before it asks anything"}
        if reason := unaskable(model.wanted):
            return {"refused": reason}
        info = given.get("info") or {}
        columns = {**(json.loads(info) if isinstance(info, str) else info), **given}
        found = {
            "messages": [{"role": role, "content": content} for role, content, _ in map(plain, model.wanted)],
            "answer": columns.get(self.answer),
            "key": key,
            "tools": [
                {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters}
                for tool in model.tools
            ],
        }
        return {**found, "calls": columns.get(self.calls)} if self.calls else found

    async def turn(self, row, key, turns):  # type: ignore[no-untyped-def]
        """What the environment says to the last reply, or the reward of the episode that it ended."""
        given, now = self.given(row) if row < self.count else ({}, "")
        if now != key:
            return {"changed": True}
        model, state = await self.played(given, key, turns)
        if model.wanted is not None:
            try:
                return {"said": said_since(model.wanted, model.before, turns[-1])}
            except ValueError as error:
                return {"error": str(error)}
        if model.turns:
            return {"error": "played again with the same replies, an episode ended before them: it goes by chance"}
        if state.get("error") is not None:
            return {"raised": f"{type(state['error']).__name__}: {state['error']}"[:500]}
        await self.environment.rubric.score_rollout(state)
        return {"reward": float(state["reward"])}

    async def played(self, given, key, turns):  # type: ignore[no-untyped-def]
        """(the model that said the replies, the episode's state where it came to its end)."""
        random.seed(key)  # an environment that draws draws the same every time that an episode is played again
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(int(key[:8], 16))
        model = said_by(turns)
        try:
            state = await self.environment.rollout(given, model, "policy", {})
        except Enough:
            state = {}
        return model, state


def said_by(turns):  # type: ignore[no-untyped-def]
    """A model of the library's that says these replies."""
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage, ToolCall

    class Said(Client):
        """`wanted`: the messages that a further reply was asked for with; `before`: those of the last reply."""

        def __init__(self):  # type: ignore[no-untyped-def]
            super().__init__(None)
            self.turns, self.before, self.wanted, self.tools = list(turns), [], None, ()

        async def get_response(self, prompt, model, sampling_args, tools=None, **more):  # type: ignore[no-untyped-def]
            self.tools = tools or ()
            if not self.turns:
                self.wanted = prompt
                raise Enough
            self.before, turn = list(prompt), self.turns.pop(0)
            calls = [
                ToolCall(id=call["id"], name=call["name"], arguments=json.dumps(call["arguments"]))
                for call in turn["calls"]
            ]
            message = ResponseMessage(
                content=turn["content"],
                tool_calls=calls or None,
                finish_reason="tool_calls" if calls else "stop",
                is_truncated=False,
            )
            return Response(id="reply", created=0, model=model, message=message)

        async def close(self):  # type: ignore[no-untyped-def]
            """Nothing is open."""

    # the library's other steps turn a provider's answer into one of its own, and this is one of its own
    Said.__abstractmethods__ = frozenset()
    return Said()


def said_since(wanted, before, turn):  # type: ignore[no-untyped-def]
    """What follows the last reply. Raises ValueError where that is not what a model sees behind it."""
    kept, reply, said = wanted[: len(before)], wanted[len(before) : len(before) + 1], wanted[len(before) + 1 :]
    same = [plain(one) for one in kept] == [plain(one) for one in before]
    if not same or not reply or plain(reply[0])[:2] != ("assistant", turn["content"]):
        raise ValueError("it changes what was said before, where RL goes on with every token that was drawn")
    places = {call["id"]: place for place, call in enumerate(turn["calls"])}
    found = []
    for role, content, call in (plain(one) for one in said):
        if content is None or role not in ("user", "tool") or (role == "tool" and call not in places):
            raise ValueError(f"it says something ({role}) that is no text of a user's or of a tool that was called")
        found.append({"text": content[:LONGEST], **({"call": places[call]} if role == "tool" else {})})
    return found


def plain(message):  # type: ignore[no-untyped-def]
    """(role, text, the call that it answers) of a message in either of the library's forms."""
    found = fields(message)
    return found.get("role"), words(found.get("content")), found.get("tool_call_id")


def fields(one):  # type: ignore[no-untyped-def]
    """A message, or a part of its content, in either of the library's forms."""
    return one if isinstance(one, dict) else one.model_dump()


def words(content):  # type: ignore[no-untyped-def]
    """The text of a message's content; None where there is more than text."""
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [fields(part) for part in content]
    return "".join(part["text"] for part in parts) if all(part.get("type") == "text" for part in parts) else None


if __name__ == "__main__":
    main()
