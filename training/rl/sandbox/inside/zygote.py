"""The fork server, the first of three processes that stand between the trainer and a program. Runs within bubblewrap.

    fork server   has imported what programs import; has no capability, reads no word of a program
      init        first process of fresh namespaces, as many as Linux has; shuts itself in, then starts the program;
                  judges it where there are hidden tests, which it reads after the program is a process of its own
        program   what nobody has vouched for (`run.py`)

All three are forks: nothing is loaded anew for a program, and what it does to its memory is done to a copy of its own.
When init ends, the kernel kills whatever is left in its namespaces, and its folder is gone with them.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from training.rl.sandbox.inside import judge, kernel, run

PRELOADED = (
    "bisect collections copy dataclasses datetime decimal fractions functools heapq io itertools json math operator"
    " random re statistics string textwrap traceback typing"
)
"""What programs mostly import: loaded once. More costs every program, whose memory is a copy of this one."""
FIXED = 6
"""Descriptors that come with every program: source, stdin, stdout, stderr, report, tests. Cgroups to join follow."""


def main() -> None:
    """Serve programs until the other side closes the control socket."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    settings = json.loads(sys.argv[1])
    for name in PRELOADED.split():
        __import__(name)
    control = socket.socket(fileno=settings["control"])
    control.send(b"ready")
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 16)
        if not message:
            return
        if not descriptors:  # "kill" for a program that had ended by then
            continue
        started = time.monotonic()
        pid = kernel.clone(kernel.NEW_NAMESPACES)
        if pid == 0:
            init(settings, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        timeout = not ended(pid, control, started + settings["wall_seconds"])
        _, _, used = os.wait4(pid, 0)
        seconds = time.monotonic() - started
        report = {"timeout": timeout, "seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime}
        control.send(json.dumps(report).encode())


def ended(pid: int, control: socket.socket, deadline: float) -> bool:
    """Wait for init, or kill it when its time is over or the other side says so; false for the former."""
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(control, select.POLLIN)
    try:
        while True:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if any(descriptor == process for descriptor, _ in ready):
                return True
            if ready:
                control.recv(64)
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return bool(ready)
    finally:
        os.close(process)


def init(settings: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """The first process of a program's namespaces; never returns."""
    source, stdin, stdout, stderr, report, tests = descriptors[:FIXED]
    answer: dict[str, Any]
    try:
        os.close(settings["control"])
        shut_in(settings, descriptors[FIXED:])
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                run.program(source, (stdin, stdout, stderr), theirs.detach(), settings["languages"])
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
            finally:
                os._exit(1)
        theirs.close()
        nowhere = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2, source, stdin, stdout, stderr):
            os.dup2(nowhere, descriptor)
        answer = judge.verdict(tests, ours) if os.fstat(tests).st_size else {}
        if not answer:
            ours.close()
        answer["exit_code"] = exit_code(pid, wait=not answer)
    except BaseException as error:
        answer = {"broken": f"{type(error).__name__}: {error}"}
    os.write(report, json.dumps(answer).encode()[:60_000])
    os._exit(0)


def exit_code(pid: int, wait: bool) -> int | None:
    """How the program ended; orphans that end before it are buried on the way."""
    while True:
        found, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
        if found == pid:
            return os.waitstatus_to_exitcode(status)
        if found == 0:
            return None


def shut_in(settings: dict[str, Any], cgroups: list[int]) -> None:
    """Give up everything a program must not have: what is set here holds for all that this process starts."""
    os.setsid()  # a signal to process group 0 would reach the fork server's
    for cgroup in cgroups:
        os.write(cgroup, b"0")
        os.close(cgroup)
    kernel.unshare(kernel.NEW_CGROUP)
    for name, text in (("setgroups", "deny"), ("uid_map", "65534 65534 1"), ("gid_map", "65534 65534 1")):
        write(f"/proc/self/{name}", text)
    write("/proc/sys/user/max_user_namespaces", "0")
    flags = kernel.NO_SUID | kernel.NO_DEV
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, settings["folder"])
    os.mkdir(run.FOLDER, 0o700)
    os.mkdir("/tmp/shm", 0o700)
    kernel.mount("/tmp/shm", "/dev/shm", "", kernel.BIND)
    kernel.mount("proc", "/proc", "proc", flags | kernel.NO_EXEC, "subset=pid")
    kernel.seal_devices()
    for name, most in settings["limits"].items():
        limit(getattr(resource, f"RLIMIT_{name}"), most)
    kernel.traceable(False)
    kernel.drop_capabilities()
    kernel.install_filter(bytes.fromhex(settings["filter"]))


def limit(which: int, most: list[int]) -> None:
    """Set a soft and a hard limit, neither above what the fork server has."""
    _, ceiling = resource.getrlimit(which)
    soft, hard = (one if ceiling == resource.RLIM_INFINITY else min(one, ceiling) for one in most)
    resource.setrlimit(which, (soft, hard))


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)
