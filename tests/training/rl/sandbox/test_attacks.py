"""What the sandbox stops, and what it does not: a case for every line of docs/sandbox.md."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.training.rl.sandbox.conftest import SECRET, cases
from tests.training.rl.sandbox.test_seccomp import TABLES
from training.rl.sandbox import seccomp
from training.rl.sandbox.config import FunctionTests, Outcome, Program, SandboxConfig
from training.rl.sandbox.sandbox import Sandbox

ATTACKS, FORGERIES = cases("attacks"), cases("forgeries")
HERE = Path(__file__).parent
PAGE = HERE.parents[3] / "docs" / "sandbox.md"
ABSTRACT = "openk2-test-sandbox"


def prelude() -> str:
    _, column = seccomp.ARCHITECTURES[platform.machine()]
    numbers = {name: pair[column] for table in TABLES for name, pair in table.items()}
    abstract = "\0" + ABSTRACT
    return (HERE / "prelude.py").read_text() + f"NUMBERS = {numbers}\nABSTRACT = {abstract!r}\n"


def run(sandbox: Sandbox, case: dict[str, Any], program: Program) -> Outcome:
    """In the shared sandbox, or in one with the limits of the case."""
    if "limits" not in case:
        return sandbox.run([program])[0]
    with Sandbox(SandboxConfig(**{"workers": 1, "wall_seconds": 120.0, **case["limits"]})) as own:
        return own.run([program])[0]


@pytest.fixture
def intact(sandbox: Sandbox) -> Any:
    """After a case the fork server is the same, nothing of the program lives, and the next one starts with nothing."""
    (worker,) = sandbox.workers
    before = worker.process
    yield
    for group in worker.groups:
        assert (group.folder / "cgroup.procs").read_text() == ""
    look = "import os; print(*map(os.listdir, ('/tmp/work', '/dev/shm')), sorted(os.listdir('/proc'))[:2])"
    assert sandbox.run([Program(source=look)])[0].stdout == "['main.py'] [] ['1', '2']\n"
    assert worker.process is before


@pytest.mark.usefixtures("intact")
@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case["line"])
def test_attack(sandbox: Sandbox, case: dict[str, Any]) -> None:
    if case.get("machine", platform.machine()) != platform.machine():
        pytest.skip(f"machine code of {case['machine']}")
    (worker,) = sandbox.workers
    if "needs" in case and not worker.limited(case["needs"]):
        pytest.skip(f"no {case['needs']} cgroup can be made here: docs/sandbox.md says what holds then")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + ABSTRACT)
        listening.listen()
        source = prelude() + f"SECRET, SECRET_FILE = {SECRET[::-1]!r}[::-1], {os.environ['OPENK2_SECRET_FILE']!r}\n"
        outcome = run(sandbox, case, Program(source=source + case["source"]))
    told = f"{outcome!r} {outcome.stdout[:2000]} {outcome.stderr[-2000:]}"
    statuses = case.get("status", "ok")
    assert outcome.status in ([statuses] if isinstance(statuses, str) else statuses), told
    if "stdout" in case:
        assert outcome.stdout in ([case["stdout"]] if isinstance(case["stdout"], str) else case["stdout"]), told
    if "exit_code" in case:
        assert outcome.exit_code == case["exit_code"], told
    assert outcome.stdout.startswith(case.get("starts", "")), told
    if "then" in case:
        (second,) = sandbox.run([Program(source=source + case["then"])])
        assert second.stdout == case["then_stdout"], second.stderr


@pytest.mark.usefixtures("intact")
@pytest.mark.parametrize("case", FORGERIES, ids=lambda case: case["line"])
def test_forgery(sandbox: Sandbox, case: dict[str, Any]) -> None:
    secret = "test-secret-" + "0f" * 16
    check = f"import math, json\nSECRET = {secret!r}\ndef check(candidate):\n{case.get('more', '')}"
    check += "    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n"
    check += "    assert all(x == y for x, y in zip(map(candidate, [10, 20], [1, 2]), [11, 22]))\n"
    tests = FunctionTests(prompt="def add(a, b):\n    '''Add.'''\n", entry_point="add", check=check)
    source = prelude() + "import re\n" + case["source"]
    outcome = run(sandbox, case, Program(source=source, tests=tests))
    assert outcome.passed is False, repr(outcome)
    assert outcome.status == case.get("status", "failed"), repr(outcome)
    assert outcome.stdout.startswith("tried"), f"{outcome!r} {outcome.stdout[:500]} {outcome.stderr[-2000:]}"


def test_every_line_of_the_page_has_its_case() -> None:
    sections = dict(part.split("\n", 1) for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:])

    def listed(title: str) -> list[str]:
        return [line.removeprefix("- ") for line in sections[title].splitlines() if line.startswith("- ")]

    stopped = [case["line"] for case in ATTACKS if "open" not in case] + [case["line"] for case in FORGERIES]
    assert listed("What it stops") == stopped
    assert listed("What it does not stop") == [case["line"] for case in ATTACKS if "open" in case]
    assert len(stopped) >= 60
