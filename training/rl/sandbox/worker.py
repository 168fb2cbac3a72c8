"""One fork server, seen from outside: start it, hand it a program, keep to the limits that are kept from here."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from typing import Any

from training.rl.sandbox import bubble, seccomp
from training.rl.sandbox.cgroups import Group, groups
from training.rl.sandbox.config import (
    ExpectedOutput,
    FunctionTests,
    Outcome,
    Program,
    SandboxConfig,
    SandboxUnavailable,
    Status,
)
from training.rl.sandbox.languages import LANGUAGES

MIB = 1 << 20
START_SECONDS = 60.0
GRACE_SECONDS = 10.0
"""After the wall clock's limit the fork server has killed the program; one that has not is killed itself."""
READ = 1 << 16
SIGNALS = 256
"""Signals and timers that may wait in a program: the kernel counts them against whoever runs the sandbox, too."""


class Worker:
    """A fork server in its bubblewrap, for one program at a time."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._bwrap = bubble.requirements()
        self.groups: list[Group] = groups()
        self.process: subprocess.Popen[bytes] | None = None
        try:
            most = {"memory": (config.memory_mib + config.disk_mib) * MIB, "pids": config.processes + 1}
            for group in self.groups:
                group.limit(most)
            if os.geteuid() == 0 and not self.limited("pids"):
                raise SandboxUnavailable(
                    "the sandbox cannot limit processes: the kernel holds root to no limit of its own, and no pids"
                    " cgroup can be made here; run as another user, or where /sys/fs/cgroup can be written"
                )
            self._start()
        except BaseException:
            self.close()
            raise

    def limited(self, controller: str) -> bool:
        """Whether a control group holds this limit for the whole tree."""
        return any(one.name == controller for group in self.groups for one in group.controllers)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        outer = memory_file(seccomp.fork_server(platform.machine()))
        settings = {"control": theirs.fileno(), **self._settings()}
        self.process = subprocess.Popen(
            bubble.command(self._bwrap, outer, json.dumps(settings)),
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            pass_fds=(theirs.fileno(), outer),
            start_new_session=True,
        )
        theirs.close()
        os.close(outer)

    def _settings(self) -> dict[str, Any]:
        """What the fork server needs to know; nothing of it is a secret."""
        config = self.config
        disk, memory = config.disk_mib * MIB, config.memory_mib * MIB
        limits = {
            "CPU": [config.cpu_seconds, config.cpu_seconds + 1],
            "DATA": [memory, memory],
            "FSIZE": [disk, disk],
            "NOFILE": [config.descriptors, config.descriptors],
            "NPROC": [config.processes + 1, config.processes + 1],
            **{name: [0, 0] for name in ("MEMLOCK", "MSGQUEUE", "NICE", "RTPRIO")},
            "SIGPENDING": [SIGNALS, SIGNALS],
            "CORE": [1, 1],  # a machine's crash handler is started at 0, too, but not at 1
        }
        if not self.limited("memory"):
            limits["AS"] = [memory, memory]
        return {
            "wall_seconds": config.wall_seconds,
            "limits": limits,
            "folder": f"size={disk},nr_inodes={config.files + 4},mode=0700",
            "filter": seccomp.program(platform.machine()).hex(),
            "languages": {name: {"file": row.file, "command": row.command} for name, row in LANGUAGES.items()},
        }

    def wait_until_ready(self) -> None:
        """Until it has imported what it will; SandboxUnavailable if bubblewrap could not start it."""
        self._control.settimeout(START_SECONDS)
        try:
            ready = self._control.recv(64)
        except TimeoutError:
            ready = b""
        if ready != b"ready":
            self.interrupt()
            self._complaints.seek(0)
            lines = self._complaints.read().decode(errors="replace").strip().splitlines() or ["no word from it"]
            self._kill()
            raise SandboxUnavailable(
                f"bubblewrap could not isolate a process here ({lines[-1][:300]}): user namespaces must be allowed"
                " (sysctl kernel.unprivileged_userns_clone=1 or, with AppArmor, kernel.apparmor_restrict_unprivileged_"
                "userns=0; in a container, a seccomp profile that lets it make them)"
            )

    def why_not(self, program: Program) -> str:
        """Why a program cannot run here; empty if it can."""
        language = LANGUAGES.get(program.language)
        if not language:
            return f"no language {program.language!r} is known here: there are {', '.join(LANGUAGES)}"
        if missing := language.missing():
            return f"{program.language} needs {missing}, which is not here (`apt-get install {language.package}`)"
        if language.reserves and not self.limited("memory"):
            return f"{program.language} needs a memory cgroup, and none can be made here"
        return ""

    def run(self, program: Program) -> Outcome:
        """Run one program to its end."""
        if reason := self.why_not(program):
            return Outcome(status=Status.REFUSED, reason=reason)
        if self.process is None:
            self._start()
            self.wait_until_ready()
        killed = sum(group.kills() for group in self.groups)
        with ExitStack() as stack:
            reads = self._hand_over(program, stack)
            texts, ended, flooded = self._follow(reads)
        if ended is None:
            self._kill()
            return Outcome(status=Status.KILLED, reason="its worker ended before it did")
        out_of_memory = sum(group.kills() for group in self.groups) > killed
        ended["no_cpu_left"] = ended["cpu_seconds"] >= self.config.cpu_seconds
        return outcome(program, texts, ended, flooded, out_of_memory)

    def _hand_over(self, program: Program, stack: ExitStack) -> dict[str, int]:
        """Send the fork server the descriptors of a program; gives those to read from."""
        tests = program.tests if isinstance(program.tests, FunctionTests) else None
        given = program.model_dump(include={"source", "language", "files"})
        given |= {"entry_point": tests.entry_point, "in_place": tests.in_place} if tests else {"entry_point": ""}
        texts = [json.dumps(given), program.stdin, tests.model_dump_json() if tests else ""]
        source, stdin, hidden = (memory_file(text.encode("utf-8", "surrogatepass")) for text in texts)
        reads, writes = {}, {}
        for name in ("stdout", "stderr", "report"):
            reads[name], writes[name] = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            stack.callback(os.close, reads[name])
        for name in writes:
            os.set_blocking(writes[name], True)
        doors = [group.door for group in self.groups]
        mine = [source, stdin, writes["stdout"], writes["stderr"], writes["report"], hidden]
        with suppress(OSError):  # one that is dead is noticed when its answer is awaited
            socket.send_fds(self._control, [b"run"], mine + doors)
        for descriptor in mine:
            os.close(descriptor)
        return reads

    def _follow(self, reads: dict[str, int]) -> tuple[dict[str, bytes], dict[str, Any] | None, bool]:
        """Read what a program writes until it has ended: (texts, the fork server's word or None, too much)."""
        texts = dict.fromkeys(reads, b"")
        most = {"stdout": self.config.output_kib << 10, "stderr": self.config.output_kib << 10, "report": READ}
        deadline = time.monotonic() + self.config.wall_seconds + GRACE_SECONDS
        flooded = False
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, "control")
            for name, descriptor in reads.items():
                selector.register(descriptor, selectors.EVENT_READ, name)
            answer = None
            while answer is None and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.data == "control":
                        with suppress(OSError):
                            answer = self._control.recv(READ)
                        answer = answer or b""
                        continue
                    if drain(key.fd, key.data, texts, most[key.data]) == b"":
                        selector.unregister(key.fd)
                    if len(texts[key.data]) > most[key.data] and not flooded:
                        flooded = True
                        with suppress(OSError):
                            self._control.send(b"kill")
        if not answer:
            return texts, None, flooded
        for name, descriptor in reads.items():
            while drain(descriptor, name, texts, most[name]) and len(texts[name]) <= most[name]:
                pass
            flooded |= len(texts[name]) > most[name]
            texts[name] = texts[name][: most[name]]
        return texts, json.loads(answer), flooded

    def _kill(self) -> None:
        """End the fork server and all it started; the next program starts another."""
        process, self.process = self.process, None
        if process:
            process.kill()
            process.wait()
            self._control.close()
            self._complaints.close()

    def interrupt(self) -> None:
        """From another thread: end the program that runs now."""
        if process := self.process:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything."""
        self._kill()
        for group in self.groups:
            group.close()
        self.groups = []


def drain(descriptor: int, name: str, texts: dict[str, bytes], most: int) -> bytes | None:
    """Read what is there, and keep no more than shows that it is too much; None for nothing now, empty at the end."""
    try:
        read = os.read(descriptor, READ)
    except BlockingIOError:
        return None
    if len(texts[name]) <= most:
        texts[name] += read
    return read


def memory_file(content: bytes) -> int:
    """A descriptor of a file in memory that nobody can change."""
    descriptor = os.memfd_create("openk2", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def outcome(
    program: Program, texts: dict[str, bytes], ended: dict[str, Any], flooded: bool, out_of_memory: bool
) -> Outcome:
    """Judge an end by what the kernel, the fork server and init say; the program's own word counts for nothing good."""
    report = json.loads(texts["report"] or b"{}")
    if "reason" in report:  # it quotes the program, whose half surrogate pairs no table or file would take
        report["reason"] = report["reason"].encode("utf-8", "replace").decode()
    code = report.get("exit_code")
    stdout, stderr = (texts[name].decode("utf-8", "replace") for name in ("stdout", "stderr"))
    passed = report.get("passed")
    if isinstance(program.tests, ExpectedOutput):
        passed = code == 0 and lines(stdout) == lines(program.tests.stdout)
    status, reason = Status.OK, ""
    if flooded:
        status, reason = Status.OUTPUT, "it wrote more than it may"
    elif out_of_memory or (code != 0 and not passed and stderr.rstrip().endswith("MemoryError")):
        status, reason = Status.MEMORY, "it asked for more memory than it may have"
    elif ended["timeout"]:
        status, reason = Status.TIMEOUT, "its time on the clock was over"
    elif code == -signal.SIGXCPU or (code == -signal.SIGKILL and ended["no_cpu_left"]):
        status, reason = Status.TIMEOUT, "its CPU time was over"
    elif "broken" in report or not report:
        status, reason = Status.KILLED, report.get("broken", "it was killed with its init")
    elif passed is False:
        status, reason = Status.FAILED, report.get("reason", "its output is not the expected one")
    elif passed is None and code:
        status, reason = Status.FAILED, f"exit code {code}" if code > 0 else f"signal {-code}"
    return Outcome(
        status=status,
        reason=reason,
        passed=status is Status.OK if program.tests else None,
        exit_code=code,
        stdout=stdout,
        stderr=stderr,
        seconds=ended["seconds"],
        cpu_seconds=ended["cpu_seconds"],
    )


def lines(text: str) -> list[str]:
    """For comparison: no blanks at the ends of lines, no empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]
