"""Control groups: the limits of memory and processes that hold for a whole tree, version 1 or 2, where they can be had.

A program's init joins through a descriptor that is opened here, so that only who runs the sandbox needs the right.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PREFIX = "openk2-sandbox-"
_COUNT = itertools.count()


@dataclass(frozen=True)
class Controller:
    """Where one kind of limit is set in one version of control groups."""

    version: int
    name: str
    limit: str
    also: tuple[tuple[str, str], ...] = ()
    """Further files and what goes into them, where they exist."""
    kills: str = ""
    """The file that counts what was killed for it, in a line `oom_kill N`."""


CONTROLLERS = (
    Controller(2, "memory", "memory.max", (("memory.swap.max", "0"), ("memory.oom.group", "0")), "memory.events"),
    Controller(2, "pids", "pids.max"),
    Controller(1, "memory", "memory.limit_in_bytes", (("memory.swappiness", "0"),), "memory.oom_control"),
    Controller(1, "pids", "pids.max"),
)


class Group:
    """One control group of a worker, whose programs take turns in it."""

    def __init__(self, controllers: list[Controller], folder: Path) -> None:
        self.controllers, self.folder = controllers, folder

    def limit(self, most: dict[str, int]) -> None:
        """Set its limits and open the door to it."""
        for one in self.controllers:
            (self.folder / one.limit).write_text(str(most[one.name]))
            for file, text in one.also:
                with suppress(OSError):
                    (self.folder / file).write_text(text)
        self.door = os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def kills(self) -> int:
        """Processes that the kernel killed in it for want of memory, so far."""
        for one in self.controllers:
            if one.kills:
                lines = (line.split() for line in (self.folder / one.kills).read_text().splitlines())
                return sum(int(count) for name, count in lines if name == "oom_kill")
        return 0

    def close(self) -> None:
        """Remove it; its processes may be about to go."""
        os.close(self.door)
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
                time.sleep(0.02)


def groups(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> list[Group]:
    """New groups, with no limits yet, of every controller that can be had here: version 2 first, then version 1."""
    lines = (Path("/proc/self/cgroup").read_text() if own is None else own).splitlines()
    places: dict[str, str] = {}
    for line in lines:
        _, listed, path = line.split(":", 2)
        places.update(dict.fromkeys(listed.split(","), path))
    found: list[Group] = []
    left = {"memory", "pids"}
    for version, names in ((2, [""]), (1, ["memory", "pids"])):
        for name in names:
            wanted = [one for one in CONTROLLERS if one.version == version and one.name in left & {name or one.name}]
            for folder in above(mount(root, name), places.get(name)):
                usable = [one for one in wanted if version == 1 or one.name in enabled(folder)]
                if usable and (made := make(folder)):
                    found.append(Group(usable, made))
                    left -= {one.name for one in usable}
                    break
    return found


def mount(root: Path, controller: str) -> Path:
    """Where a hierarchy is mounted; version 2 has no name and may stand beside version 1."""
    unified = root / "unified"
    return root / controller if controller else unified if unified.is_dir() else root


def above(hierarchy: Path, path: str | None) -> Iterator[Path]:
    """One's own group and those above it. In version 2 a group that holds processes shares out nothing, so the place is
    beside one's own; systemd hands such a subtree to each user."""
    if path is None:
        return
    folder = hierarchy / path.lstrip("/")
    while folder.is_relative_to(hierarchy):
        if folder.is_dir():
            yield folder
        folder = folder.parent


def enabled(folder: Path) -> set[str]:
    """Controllers that groups within this one have."""
    try:
        return set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return set()


def make(folder: Path) -> Path | None:
    """A group within this one, if that is allowed; what a killed process left there goes."""
    for old in folder.glob(f"{PREFIX}*"):
        if not Path("/proc", old.name.removeprefix(PREFIX).partition("-")[0]).exists():
            with suppress(OSError):
                old.rmdir()
    made = folder / f"{PREFIX}{os.getpid()}-{next(_COUNT)}"
    try:
        made.mkdir()
        (made / "cgroup.procs").open("w").close()
    except OSError:
        with suppress(OSError):
            made.rmdir()
        return None
    return made
