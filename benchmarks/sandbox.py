"""The sandbox beside a fresh `bwrap python` for every program: CPU time of a program and programs a second.

    python -m benchmarks.sandbox [--programs 300] [--rounds 5] [--workers 2]

- ours: one fork server a worker; each program in fresh user, pid, mount, ipc, uts, net and cgroup namespaces with a
  folder of its own, rlimits, a control group and a seccomp filter.
- tests: the same with hidden tests of a function, judged in a process of their own.
- fresh: bubblewrap around a new interpreter for every program, with the same view of the machine and the outer filter.
- bare: a new interpreter without any isolation, for scale.

Each program prints a number. CPU time is that of everything: the processes of the sandbox and of this side, by what the
kernel charged to them (not its own threads that take namespaces apart: `machine` adds those, and whatever else runs, so
it means something on a quiet machine alone). Rounds take turns; medians. A ratio above 1 is in favour of ours.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from benchmarks.common import in_turns
from training.rl.sandbox import bubble, cgroups, seccomp
from training.rl.sandbox.config import FunctionTests, Program, SandboxConfig, Status
from training.rl.sandbox.sandbox import Sandbox
from training.rl.sandbox.worker import memory_file

SOURCE = "import json\nprint(json.dumps({'answer': sum(range(1000))}))\n"
FUNCTION = "def add(a, b):\n    return a + b\n"
TESTS = FunctionTests(entry_point="add", check="def check(c):\n    assert c(1, 2) == 3\n    assert c(-1, 1) == 0\n")
FOLDER = ["--tmpfs", "/tmp", "--disable-userns"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=300, help="of ours in a round; the others run a quarter of it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    machine = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ": ?")
    model, load = machine.partition(": ")[2], os.getloadavg()[0]
    print(f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load {load:.1f}")
    few = max(1, arguments.programs // 4)
    config = SandboxConfig(workers=arguments.workers, wall_seconds=60.0)
    with Sandbox(config) as sandbox, ThreadPoolExecutor(arguments.workers) as threads:
        print("limits: " + ", ".join(f"{name} by {what}" for name, what in sandbox.limits.items()))

        def ours(program: Program, count: int) -> None:
            outcomes = sandbox.run([program] * count)
            wrong = [one for one in outcomes if one.status is not Status.OK]
            assert not wrong, wrong[0]

        def fresh(isolated: bool) -> None:
            for done in threads.map(lambda _: once(isolated), range(few)):
                assert done == b'{"answer": 499500}\n', done

        account = Account(sandbox)
        plain, tested = Program(source=SOURCE), Program(source=FUNCTION, tests=TESTS)
        sides: dict[str, tuple[int, Callable[[], None]]] = {
            "ours": (arguments.programs, lambda: ours(plain, arguments.programs)),
            "tests": (arguments.programs, lambda: ours(tested, arguments.programs)),
            "fresh": (few, lambda: fresh(True)),
            "bare": (few, lambda: fresh(False)),
        }
        timed = {name: partial(measure, account, side, count) for name, (count, side) in sides.items()}
        results = in_turns(timed, arguments.rounds)
    account.close()
    show(results)


def once(isolated: bool) -> bytes:
    """One program in an interpreter of its own."""
    python = str(bubble.interpreter()[0])
    if not isolated:
        return subprocess.run([python, "-I", "-c", SOURCE], capture_output=True, check=True, env={}).stdout
    outer = memory_file(seccomp.fork_server(platform.machine()))
    command = bubble.command(bubble.requirements(), outer, "")
    inner = [*command[: command.index("--remount-ro")], *FOLDER, "--remount-ro", "/", python, "-I", "-c", SOURCE]
    try:
        return subprocess.run(inner, capture_output=True, check=True, env={}, pass_fds=(outer,)).stdout
    finally:
        os.close(outer)


class Account:
    """CPU time that the kernel charges to this process and all it starts from now on, the killed and unburied too: a
    control group (version 2 counts in every one of them)."""

    def __init__(self, sandbox: Sandbox) -> None:
        hierarchy = cgroups.mount(Path("/sys/fs/cgroup"), "")
        mine = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        places = [made for folder in cgroups.above(hierarchy, mine[3:]) if (made := cgroups.make(folder))]
        if not places:
            raise SystemExit("this needs a cgroup v2 hierarchy that can be written")
        for extra in places[1:]:
            extra.rmdir()
        here, self.home = places[0], hierarchy / mine[4:]
        self.folders = [here, *(group.folder for worker in sandbox.workers for group in worker.groups)]
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            (here / "cgroup.procs").write_text(str(process.pid))

    def seconds(self) -> float:
        stats = [folder / "cpu.stat" for folder in self.folders]
        return sum(int(stat.read_text().split()[1]) for stat in stats if stat.exists()) / 1e6

    def close(self) -> None:
        """Back to where this process was."""
        (self.home / "cgroup.procs").write_text(str(os.getpid()))
        for _ in range(100):  # its processes may be about to go
            with suppress(OSError):
                self.folders[0].rmdir()
                break
            time.sleep(0.02)


def measure(account: Account, side: Callable[[], None], count: int) -> tuple[float, float, float]:
    """CPU-ms a program of the tree, CPU-ms a program of the whole machine, programs a second."""
    machine, tree, start = psutil.cpu_times(), account.seconds(), time.perf_counter()
    side()
    seconds, used, after = time.perf_counter() - start, account.seconds() - tree, psutil.cpu_times()
    busy = sum(after) - sum(machine) - (after.idle - machine.idle) - (after.iowait - machine.iowait)
    return used / count * 1000, busy / count * 1000, count / seconds


def show(results: dict[str, list[tuple[float, float, float]]]) -> None:
    found = {name: [median(column) for column in zip(*rounds, strict=True)] for name, rounds in results.items()}
    print(f"{'':8}{'CPU-ms':>10}{'machine':>10}{'programs/s':>12}{'of ours':>10}")
    for name, (cpu, machine, rate) in found.items():
        print(f"{name:8}{cpu:10.1f}{machine:10.1f}{rate:12.0f}{cpu / found['ours'][0]:10.1f}")


if __name__ == "__main__":
    main()
