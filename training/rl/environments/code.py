"""Functions with hidden tests, run in the sandbox (HumanEval's form).

`answer` is {"entry_point", "prompt", "check", "gold", "wrong"}: `check` asserts on the function, `gold` and `wrong` are
programs for the law. The problems that come with the project are rows of `code.yaml`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

from model.chat import Reply
from training.draw import problem_id
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict
from training.rl.sandbox.config import FunctionTests, Program, SandboxUnavailable, Status

FENCE = re.compile(
    r"(?<![ \t`~])([ \t]*)(`{3,}+|~{3,}+)[ \t]*+[\w{}.+#-]*+(?:[ \t]++\S*=\S*+)*+[ \t]*+\n"
    r"(.*?)(?:^(?:\1)?\2|(?<=[^\s`~])\2[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A fenced block, whatever its language is called; words behind ``` say that it ends something. It ends with a line of
its own or behind the last of its text: what stands deeper in it, such as a docstring's example, does not end it."""
CONTINUATION = re.compile(r"\n*[ \t]+(?![ \t]|```|~~~)")
ROWS = Path(__file__).with_name("code.yaml")


class Coding(Environment):
    """One reply: the function in a fenced block or alone, or the body that goes on with the prompt."""

    waits = True

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        if reply.calls or not reply.content.strip():
            return verdict(False, "no program")
        answer = problem.answer
        tests = FunctionTests(prompt=answer["prompt"], entry_point=answer["entry_point"], check=answer["check"])
        program = Program(source=source(reply.content, answer["prompt"], answer["entry_point"]), tests=tests)
        try:
            (outcome,) = self.services.sandbox.run([program])
        except SandboxUnavailable as error:
            raise EnvironmentUnavailable(f"problem {problem.id} is judged by running code: {error}") from None
        return verdict(outcome.passed is True and outcome.status is Status.OK, f"{outcome.status}: {outcome.reason}")

    def gold(self, problem: Problem) -> list[Reply]:
        return [Reply(f"Here it is:\n```python\n{problem.answer['gold']}\n```")]

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        name = problem.answer["entry_point"]
        texts = (
            problem.answer["wrong"],
            f"def {name}(*given):\n    return None",
            "print('All tests passed.')",
            f"import sys\ndef {name}(*given):\n    sys.exit(0)",
            f"class Any:\n    __eq__ = lambda self, other: True\ndef {name}(*given):\n    return Any()",
        )
        return [[Reply(text)] for text in texts]


def source(text: str, prompt: str, entry_point: str) -> str:
    """The program that a reply gives, behind the prompt where it does not define the function itself."""
    found, defined = written(text, entry_point)
    return found if defined else prompt + found


def written(text: str, entry_point: str) -> tuple[str, bool]:
    """The code of a reply: the last fenced block that defines the function, for examples may stand behind it; else the
    last block, or all of it where it has none or begins indented, as the function goes on. And whether it defines the
    function."""
    text = text.replace("\r\n", "\n")
    blocks = [block for _, _, block in FENCE.findall(text)]
    name = re.escape(entry_point)
    defines = re.compile(rf"^[ \t]*+(?:async\s+)?def\s+{name}\b|^{name}\s*=", re.MULTILINE)
    if defining := [block for block in blocks or [text] if defines.search(block)]:
        return dedent(defining[-1]), True  # a fence in a list is indented with what it holds
    return (text if not blocks or CONTINUATION.match(text) else blocks[-1]), False


def problems(count: int, seed: str) -> list[Problem]:
    """The problems of `code.yaml` in an order of the seed, at most `count`: there are as many as rows."""
    rows: list[dict[str, Any]] = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    random.Random(f"code/{seed}").shuffle(rows)
    return [_problem(row) for row in rows[:count]]


def _problem(row: dict[str, Any]) -> Problem:
    prompt = row["prompt"].rstrip() + "\n"
    name = prompt.partition("def ")[2].partition("(")[0]
    check = "\n".join(f"assert {name}{test}" for test in row["tests"])
    answer = {
        "entry_point": name,
        "prompt": prompt,
        "check": check,
        "gold": prompt + row["gold"],
        "wrong": prompt + row["wrong"],
    }
    text = f"Complete this Python function. Reply with the whole function.\n\n{prompt}"
    return Problem(problem_id("code", name), "code", "code", ({"role": "user", "content": text},), answer)
