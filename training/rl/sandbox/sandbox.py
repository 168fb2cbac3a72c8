"""The room where model-written code runs: many programs at once, each by itself, and nothing of them stays.

    with Sandbox(SandboxConfig()) as sandbox:
        outcomes = sandbox.run([Program(source="print(6 * 7)")])

docs/sandbox.md lists what it stops and what it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Self

from training.rl.sandbox.config import Outcome, Program, SandboxConfig, SandboxUnavailable, Status
from training.rl.sandbox.worker import Worker


class Sandbox:
    """Runs programs in parallel; on exit whatever still runs is killed."""

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config or SandboxConfig()
        self.workers: list[Worker] = []
        self._idle: SimpleQueue[Worker] = SimpleQueue()

    def __enter__(self) -> Self:
        """Start the workers and see a program run in each; SandboxUnavailable where that fails."""
        try:
            self.workers = [Worker(self.config) for _ in range(self.config.workers)]
            for worker in self.workers:
                worker.wait_until_ready()
                tried = worker.run(Program(source="print('here')"))
                if tried.status is not Status.OK or tried.stdout != "here\n":
                    raise SandboxUnavailable(f"a first program could not run in the sandbox: {tried.reason}")
                self._idle.put(worker)
        except BaseException:
            self._close()
            raise
        self._threads = ThreadPoolExecutor(self.config.workers, thread_name_prefix="sandbox")
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.interrupt()
        self._threads.shutdown()
        self._close()

    def _close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.workers = []

    def run(self, programs: Sequence[Program]) -> list[Outcome]:
        """Run them all and give their outcomes in the same order; safe to call from several threads."""
        if not self.workers:
            raise RuntimeError("programs run within `with Sandbox(...) as sandbox:`, and this one is not open")
        return list(self._threads.map(self._run, programs))

    def _run(self, program: Program) -> Outcome:
        worker = self._idle.get()
        try:
            return worker.run(program)
        finally:
            self._idle.put(worker)

    @property
    def limits(self) -> dict[str, str]:
        """What holds the limits that depend on the machine."""
        worker = self.workers[0]
        held = {one.name: f"cgroup v{one.version}" for group in worker.groups for one in group.controllers}
        return {
            "memory": held.get("memory", "rlimits: of each process, not of all together"),
            "processes": held.get("pids", "rlimit: of all processes together"),
        }
