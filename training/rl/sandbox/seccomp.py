"""The system calls a program may not make, as a seccomp filter: a BPF program, assembled here from tables.

A list of what is refused, closed at its upper end: a call with a number above the last one that was judged does not
exist for a program, and neither do calls of another architecture. What is refused is what an honest program does not
need and what holes in the kernel were found in: namespaces, mounts, io_uring, bpf, keys, tracing, sockets that are not
local. Two filters stand one on the other: bubblewrap sets `fork_server`, and every program gets `program` on top.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Mapping, Sequence

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine: its number in a filter, and its column in the tables below."""
LAST = 467
"""The last system call that was judged (Linux 6.17)."""

EPERM, EINVAL, ENOSYS, EAFNOSUPPORT = 1, 22, 38, 97
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

Numbers = Mapping[str, tuple[int, int]]
"""System call: its number on x86_64 and on aarch64; -1 where there is none."""

# What only the fork server needs, to make the namespaces of a program.
SETTING_UP: Numbers = {"mount": (165, 40), "umount2": (166, 39), "unshare": (272, 97), "seccomp": (317, 277)}

REFUSED: Numbers = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    # namespaces, mounts and files by handle
    "setns": (308, 268),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "inotify_init": (253, -1),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # memory that no limit of a process counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # wide or often broken parts of the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "vmsplice": (278, 75),
    "remap_file_pages": (216, 234),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "get_mempolicy": (239, 236),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "cachestat": (451, 451),
    "io_setup": (206, 0),
    "personality": (135, 92),
    "modify_ldt": (154, -1),
    "uselib": (134, -1),
    "ustat": (136, -1),
    "sysfs": (139, -1),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    # the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, -1),
    "ioperm": (173, -1),
}

# "No such call": whoever asks goes on without. clone3 hides its flags from a filter behind a pointer; C libraries fall
# back to clone.
ABSENT: Numbers = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}

# They succeed and do nothing: what they do reaches the disks and the page cache of the whole machine, and whoever calls
# them does not see whether it was done.
IDLE: Numbers = {"sync": (162, 81), "syncfs": (306, 267), "fadvise64": (221, 223)}

NAMESPACES = 0x7E020000
"""The flags of clone that make namespaces: mount, cgroup, uts, ipc, user, pid, net."""
HUGE_PAGES = 0x40000
"""The flag of mmap for the machine's reserve of huge pages, which no limit here counts."""
Flags = tuple[Numbers, int, int]
"""Refused for some flags: a call, the place of its flags, and those flags."""
FLAGS: tuple[Flags, ...] = (({"clone": (56, 220)}, 0, NAMESPACES), ({"mmap": (9, 222)}, 3, HUGE_PAGES))

PRLIMIT: Numbers = {"prlimit64": (302, 261)}
RLIMIT_CORE = 4
"""A core limit of 1 (`inside/zygote.py`) keeps a crash from the machine's crash handler; lower ones would not."""

Arguments = tuple[Numbers, int, tuple[int, ...], bool, int]
"""Refused for some values of an argument: calls, its place, the values, whether only these are allowed, error."""
SOCKETS: Numbers = {"socket": (41, 198), "socketpair": (53, 199)}
ARGUMENTS: tuple[Arguments, ...] = (
    (SOCKETS, 0, (AF_UNIX,), True, EAFNOSUPPORT),
    ({"setrlimit": (160, 164)}, 0, (RLIMIT_CORE,), False, EPERM),
    ({"fcntl": (72, 25)}, 1, (1024, 1026), False, EPERM),  # leases and folder notices reach beyond the sandbox
    ({"ioctl": (16, 29)}, 1, (0x5412, 0x541C), False, EPERM),  # typing into a terminal
    # further filters, moving one's memory map, merging of pages
    ({"prctl": (157, 167)}, 0, (22, 35, 67), False, EPERM),
    ({"madvise": (28, 233)}, 2, (12,), False, EINVAL),  # merging pages with others' tells what they hold
)
ARGUMENTS_WITH_NETWORK = ((SOCKETS, 0, (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK), True, EAFNOSUPPORT), *ARGUMENTS[1:])
"""For what may have the internet, such as a tool server that asks for it; programs never."""

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_NUMBER, _ARCHITECTURE = 0, 4


def _step(code: int, value: int, met: int = 0, not_met: int = 0) -> bytes:
    return struct.pack("=HBBI", code, met, not_met, value)


def _argument(place: int, high: bool = False) -> int:
    """Offset of half an argument; only a pointer has a high half that the kernel looks at."""
    return 16 + 8 * place + (4 if high == (sys.byteorder == "little") else 0)


def _refuse(numbers: Iterable[int], error: int) -> bytes:
    """Each of these calls fails with `error`."""
    return b"".join(_step(_EQUAL, number, 0, 1) + _step(_RETURN, _ERRNO | error) for number in numbers if number >= 0)


def _block(number: int, body: bytes) -> bytes:
    """`body`, which ends with a return, for this call alone."""
    return _step(_EQUAL, number, 0, len(body) // 8) + body if number >= 0 else b""


def _flags(column: int) -> bytes:
    code = b""
    for calls, place, flags in FLAGS:
        body = _step(_LOAD, _argument(place)) + _step(_ANY_BIT, flags, 0, 1)
        for numbers in calls.values():
            code += _block(numbers[column], body + _step(_RETURN, _ERRNO | EPERM) + _step(_RETURN, _ALLOW))
    return code


def _limits(column: int) -> bytes:
    """Limits of oneself alone, and its own core limit may be read but not set."""
    refuse, allow = _step(_RETURN, _ERRNO | EPERM), _step(_RETURN, _ALLOW)
    (numbers,) = PRLIMIT.values()
    body = _step(_LOAD, _argument(0)) + _step(_EQUAL, 0, 1, 0) + refuse
    body += _step(_LOAD, _argument(1)) + _step(_EQUAL, RLIMIT_CORE, 1, 0) + allow
    for high in (False, True):
        body += _step(_LOAD, _argument(2, high)) + _step(_EQUAL, 0, 1, 0) + refuse
    return _block(numbers[column], body + allow)


def _arguments(column: int, rows: Iterable[Arguments]) -> bytes:
    code = b""
    for calls, place, values, only, error in rows:
        refuse, allow = _step(_RETURN, _ERRNO | error), _step(_RETURN, _ALLOW)
        hit, otherwise = (allow, refuse) if only else (refuse, allow)
        tests = b"".join(_step(_EQUAL, value, 0, 1) + hit for value in values)
        for numbers in calls.values():
            code += _block(numbers[column], _step(_LOAD, _argument(place)) + tests + otherwise)
    return code


def _filter(machine: str, numbers: Numbers, arguments: Sequence[Arguments]) -> bytes:
    architecture, column = ARCHITECTURES[machine]
    return b"".join(
        (
            _step(_LOAD, _ARCHITECTURE) + _step(_EQUAL, architecture, 1, 0) + _step(_RETURN, _KILL),
            _step(_LOAD, _NUMBER) + _step(_ABOVE, LAST, 0, 1) + _step(_RETURN, _ERRNO | ENOSYS),
            _refuse((pair[column] for pair in ABSENT.values()), ENOSYS),
            _refuse((pair[column] for pair in numbers.values()), EPERM),
            _refuse((pair[column] for pair in IDLE.values()), 0),
            _flags(column) + _limits(column) + _arguments(column, arguments) if arguments else b"",
            _step(_RETURN, _ALLOW),
        )
    )


def fork_server(machine: str) -> bytes:
    """The filter of the fork server, as bubblewrap takes it."""
    return _filter(machine, REFUSED, ())


def program(machine: str, arguments: Sequence[Arguments] = ARGUMENTS) -> bytes:
    """The filter of a program."""
    return _filter(machine, {**REFUSED, **SETTING_UP}, arguments)
