"""What a server that runs here can see and use: limits always, and bubblewrap's walls unless its row gives them up."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.agentic.mcp.config import Limits, ServerConfig, ServerError
from training.rl.sandbox import bubble, seccomp
from training.rl.sandbox.cgroups import Group, groups
from training.rl.sandbox.config import SandboxUnavailable
from training.rl.sandbox.worker import MIB

HOME = "/tmp"
"""Behind walls: a folder in memory, which is gone with the server."""
INSTALLED = "/usr/local"
"""Where npm, for one, puts programs for everybody."""
ABOUT_THE_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/usr/share/ca-certificates")
"""What finds and checks addresses, for servers that may have the network."""


@contextmanager
def control_groups(limits: Limits) -> Iterator[list[Group]]:
    """Where they can be made: what holds a server and all that it starts to its memory and number of processes."""
    made = groups()
    try:
        for group in made:
            group.limit({"memory": (limits.memory_mb + limits.file_mb) * MIB, "pids": limits.processes})
        yield made
    finally:
        for group in made:
            group.close()


def limited(limits: Limits) -> list[str]:
    """The beginning of a command line: a shell that waits for a line of input, sets limits, which what it starts
    inherits, and becomes the rest."""
    rules = (
        "read -r now",  # by then it is in its control groups
        "ulimit -n 1024",
        f"ulimit -t {limits.processor_seconds}",
        f"ulimit -d {limits.memory_mb * 1024}",
        f"ulimit -f {limits.file_mb * 2048}",
    )
    return ["/bin/sh", "-c", " && ".join((*rules, 'exec "$@"')), "sh"]


def walled(server: ServerConfig, program: str) -> list[str]:
    """The command line of bubblewrap that comes before the program's.

    Raises:
        ServerError: there is no bubblewrap here, or the program would not be seen.
    """
    try:
        bwrap = bubble.requirements()
    except SandboxUnavailable as error:
        advice = "or say `walls: false` in its row, and it runs with your rights, sees your files and has your network"
        raise ServerError(f"{error}; {advice}") from None
    _, interpreter = bubble.interpreter()
    writes = (*server.writes, server.folder) if server.folder else server.writes
    seen = (*bubble.SYSTEM, *bubble.LINKS, INSTALLED, str(interpreter), sys.prefix, *server.reads, *writes)
    for path in (Path(program), Path(program).resolve()):
        if not any(path.is_relative_to(folder) for folder in seen):
            raise ServerError(f"its program {path} is in no folder that it may see: add its installation to `reads`")
    arguments = [bwrap, *bubble.NOBODY, "--hostname", "tools", "--ro-bind-try", INSTALLED, INSTALLED, *bubble.system()]
    arguments += ["--size", str(server.limits.file_mb * MIB), "--tmpfs", HOME]
    if sys.prefix != sys.base_prefix:
        arguments += ["--ro-bind", sys.prefix, sys.prefix]
    if server.network:
        arguments += ["--share-net"]
        for name in ABOUT_THE_NETWORK:
            arguments += ["--ro-bind-try", name, name]
    for name in server.reads:
        arguments += ["--ro-bind", name, name]
    for name in writes:
        arguments += ["--bind", name, name]
    rows = seccomp.ARGUMENTS_WITH_NETWORK if server.network else seccomp.ARGUMENTS
    steps = seccomp.program(platform.machine(), rows).hex()
    python, _ = bubble.interpreter()
    for capability in bubble.TO_SEAL:
        arguments += ["--cap-add", capability]
    arguments += ["--chdir", server.folder or HOME, "--remount-ro", "/", "--"]
    return [*arguments, str(python), "-I", "-S", "-B", "-c", bubble.BECOME, steps]
