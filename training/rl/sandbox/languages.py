"""The languages a program may be in: a row each."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

SEARCH = "/usr/bin"
"""Where interpreters and compilers are looked for: the folder that programs can see."""


@dataclass(frozen=True)
class Language:
    """How a program is run."""

    file: str
    """Its text lies there, in its folder."""
    command: tuple[str, ...]
    """What runs it; empty where the fork server does."""
    package: str = ""
    """What to install where the command is missing."""
    reserves: bool = False
    """Whether its runtime reserves more addresses than it uses, so that only a memory cgroup can bound it."""

    def missing(self) -> str:
        """The interpreter or compiler of its command, where this machine does not have it."""
        if not self.command:
            return ""
        first, *rest = self.command
        tool = rest[-1].split()[0] if first == "sh" else first
        return "" if shutil.which(tool, path=SEARCH) else tool


LANGUAGES = {
    "python": Language("main.py", ()),
    "bash": Language("main.sh", ("bash", "main.sh"), "bash"),
    "perl": Language("main.pl", ("perl", "main.pl"), "perl"),
    "javascript": Language("main.js", ("node", "main.js"), "nodejs", reserves=True),
    "c": Language("main.c", ("sh", "-c", "gcc -O1 -std=gnu17 -o main main.c -lm && exec ./main"), "gcc libc6-dev"),
    "c++": Language("main.cc", ("sh", "-c", "g++ -O1 -std=gnu++20 -o main main.cc && exec ./main"), "g++"),
}
