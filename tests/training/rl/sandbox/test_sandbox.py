"""The sandbox as its callers see it: order, limits, refusals, ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

import pydantic
import pytest
from pydantic import ValidationError

from training.rl.sandbox import languages
from training.rl.sandbox.config import (
    ExpectedOutput,
    FunctionTests,
    Program,
    SandboxConfig,
    SandboxUnavailable,
    Status,
)
from training.rl.sandbox.inside import plain
from training.rl.sandbox.languages import Language
from training.rl.sandbox.sandbox import Sandbox

HOUSE = Path(__file__).parents[4]
ADD = FunctionTests(entry_point="add", check="def check(candidate):\n    assert candidate(2, 3) == 5\n")


def function(source: str, check: str, **more: object) -> Program:
    return Program(source=source, tests=FunctionTests(entry_point="f", check=check, **more))  # type: ignore[arg-type]


def test_outcomes_come_in_order_and_programs_run_at_once(bubblewrap: str) -> None:
    programs = [Program(source=f"import time; time.sleep({0.2 if n % 2 else 0}); print({n})") for n in range(8)]
    with Sandbox(SandboxConfig(workers=2, wall_seconds=120.0)) as sandbox:
        assert [outcome.stdout for outcome in sandbox.run(programs)] == [f"{n}\n" for n in range(8)]


def test_whatever_runs_is_killed_when_the_block_ends(bubblewrap: str) -> None:
    found: list[Status] = []
    with Sandbox(SandboxConfig(workers=1, wall_seconds=300.0)) as sandbox:
        program = Program(source="import time; print(1, flush=True); time.sleep(1000)")
        thread = threading.Thread(target=lambda: found.extend(one.status for one in sandbox.run([program])))
        thread.start()
        (worker,) = sandbox.workers
        while not any((group.folder / "cgroup.procs").read_text() for group in worker.groups) and thread.is_alive():
            time.sleep(0.01)
            if not worker.groups:
                time.sleep(2)
                break
        process = worker.process
    thread.join(60)
    assert found == [Status.KILLED]
    assert process is not None
    assert process.poll() is not None
    assert not any(group.folder.exists() for group in worker.groups)


def test_a_fork_server_that_dies_is_started_anew(bubblewrap: str) -> None:
    with Sandbox(SandboxConfig(workers=1, wall_seconds=120.0)) as sandbox:
        (worker,) = sandbox.workers
        assert worker.process is not None
        worker.process.kill()
        worker.process.wait()
        first, second = sandbox.run([Program(source="print(1)")] * 2)
        assert first.status is Status.KILLED
        assert second.stdout == "1\n"


def test_expected_output(sandbox: Sandbox) -> None:
    def passes(source: str, stdout: str) -> bool | None:
        return sandbox.run([Program(source=source, tests=ExpectedOutput(stdout=stdout))])[0].passed

    assert passes("print('a ')\nprint('b')\nprint()", "a\nb")
    assert not passes("print('a')", "b")
    assert not passes("print('a'); raise SystemExit(1)", "a")


def test_hidden_tests_see_helpers_of_the_prompt(sandbox: Sandbox) -> None:
    prompt = "def double(x):\n    return x * 2\n\n\ndef f(x):\n    '''Four times x.'''\n"
    check = "def check(candidate):\n    assert candidate(3) == double(double(3))\n"
    program = function(prompt + "    return 4 * x\n", check, prompt=prompt)
    assert sandbox.run([program])[0].passed
    assert not sandbox.run([function(prompt, check, prompt=prompt)])[0].passed


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("(1, [2.5, None], {'a': {3}, (1, 2): b'x'})", None),
        ("frozenset({1}), range(3), 1j, True, -(10 ** 400), bytearray(b'z')", None),
        ("float('inf'), -0.0, '\\ud800 漢', ''", None),
        ("__import__('collections').Counter('aab')", "{'a': 2, 'b': 1}"),
        ("__import__('collections').namedtuple('P', 'x')(1)", "(1,)"),
        ("[__import__('decimal').Decimal(x) for x in ('1.50', '-0', 'NaN', 'Infinity', '1E+99')]", None),
        ("{__import__('fractions').Fraction(-6, 4): 10 ** 40}", None),
        ("[d := __import__('datetime'), d.date(2026, 3, 5), d.datetime(2026, 3, 5, 14, 45, 0, 7, d.UTC)][1:]", None),
        ("[d := __import__('datetime'), d.time(14, 45), d.timedelta(-1, 3, 9)][1:]", None),
        ("__import__('enum').Enum('Colour', 'RED GREEN').GREEN", "2"),
        ("__import__('enum').IntFlag('F', 'A B')(3), __import__('enum').StrEnum('S', 'A').A", "(3, 'a')"),
        ("{'b': 1, 'a': 2}.keys(), {'b': 1}.values(), {'b': [1]}.items()", None),
        ("__import__('collections').deque([1, 2])", None),
        # as numpy's numbers look; whether numpy is there depends on the interpreter
        ("[type('int64', (), {'dtype': 'i8', 'shape': (), 'item': lambda self: 7})()]", "[7]"),
    ],
)
def test_plain_values_arrive_as_they_are(sandbox: Sandbox, value: str, seen: str | None) -> None:
    check = f"def check(candidate):\n    wanted = {seen or value}\n    assert repr(candidate()) == repr(wanted)\n"
    (outcome,) = sandbox.run([function(f"def f():\n    return {value}", check)])
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize(
    ("returned", "holds"),
    [
        ("(y * y for y in range(4))", "list(x) == [0, 1, 4, 9]"),
        ("map(str, range(3))", "next(x) == '0' and sorted(x) == ['1', '2']"),
        ("zip('ab', reversed([1, 2]))", "dict(x) == {'a': 2, 'b': 1}"),
        ("itertools.count(5)", "list(itertools.islice(x, 3)) == [5, 6, 7]"),
        ("[iter([1]), enumerate('a')]", "[list(one) for one in x] == [[1], [(0, 'a')]]"),
        ("Decimal('0.1') + Decimal('0.2')", "x == Decimal('0.3') and x + 1 > 1"),
        ("Fraction(1, 3) * 2", "x == Fraction(2, 3)"),
        ("date(2026, 3, 5) + timedelta(30)", "(x - date(2026, 3, 5)).days == 30"),
        ("{1: 2}.keys()", "x == {1} and len(x) == 1"),
    ],
)
def test_tests_work_with_what_they_get(sandbox: Sandbox, returned: str, holds: str) -> None:
    libraries = "import itertools\nfrom datetime import *\nfrom decimal import *\nfrom fractions import *\n"
    check = f"{libraries}def check(candidate):\n    x = candidate()\n    assert {holds}\n"
    (outcome,) = sandbox.run([function(f"{libraries}def f():\n    return {returned}", check)])
    assert outcome.passed, outcome.reason


@pytest.mark.parametrize(
    "data",
    [
        {"decimal": ["x"]}, {"decimal": [1, 2, 3, 4]}, {"decimal": ["9" * 20_000]},
        {"fraction": [1, 0]}, {"fraction": [{"int": "0x" + "f" * 20_000}, 1]},
        {"date": ["2026-13-01"]}, {"datetime": [5]}, {"timedelta": [10 ** 12, 0, 0]}, {"iterator": [1, 2, 3]},
        {"keys": [[]]}, {"items": [1]}, {"set": [[1]]}, {"Decimal": ["1"]}, {"iterator": 5}, {"enum": [1]},
    ],
)  # fmt: skip
def test_what_no_value_was_packed_to_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"plain value|digits|isoformat|month"):
        plain.unpack(data)


def test_errors_that_tests_expect_arrive(sandbox: Sandbox) -> None:
    check = "def check(c):\n    try:\n        c(0)\n    except ZeroDivisionError:\n        return\n    assert 0\n"
    assert sandbox.run([function("def f(x):\n    return 1 / x", check)])[0].passed
    assert not sandbox.run([function("def f(x):\n    return [][x]", check)])[0].passed


def test_what_a_function_does_to_its_arguments_is_seen_where_asked_for(sandbox: Sandbox) -> None:
    check = "def check(candidate):\n    x = [3, 1]\n    candidate(x)\n    assert x == [1, 3]\n"
    source = "def f(x):\n    x.sort()"
    assert sandbox.run([function(source, check, in_place=True)])[0].passed
    assert not sandbox.run([function(source, check)])[0].passed


@pytest.mark.parametrize(
    ("source", "check", "reason"),
    [
        ("def f(x): return x", "def check(c): pass", "never called"),
        ("def f(x): return type(x)", "def check(c): c([1])", "no plain data"),
        ("def f(x): return (1 // y for y in x)", "def check(c): list(c([0]))", "ZeroDivisionError"),
        ("import itertools\nf = itertools.repeat", "def check(c): list(c(1))", "goes on after 10,000 values"),
        ("def f(x): return iter(['x' * 10 ** 6] * x)", "def check(c): list(c(9))", "goes on after 4 values"),
        (
            "from decimal import *\ngetcontext().prec = 10 ** 5\ndef f(x): return 1 / Decimal(x)",
            "def check(c): c(3)",
            "100,002 digits",
        ),
        ("from fractions import *\ndef f(x): return Fraction(1, 3 ** x)", "def check(c): c(10 ** 5)", "digits"),
        ("def f(x):\n  for _ in range(10 ** 6): x = [x]\n  return x", "def check(c): c(1)", "RecursionError"),
        ("def g(x): return x", "def check(c): c(1)", "ended"),
        ("def f(x) return x", "def check(c): c(1)", "ended"),
        ("def f(x): return x", "def check(c) c(1)", "SyntaxError"),
    ],
)
def test_the_reason_of_a_failed_test(sandbox: Sandbox, source: str, check: str, reason: str) -> None:
    (outcome,) = sandbox.run([function(source, check)])
    assert outcome.passed is False
    assert reason in outcome.reason


def test_a_reason_that_quotes_half_a_surrogate_pair_is_text(sandbox: Sandbox) -> None:
    """Else no file and no table would take the outcome."""
    tests = FunctionTests(entry_point="f", check="def check(candidate):\n    candidate(1)")
    (outcome,) = sandbox.run([Program(source="def f(x):\n    raise ValueError('\\ud800')", tests=tests)])
    assert outcome.reason.encode() == b"the tests failed: ValueError: ?"


def test_a_program_in_no_language_is_refused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    (outcome,) = sandbox.run([Program(source="", language="cobol")])
    assert outcome.status is Status.REFUSED
    assert "'cobol'" in outcome.reason
    monkeypatch.setitem(languages.LANGUAGES, "zig", Language("main.zig", ("zig-of-nowhere",), "zig"))
    (outcome,) = sandbox.run([Program(source="", language="zig")])
    assert outcome.reason == "zig needs zig-of-nowhere, which is not here (`apt-get install zig`)"


def test_files_that_cannot_be_written_are_said(sandbox: Sandbox) -> None:
    (outcome,) = sandbox.run([Program(source="print(1)", files={"a": "", "a/b": ""})])
    assert outcome.status is Status.FAILED
    assert "FileExistsError" in outcome.stderr


def test_a_closed_sandbox_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        Sandbox().run([Program(source="")])


def test_programs_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="no relative path"):
        Program(source="", files={"../x": ""})
    with pytest.raises(ValidationError, match="no relative path"):
        Program(source="", files={"/x": ""})
    with pytest.raises(ValidationError, match="only Python functions"):
        Program(source="", language="c", tests=ADD)
    with pytest.raises(ValidationError, match="cannot be one"):
        FunctionTests(entry_point="a.b", check="")


def test_without_bubblewrap_it_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"), Sandbox():
        raise AssertionError("it started")


def test_where_namespaces_are_forbidden_it_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What bubblewrap says on a machine that does not let it make namespaces."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with (
        pytest.raises(SandboxUnavailable, match=r"No permissions to create new namespace.*unprivileged_userns"),
        Sandbox(),
    ):
        raise AssertionError("it started")


USER = """
import json, sys
from training.rl.sandbox.config import Program, SandboxConfig
from training.rl.sandbox.sandbox import Sandbox
BOMB = '''
import os, time
made = 0
try:
    while os.fork(): made += 1
    time.sleep(100)
except OSError: print(made)
'''
with Sandbox(SandboxConfig(workers=1, wall_seconds=120.0, processes=8)) as sandbox:
    texts = ["print(1)", "bytearray(1 << 30)", BOMB, "import os; print(os.getuid(), os.listdir('/proc')[-1])"]
    outcomes = sandbox.run([Program(source=text) for text in texts])
    print(json.dumps([sandbox.limits, [[one.status, one.stdout] for one in outcomes]]))
"""


def test_an_ordinary_user_can_run_it(bubblewrap: str, tmp_path: Path) -> None:
    """Without cgroups the rlimits hold. As root this becomes another user, for whom an interpreter has to be found."""
    python, environment = (
        sys.executable,
        {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{HOUSE}:{Path(pydantic.__file__).parents[1]}"},
    )
    change: dict[str, int] = {}
    if os.geteuid() == 0:
        found = shutil.which(f"python{sysconfig.get_python_version()}", path="/usr/bin")
        if not found:
            pytest.skip("root's interpreter cannot be read by others, and /usr/bin has none of its version")
        python, change = found, {"user": 65534, "group": 65534}
    done = subprocess.run([python, "-c", USER], capture_output=True, text=True, env=environment, cwd="/", **change)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    held, (first, memory, bomb, look) = json.loads(done.stdout)
    assert first == ["ok", "1\n"]
    assert memory[0] == "memory"
    assert bomb[0] == "ok"
    assert 1 <= int(bomb[1]) <= 8
    assert look[1].startswith("65534 ")
    assert set(held) == {"memory", "processes"}
