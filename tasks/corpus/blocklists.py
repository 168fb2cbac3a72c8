"""Block lists from files: acquired with the sources, compiled into parts `blocklists/<name>`.

The corpus depends on the entries themselves: another day's list is another corpus. One entry to a line, `#` begins a
comment; hosts files (`0.0.0.0 name`) and `||name^` are understood. Folders may be laid out as the UT1 lists are:
`category/domains`, `category/urls`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model import storage
from tasks.artifact import Step
from tasks.corpus.compression import DAMAGE
from tasks.corpus.safety.blocklist import compile_list
from tasks.corpus.sources import BlocklistSource
from tasks.corpus.unavailable import UnavailableError

ENTRY_CHARS = 2048
"""A longer line is no entry."""
_HOSTS = re.compile(r"(?:0\.0\.0\.0|127\.0\.0\.1|::1?)\s+(?=\S)")
# Not within a word: `host##.banner` is a rule that hides a part of a page, and `host/page#part` an address.
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_KINDS = ("domains", "urls", "words")


def acquire(step: Step, lists: tuple[BlocklistSource, ...]) -> dict[str, Any]:
    """Write `blocklists/<name>` for every list that the step lacks; returns statistics: entries of each kind by list.

    Raises UnavailableError where a list cannot be had.
    """
    for one in lists:
        if step.part(f"blocklists/{one.name}") is None:
            _put(step, one)
    found = {part.key.removeprefix("blocklists/"): part.statistics for part in step.recorded("blocklists")}
    return {"blocklists": found}


def _put(step: Step, one: BlocklistSource) -> None:
    counts: dict[str, int] = {}

    def write(path: Path) -> None:
        counts.update(compile_list(entries(one), path))

    step.put(f"blocklists/{one.name}", ".list", write, lambda: sum(counts.values()), lambda: counts)


def entries(one: BlocklistSource) -> Iterator[tuple[str, str, str]]:
    """(kind, category, entry) of every line, in the order of files and lines."""
    try:
        fs, root = storage.filesystem(one.path)
        files = storage.patient(lambda: sorted(fs.find(root)), one.path)
    except OSError as error:
        raise UnavailableError(f"block list '{one.name}' at {one.path} could not be listed: {error}") from error
    if not files:
        raise UnavailableError(f"block list '{one.name}': nothing lies at {one.path}")
    for file in files:
        inner = file.removeprefix(root).strip("/")
        category, _, name = inner.rpartition("/")
        name = name or file.rsplit("/", 1)[-1]
        kind = one.holds if one.holds != "auto" else next((kind for kind in _KINDS if name.startswith(kind)), "auto")
        if one.categories and category.split("/")[-1] not in one.categories:
            continue
        try:
            with fs.open(file, "rt", encoding="utf-8-sig", errors="replace", compression="infer") as lines:
                for line in lines:
                    for entry in _entries(line):
                        yield _kind(entry) if kind == "auto" else kind, category or one.name, entry
        except DAMAGE as error:
            raise UnavailableError(f"block list '{one.name}': {file} could not be read: {error}") from error


def _entries(line: str) -> list[str]:
    """What a line blocks: nothing where it is empty, a comment or no entry; of a hosts file every name."""
    text = _COMMENT.sub("", line.strip()).strip()
    hosts = _HOSTS.match(text)
    named = text[hosts.end() :].split() if hosts else [text.removeprefix("||").removesuffix("^")]
    return [name for name in named if name and len(name) <= ENTRY_CHARS and not name.startswith(("#", "!", "["))]


def _kind(entry: str) -> str:
    return "urls" if "/" in entry.split("://", 1)[-1].rstrip("/") else "domains"
