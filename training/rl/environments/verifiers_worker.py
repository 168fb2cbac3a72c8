"""Tasks of the library `verifiers` and their rewards: a question a line on stdin, its answer a line on stdout. It runs
under the interpreter that has the library and imports nothing of ours, so that it starts by its path alone.

The first question names the task set; later ones ask for a task, or for the reward of a reply to it. The reply becomes
a trace of one turn, which the library's own `Task.score` judges without a runtime, as in its `replay`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import islice
from pathlib import Path

ROWS = 100_000
"""Tasks of a finite set that are looked at."""


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
                if "reply" in question:
                    say(runner.run(tasks.reward(**question)))
                else:
                    say(tasks.row(**question))
            except Exception as error:
                say({"raised": f"{type(error).__name__}: {error}"[:500]})


class Tasks:
    """The tasks of a set, in its order."""

    def __init__(self, module, arguments, answer):  # type: ignore[no-untyped-def]
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
                    f"{name} plays its tasks itself, with agents: only replies of one turn are taken"
                )
        config = loaders.taskset_config_type(module).model_validate({"id": module, **arguments})
        taskset = loaders.load_taskset(config)
        if taskset.toolsets(config):
            raise NotImplementedError("its tasks share tools: only replies of one turn are taken")
        self.answer = answer
        self.tasks = list(islice(taskset, ROWS)) if taskset.bounded else []
        self.more = iter(()) if taskset.bounded else iter(taskset)
        self.count = len(self.tasks) if taskset.bounded else None

    def task(self, row):  # type: ignore[no-untyped-def]
        """None behind the last."""
        self.tasks += islice(self.more, max(0, row + 1 - len(self.tasks)))
        return self.tasks[row] if row < len(self.tasks) else None

    def row(self, row):  # type: ignore[no-untyped-def]
        """What is asked, what is right, and by which key the task is known."""
        task = self.task(row)
        if task is None:
            return {"end": True}
        if reason := unfit(task):
            return {"refused": reason}
        messages = [{"role": one.role, "content": text(one)} for one in prompt(task.data)]
        found = task.data.model_dump(mode="json").get(self.answer)
        return {"messages": messages, "answer": found, "key": task.key}

    async def reward(self, row, key, reply):  # type: ignore[no-untyped-def]
        """The weighted sum of the task's rewards."""
        import verifiers.v1 as vf
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.state import state_cls
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask
        from verifiers.v1.types import AssistantMessage

        task = self.task(row)
        if task is None or task.key != key:
            return {"changed": True}
        messages = [*prompt(task.data), AssistantMessage(content=reply)]
        last = len(messages) - 1
        trace = Trace(
            task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=state_cls(type(task))(),
            agent=AgentInfo(config=vf.AgentConfig()),
            nodes=[
                MessageNode(parent=place - 1 if place else None, message=message, sampled=place == last)
                for place, message in enumerate(messages)
            ],
            is_completed=True,
            ok=True,
        )
        await task.score(trace)
        return {"reward": float(trace.reward)}


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
    """Why a reply of one turn cannot be judged, empty where it can."""
    import inspect

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
    if kind.toolsets(task.config):
        return "it needs tools"
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
