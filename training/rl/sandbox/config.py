"""What the sandbox takes and gives: limits, a program with its hidden tests, and what became of it."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Self

from pydantic import Field, field_validator, model_validator

from model.config import Config


class SandboxConfig(Config):
    """Limits of one program; docs/sandbox.md says what holds each of them."""

    workers: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Programs that run at once, each beside a fork server of its own."""
    wall_seconds: float = Field(default=10.0, gt=0)
    """Time on the clock after which every process of a program is killed."""
    cpu_seconds: int = Field(default=8, ge=1)
    """CPU time of one process."""
    memory_mib: int = Field(default=512, ge=32)
    """Memory of all processes of a program together, or of each of them where no memory cgroup can be had."""
    processes: int = Field(default=32, ge=1)
    """Processes and threads of a program."""
    disk_mib: int = Field(default=64, ge=1)
    """Room of the program's private folder, which is memory and gone with it; also the largest file."""
    files: int = Field(default=2000, ge=16)
    """Files and folders in there."""
    descriptors: int = Field(default=256, ge=32)
    """Open files of one process."""
    output_kib: int = Field(default=256, ge=1)
    """What is kept of each of stdout and stderr; a program that writes more is killed."""


class FunctionTests(Config):
    """Hidden tests of a Python function, in HumanEval's form. They run in a process of their own, which only calls the
    program's function: the program sees the arguments of the calls and nothing else of the tests."""

    prompt: str = ""
    """What the task gave: the tests see its helpers. It has to run by itself (a `def` with a docstring does)."""
    entry_point: str
    """Name of the function."""
    check: str
    """Python that defines `check(candidate)`, or plain assertions that call the function by its name."""
    in_place: bool = False
    """Whether the tests look at what the function did to the lists, dicts and sets it was given. Only where a task asks
    for that: `assert f(x) == sorted(x)` holds for a function that empties x."""

    @field_validator("entry_point")
    @classmethod
    def _name(cls, name: str) -> str:
        if not name.isidentifier():
            raise ValueError(f"entry_point is the name of a function, and {name[:80]!r} cannot be one")
        return name


class ExpectedOutput(Config):
    """What a program has to write to stdout; it is compared outside of the sandbox."""

    stdout: str
    """Blanks at the ends of lines and empty lines at the end do not count."""


class Program(Config):
    """Something to run that nobody has vouched for."""

    source: str = Field(repr=False)
    """Its text."""
    language: str = "python"
    """A row of `languages.LANGUAGES`."""
    stdin: str = Field(default="", repr=False)
    """What it can read from standard input."""
    files: dict[str, str] = Field(default_factory=dict, repr=False)
    """Texts it finds in its folder, by relative path."""
    tests: FunctionTests | ExpectedOutput | None = Field(default=None, repr=False)
    """What decides `Outcome.passed`."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for name in self.files:
            parts = PurePosixPath(name).parts
            if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
                raise ValueError(f"files: {name[:80]!r} is no relative path within the program's folder")
        if isinstance(self.tests, FunctionTests) and self.language != "python":
            raise ValueError(f"tests: only Python functions can be called, not {self.language}: give ExpectedOutput")
        return self


class Status(StrEnum):
    """How a program ended."""

    OK = "ok"
    """By itself, with exit code 0; where it has tests, they passed."""
    FAILED = "failed"
    """By itself, with another exit code or by a signal; or its tests failed."""
    TIMEOUT = "timeout"
    """Killed for its time on the clock or on the CPU."""
    MEMORY = "memory"
    """It asked for more memory than it may have."""
    OUTPUT = "output"
    """Killed for writing too much."""
    KILLED = "killed"
    """Ended from outside: the sandbox was closed, or its worker died."""
    REFUSED = "refused"
    """It did not run; `reason` says why."""


class Outcome(Config):
    """What became of a program. Its texts come from the program: they are data."""

    status: Status
    reason: str = ""
    """Why it is not `ok`, in a sentence."""
    passed: bool | None = None
    """What the tests said; None without tests. Never true where the status is not `ok`."""
    exit_code: int | None = None
    """Negative: the signal that ended it. None where something else did."""
    stdout: str = Field(default="", repr=False)
    stderr: str = Field(default="", repr=False)
    seconds: float = 0.0
    """On the clock."""
    cpu_seconds: float = 0.0
    """Of its processes that ended by themselves: the kernel does not add up those that are killed with the rest."""


class SandboxUnavailable(RuntimeError):
    """This machine cannot isolate a program; the text says what is missing and what to do."""
