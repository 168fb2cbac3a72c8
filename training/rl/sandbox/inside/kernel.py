"""The system calls of Linux that Python's standard library does not have, for the fork server."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import stat
import struct
import sys
from typing import NoReturn

LIBC = ctypes.PyDLL(None, use_errno=True)

NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""mount, uts, ipc, user, pid and net: the flags of clone."""
NEW_CGROUP = 0x02000000

READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND = 1, 2, 4, 8, 32, 4096

_CLONE = {"x86_64": 56, "aarch64": 220}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_NO_NEW_PRIVILEGES, _SECCOMP, _DUMPABLE, _DROP_BOUND = 38, 22, 4, 24
_CAPABILITIES_V3 = 0x20080522


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: object) -> int:
    return _check(LIBC.syscall(ctypes.c_long(number), *arguments), what)


def clone(namespaces: int) -> int:
    """A fork whose child is the first process of new namespaces; like `os.fork`, it returns twice."""
    number = _CLONE[platform.machine()]
    zero = ctypes.c_ulong(0)
    pid = _syscall("clone", number, ctypes.c_ulong(namespaces | signal.SIGCHLD), zero, zero, zero, zero)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def unshare(namespaces: int) -> None:
    _check(LIBC.unshare(namespaces), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    words = (source.encode(), target.encode(), kind.encode())
    _check(LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {kind or source} on {target}")


def seal_devices() -> None:
    """The devices in /dev stay usable, but their modes and times are the machine's: what runs as root owns them, and
    one `chmod 0 /dev/null` would take it from everybody else."""
    for entry in os.scandir("/dev"):
        if stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):
            has = os.statvfs(entry.path).f_flag & (READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)
            mount("", entry.path, "", REMOUNT | BIND | READ_ONLY | has)


def _prctl(what: str, option: int, value: int = 0, pointer: object = None) -> int:
    return _check(LIBC.prctl(option, ctypes.c_ulong(value), pointer or ctypes.c_ulong(0), 0, 0), what)


def traceable(yes: bool) -> None:
    """Whether processes of the same user may look into this one (`/proc/PID/mem`, `/proc/PID/fd`)."""
    _prctl("prctl", _DUMPABLE, int(yes))


def drop_capabilities() -> None:
    """For good: what this process starts cannot have one either."""
    capability = 0
    while LIBC.prctl(_DROP_BOUND, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_V3, 0))
    nothing = ctypes.create_string_buffer(bytes(24))
    _syscall("capset", _CAPSET[platform.machine()], header, nothing)
    _prctl("no_new_privs", _NO_NEW_PRIVILEGES, 1)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install_filter(steps: bytes) -> None:
    """Set a seccomp filter (`seccomp.program`) for this process and all it starts."""
    wanted = _Filter(len(steps) // 8, steps)
    _prctl("seccomp", _SECCOMP, 2, ctypes.byref(wanted))


def become() -> NoReturn:
    """In a bubblewrap that left the capability to mount: seal the devices, give up the capability, set the filter and
    become the program. Arguments: the filter in hexadecimal, then the command line."""
    steps, *command = sys.argv[1:]
    seal_devices()
    drop_capabilities()
    install_filter(bytes.fromhex(steps))
    os.execv(command[0], command)
