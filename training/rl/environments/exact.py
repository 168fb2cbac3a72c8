"""Replies that are compared with one text or one call: the answer and nothing else."""

from __future__ import annotations

from model.chat import Reply, ToolCall
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict
from training.rl.rewards import exact_answer, right_call


class ExactAnswer(Environment):
    """The reply must be the answer; `answer` is its text."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        return verdict(exact_answer(reply, problem.answer) == 1.0, "another answer")

    def gold(self, problem: Problem) -> list[Reply]:
        return [Reply(problem.answer)]

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        gold = problem.answer
        return [[Reply(text)] for text in (gold + "1", f"1 {gold}", f"It is {gold}.", f"{gold}\n{gold}", "x")]


class RightCall(Environment):
    """The reply must be one tool call; `answer` is {"name", "arguments", "index"}."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        return verdict(right_call(reply, problem.answer, problem.tools) == 1.0, "another call")

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
