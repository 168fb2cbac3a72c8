"""Tasks of the library `verifiers` and their rewards: a question a line on stdin, its answer a line on stdout. It runs
under the interpreter that has the library and imports nothing of ours, so that it starts by its path alone.

The first question names the task set; later ones ask for a task, for what its tools say to a reply, or for the reward
of the last one. Tools run in this process and are made anew for every question, which brings all replies so far. These
become a trace that the library's own `Task.score` judges without a runtime, as in its `replay`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path

ROWS = 100_000
"""Tasks of a finite set that are looked at."""
LONGEST = 20_000
"""Characters of what a tool says that a model sees."""


def main() -> None:
    # What a library prints must not end up among the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer) -> None:  # type: ignore[no-untyped-def]
        print(json.dumps(answer), file=out, flush=True)

    try:
        tasks = Tasks(**json.loads(sys.stdin.readline()))
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


class Tasks:
    """The tasks of a set, in its order."""

    def __init__(self, module, arguments, answer, calls):  # type: ignore[no-untyped-def]
        if os.sep in module:  # a package, or a file, that is not installed
            path = Path(module).resolve()
            sys.path.insert(0, str(path.parent))
            module = path.stem
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
            return {"said": said}
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
    messages = prompt(task.data)
    if not messages or messages[-1].role != "user":
        return "it does not begin with what a user asks"
    if any(one.role == "tool" or getattr(one, "tool_calls", None) for one in messages):
        return "its prompt has calls of tools"
    if any(not isinstance(one.content, str) and any(part.type != "text" for part in one.content) for one in messages):
        return "its prompt has pictures"
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


if __name__ == "__main__":
    main()
