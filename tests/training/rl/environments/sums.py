"""A task set of the library `verifiers`, for test_library.py: it is read by the library, under its interpreter."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from typing import Literal

import verifiers.v1 as vf


class SumsData(vf.TaskData):
    answer: str | None = None


class SumsConfig(vf.TasksetConfig):
    kind: Literal["boxed", "paid", "listed", "nan", "late", "raises", "noisy", "ends", "partial"] = "boxed"
    tasks: int = 40
    endless: bool = False


class Sum(vf.Task[SumsData]):
    kind = "boxed"

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))

    @vf.reward(weight=0.75)
    async def right(self, trace: vf.Trace) -> float:
        reply = trace.last_reply
        boxed = re.findall(r"\\boxed\{([^{}]*)\}", reply)
        await asyncio.sleep(0)
        if self.kind == "noisy":
            sys.stdout.write("{" * 100_000 + "\n")
            sys.stdout.flush()
        elif self.kind == "nan":
            return float("nan")
        elif self.kind == "late":
            await asyncio.sleep(1000)
        elif self.kind == "raises":
            raise ValueError("a reward that cannot be")
        elif self.kind == "ends":
            sys.exit(3)
        elif self.kind == "paid":
            return float(bool(reply))
        elif self.kind == "listed":
            return float(str(self.data.answer) in reply or "What is" in reply)
        return float(boxed[-1:] == [self.data.answer])

    @vf.reward(weight=0.25)
    async def asked(self, trace: vf.Trace) -> float:
        """The trace has the prompt too, and one turn of the model."""
        roles = [message.role for message in trace.messages]
        known = roles == ["system", "user", "assistant"] and trace.num_turns == 1 and trace.messages[1].content
        return float(known == self.data.prompt and (self.kind != "partial" or len(trace.last_reply) > 1000))


class WithContainer(Sum):
    NEEDS_CONTAINER = True


class WithRuntime(Sum):
    @vf.reward
    async def ran(self, runtime: vf.Runtime) -> float:
        return 1.0


class Prepared(Sum):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        return None


class Sums(vf.Taskset[Sum, SumsConfig]):
    @property
    def bounded(self) -> bool:
        return not self.config.endless

    def load(self) -> Iterator[Sum]:
        Sum.kind = self.config.kind
        place = 0
        while self.config.endless or place < self.config.tasks:
            prompt, answer = f"What is {place} + {place + 2}? Give it in \\boxed{{}}.", str(2 * place + 2)
            kinds = {5: WithContainer, 6: WithRuntime, 7: Prepared}
            data = SumsData(prompt=prompt, system_prompt="You add.", answer=None if place == 4 else answer)
            yield kinds.get(place, Sum)(data, self.config.task)
            place += 1


__all__ = ["Sums"]
