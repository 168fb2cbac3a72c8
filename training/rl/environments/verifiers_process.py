"""A task set of the library `verifiers`, asked of a process that can be killed (`verifiers_worker.py`).

The library is large and pins other releases than ours, so it lives under an interpreter of its own
(`rl.library.python`). Its rewards are a package's code, which is trusted as much as the package is: the process is not
a sandbox.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.rl.config import LibraryConfig
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.line_process import LineProcess, LineProcessError, OnDemand

WORKER = Path(__file__).with_name("verifiers_worker.py")
LOAD_SECONDS = 600.0
"""To import the library and read a data set."""
KEEP = ("HOME", "HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
"""Where data sets lie that have been fetched before."""
LONGEST = 40_000
"""Bytes of an episode's replies, written as JSON; what is longer is wrong."""
FAILED = "its reward or a tool took too long, or ended its process"
MOST_FAILED = 10
"""Questions in a row that fail so."""

Turn = Mapping[str, Any]
"""A reply: {"content", "calls": [{"id", "name", "arguments"}]}."""


@dataclass(frozen=True)
class Said:
    """A text that follows a reply."""

    text: str
    call: int | None
    """The place of the call that it answers; None where a user says it."""


@dataclass(frozen=True)
class Answer:
    """What follows a reply: the reward of the episode that it ends, or what is said to it, or what went wrong."""

    reward: float | None = None
    said: tuple[Said, ...] = ()
    fault: str = ""


class VerifiersProcess(OnDemand):
    """The worker that has the library."""

    def __init__(self, config: LibraryConfig) -> None:
        super().__init__()
        self.config = config
        self._count: int | None = None
        self._failed = 0

    def count(self) -> int | None:
        """Tasks of the set; None where it has no end. Raises EnvironmentUnavailable, as the other methods do: the
        library or the set cannot be loaded, or what the process says cannot be read."""
        with self._lock:
            self._started()
            return self._count

    def row(self, row: int) -> dict[str, Any]:
        """{"messages", "tools", "answer", "key"} of a task, and "calls" where `rl.library.calls` names them;
        {"refused"} or {"raised"} says why it is none of ours; {"end"} behind the last."""
        with self._lock:
            try:
                found = self._started().ask({"row": row}, self.config.seconds)
            except LineProcessError as error:
                raise self._unavailable(f"task {row}: {error}") from None
        whole = isinstance(found.get("key"), str) and isinstance(found.get("messages"), list)
        if not whole and not found.keys() & {"end", "refused", "raised"}:
            raise self._unavailable(f"what it says of task {row} is no task: {str(found)[:60]}")
        return found

    def turn(self, row: int, key: str, turns: Sequence[Turn]) -> Answer:
        """What follows the last of the replies to a task."""
        what = "a tool" if turns[-1]["calls"] else "the reward"
        found, fault = self._asked(row, key, turns, what)
        if fault:
            return Answer(fault=fault)
        if "said" in found:
            return Answer(said=self._said(row, found["said"], len(turns[-1]["calls"])))
        reward = found.get("reward")
        if not isinstance(reward, int | float) or isinstance(reward, bool) or not math.isfinite(reward):
            raise self._unavailable(f"the reward of task {row} is {str(reward)[:40]}, which is no number to learn from")
        return Answer(float(reward))

    def _said(self, row: int, said: Any, calls: int) -> tuple[Said, ...]:
        """The texts, where they are one for each call and then a user's, or a user's alone."""
        listed = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
        made = tuple(Said(one["text"], one.get("call")) for one in listed if isinstance(one.get("text"), str))
        places = [one.call for one in made]
        if (
            not made
            or len(made) < len(said)
            or places[:calls] != list(range(calls))
            or any(place is not None for place in places[calls:])
        ):
            raise self._unavailable(f"what is said to a reply to task {row} is no text for each call: {str(said)[:60]}")
        return made

    def _asked(self, row: int, key: str, turns: Sequence[Turn], what: str) -> tuple[dict[str, Any], str]:
        with self._lock:
            process = self._started()
            try:
                found = process.ask({"row": row, "key": key, "turns": turns}, self.config.seconds)
            except LineProcessError as error:
                # one reply may do that, but no ten
                self._failed += 1
                if error.what != "unreadable" and self._failed < MOST_FAILED:
                    return {}, FAILED
                raise self._unavailable(f"{what} of task {row}: {error}") from None
            self._failed = 0
        if "changed" in found:
            raise self._unavailable(f"task {row} is another than when the set was read first; it has to stay the same")
        if "error" in found:
            raise self._unavailable(f"task {row}: {found['error']}")
        return found, f"its {what.split()[-1]} raised {found['raised']}" if "raised" in found else ""

    def _begin(self) -> LineProcess:
        config = self.config
        try:
            self._process = process = LineProcess([config.python, "-I", str(WORKER)], KEEP)
            names = {"answer": config.answer, "calls": config.calls}
            asked = {"module": config.module, "arguments": config.arguments, **names}
            found = process.ask(asked, LOAD_SECONDS)
        except (OSError, LineProcessError) as error:
            raise self._unavailable(f"{config.python} does not run it: {error}") from None
        count = found.get("count")
        if "error" in found or not (count is None or isinstance(count, int)):
            self._kill()
            raise self._unavailable(str(found.get("error", found))[:2000])
        self._count = count
        return process

    def _unavailable(self, text: str) -> EnvironmentUnavailable:
        return EnvironmentUnavailable(
            f"rl.library, {self.config.module} of the library `verifiers`: {text} (rl.library.python is an interpreter "
            "with verifiers and that set; docs/rl.md)"
        )
