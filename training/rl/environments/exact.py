"""Replies that are compared with one text or one call: the answer and nothing else."""

from __future__ import annotations

from model.chat import Reply, ToolCall
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict
from training.rl.rewards import same, schema_error


class ExactAnswer(Environment):
    """The reply must be the answer, whose text is `answer`; space around it and a final full stop, English or Chinese,
    are forgiven."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        said = reply.content.strip()
        forms = (said, said.removesuffix(".").rstrip(), said.removesuffix("。").rstrip())
        return verdict(not reply.calls and problem.answer in forms, "another answer")

    def gold(self, problem: Problem) -> list[Reply]:
        return [Reply(problem.answer)]

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        gold = problem.answer
        return [[Reply(text)] for text in (gold + "1", f"1 {gold}", f"It is {gold}.", f"{gold}\n{gold}", "x")]


class RightCall(Environment):
    """The reply must make one call, valid under its tool's schema; `answer` is {"name", "arguments", "index"}, of which
    the last is its number in the dialogue."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        gold = self._call(problem)
        right = any(
            (made.name, made.index) == (gold.name, gold.index)
            and schema_error(made.name, made.arguments, problem.tools) is None
            and same(made.arguments, gold.arguments)
            for made in reply.calls
        )
        return verdict(right and len(reply.calls) == 1, "another call")

    def gold(self, problem: Problem) -> list[Reply]:
        return [Reply("", (self._call(problem),))]

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        call = self._call(problem)
        more = {**call.arguments, "unasked": 1}
        return [
            [Reply(f"{call.name} {call.arguments}")],
            [Reply("", (call, ToolCall(call.name, call.arguments, call.index + 1)))],
            [Reply("", (ToolCall(call.name, call.arguments, call.index + 1),))],
            [Reply("", (ToolCall(call.name + "_now", call.arguments, call.index),))],
            [Reply("", (ToolCall(call.name, more, call.index),))],
        ]

    def _call(self, problem: Problem) -> ToolCall:
        answer = problem.answer
        return ToolCall(answer["name"], answer["arguments"], answer.get("index", 0))
