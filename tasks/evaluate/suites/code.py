"""Functions to be written (HumanEval's format), judged by their hidden tests in the sandbox; pass@k."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence

from tasks.evaluate.suites.config import Code
from tasks.evaluate.suites.item import Item, Measured, Scored, Unmeasurable
from tasks.evaluate.suites.subject import Ask, Subject
from training.draw import seeded
from training.intervals import mean
from training.rl.environments.code import written
from training.rl.sandbox.config import FunctionTests, Program, SandboxConfig, SandboxUnavailable
from training.rl.sandbox.sandbox import Sandbox

STOPS = re.compile(r"\n(?=class |def |#|if |print|@|```)")
"""Where a continuation leaves the function: the stop sequences that HumanEval's authors give (arXiv 2107.03374)."""
ASKED = "Complete this Python function. Answer with the whole function in one fenced block.\n\n```python\n{prompt}```"


def measure(suite: Code, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """Every problem's programs, run with their tests. Unmeasurable where this machine cannot isolate programs."""
    asks = [
        Ask.of(
            suite.form,
            item.row["prompt"] if suite.form == "raw" else ASKED.format(prompt=item.row["prompt"]),
            max_new_tokens=suite.max_new_tokens,
            temperature=suite.temperature,
            seeds=tuple(seeded(seed, suite.name, item.id, draw) for draw in range(suite.samples)),
        )
        for item in items
    ]
    try:
        workers = min(os.cpu_count() or 1, max(1, len(items) * suite.samples))
        with Sandbox(SandboxConfig(workers=workers, wall_seconds=suite.wall_seconds)) as sandbox:
            drawn = subject.replies(asks)
            programs = [
                Program(source=program(reply.content, item.row["prompt"], item.row["entry_point"]), tests=_tests(item))
                for item, replies in zip(items, drawn, strict=True)
                for reply in replies or ()
            ]
            outcomes = iter(sandbox.run(programs))
    except SandboxUnavailable as error:
        raise Unmeasurable(f"programs that a model wrote run in the sandbox alone: {error}") from error
    scored = []
    by_k: dict[int, list[float]] = {k: [] for k in suite.k}
    for item, replies in zip(items, drawn, strict=True):
        ends = [next(outcomes) for _ in replies or ()]
        right = sum(end.passed is True for end in ends)
        for k, values in by_k.items():
            values.append(pass_at(k, len(ends), right) if ends else 0.0)
        why = "the window has no room for it" if replies is None else next((e.reason for e in ends if not e.passed), "")
        scored.append(Scored(item.id, by_k[suite.k[0]][-1], replies[0].content if replies else "", why))
    rates = {f"pass@{k}": mean(values).rounded() for k, values in by_k.items()}
    first = suite.k[0]
    return Measured(f"pass@{first}", scored, mean(by_k[first]), {"samples": suite.samples, "rates": rates})


def pass_at(k: int, samples: int, right: int) -> float:
    """The chance that one of `k` programs drawn from these passes: the unbiased estimator, 1 - C(n-c, k) / C(n, k)
    (arXiv 2107.03374, equation 1)."""
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def program(reply: str, prompt: str, entry_point: str) -> str:
    """What a reply says is to be run, behind the prompt's own lines. A function that is defined anew there takes the
    place of the prompt's."""
    text, defined = written(reply, entry_point)
    return f"{prompt}\n\n{text}" if defined else prompt + STOPS.split(text, maxsplit=1)[0]


def _tests(item: Item) -> FunctionTests:
    return FunctionTests(prompt=item.row["prompt"], entry_point=item.row["entry_point"], check=item.row["test"])
