"""What people said of dialogues: one line of JSON for each verdict, the last one of a dialogue counts.

The file lies under the artifacts' root. What people refused is configuration of the dialogues stage
(`dialogues.refused`), so that it enters the fingerprint. A verdict counts for the recipe that it was given in: another
one under the same root has other dialogues, and need not be trained again.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Literal, get_args

from model.storage import is_local, local_path

Verdict = Literal["accept", "reject", "undo"]
VERDICTS: tuple[str, ...] = get_args(Verdict)


class VerdictsError(ValueError):
    """A file of verdicts that cannot be read or kept; the message names it and what to do."""


def verdicts_file(root: str) -> Path:
    """Where the verdicts lie. Raises VerdictsError for a root that is no folder of this machine."""
    if not is_local(root):
        raise VerdictsError(f"{root} is no folder of this machine: verdicts are kept on a disk; review a local copy")
    return local_path(root) / "review" / "dialogues.jsonl"


def read_verdicts(path: Path, recipe: str | None = None) -> dict[str, Verdict]:
    """The verdict that stands on each dialogue, by its id; what was undone has none. With `recipe`, only those that
    were given in it (or by an earlier version, which did not say in which)."""
    if not path.exists():
        return {}
    found: dict[str, Verdict] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            entry = json.loads(line)
            name, verdict = entry["id"], entry["verdict"]
        except (ValueError, KeyError, TypeError, RecursionError):
            name = verdict = None
        if not isinstance(name, str) or verdict not in VERDICTS:
            raise VerdictsError(f"line {number} of {path} is no verdict: correct or delete that line")
        if recipe is not None and entry.get("recipe", recipe) != recipe:
            continue
        found.pop(name, None)
        if verdict != "undo":
            found[name] = verdict
    return found


def refused(root: str, recipe: str) -> tuple[str, ...]:
    """Ids of the dialogues of `recipe` under `root` that people refused, in order; none where the root is remote."""
    if not is_local(root):
        return ()
    said = read_verdicts(verdicts_file(root), recipe)
    return tuple(sorted(name for name, verdict in said.items() if verdict == "reject"))


def append_verdict(path: Path, dialogue: str, verdict: Verdict, environment: str, recipe: str) -> None:
    """Add a line, which is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"id": dialogue, "verdict": verdict, "environment": environment, "recipe": recipe, "time": when}
    line = json.dumps(said)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())  # one write: two servers on one root never mix their lines
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
