"""What environments share: opened when the first of them asks, closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.resources.abc import Traversable
from typing import Any, Self, TypeVar

from training.rl.config import LibraryConfig
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.maths_process import MathProcess
from training.rl.environments.verifiers_process import VerifiersProcess
from training.rl.sandbox.config import SandboxConfig
from training.rl.sandbox.sandbox import Sandbox

T = TypeVar("T")
Support = Callable[[str, Sequence[str]], Sequence[float]]
"""(a source, sentences) -> for each sentence how far the source supports it, 0 to 1."""
Judge = Callable[[str], str]
"""A question to a model that judges -> what it says."""
CODE_SECONDS = 60.0
"""On the clock, of programs of `code`, which may take 8 CPU-seconds: they have those where fifteen processes share two
cores, and one that sleeps is waited for no longer."""
CALLS_SECONDS = 600.0
"""On the clock, of calls of simulated APIs: what they may do, their CPU time says, on a machine however busy."""
MOST_KEPT = 4096
"""Tasks of worlds that are kept; drawing one takes some milliseconds."""


class Services:
    """A sandbox, a process for mathematics, and what a run was given to judge by; safe to use from several threads."""

    def __init__(
        self,
        sandbox: SandboxConfig | None = None,
        support: Support | None = None,
        judge: Judge | None = None,
        apis: Traversable | None = None,
        library: LibraryConfig | None = None,
    ) -> None:
        """`support`: what judges faithfulness, whose environment refuses without it; `judge`: what sees what no rule
        does; `apis`: the folder of bfcl-eval, in its wheel say (None: where it is installed); `library`: a task set
        of `verifiers`."""
        self.support, self.judge, self.apis = support, judge, apis
        self.idle_seconds = 0.0
        """For which nothing could be sampled because environments were waited for."""
        self._config = sandbox or SandboxConfig(workers=2, wall_seconds=CODE_SECONDS)
        self._lock = threading.RLock()
        self._open = ExitStack()
        self._sandbox: Sandbox | None = None
        self._calls: Sandbox | None = None
        self._maths: MathProcess | None = None
        self._library = None if library is None else self._open.enter_context(VerifiersProcess(library))
        self._kept: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End every process."""
        with self._lock:
            self._open.close()
            self._sandbox = self._calls = self._maths = None

    @property
    def sandbox(self) -> Sandbox:
        """Where code runs. Raises SandboxUnavailable."""
        with self._lock:
            if self._sandbox is None:
                self._sandbox = self._open.enter_context(Sandbox(self._config))
            return self._sandbox

    @property
    def calls(self) -> Sandbox:
        """Where calls of simulated APIs run, which never sleep: as `sandbox`, but for its clock. Raises
        SandboxUnavailable."""
        with self._lock:
            if self._calls is None:
                config = self._config.model_copy(update={"wall_seconds": CALLS_SECONDS})
                self._calls = self._open.enter_context(Sandbox(config))
            return self._calls

    @property
    def maths(self) -> MathProcess:
        """What compares mathematics."""
        with self._lock:
            if self._maths is None:
                self._maths = self._open.enter_context(MathProcess())
            return self._maths

    @property
    def library(self) -> VerifiersProcess:
        """What has the tasks of `rl.library`."""
        if self._library is None:
            raise EnvironmentUnavailable("problems of the library `verifiers` need rl.library, which is not given")
        return self._library

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gave when `key` first came."""
        with self._lock:
            if key not in self._kept:
                if len(self._kept) >= MOST_KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = make()
            return self._kept[key]
