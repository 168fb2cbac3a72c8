"""What a run writes about itself: `metrics.jsonl`, the truth, and `progress.json`, the present.

`metrics.jsonl` has one JSON object per line, with `event` (update, evaluation, heads, skip) and `step` in each. What
depends on the clock or the machine stands under `timing` alone: without it, the lines of a run that was killed and
resumed are those of an undisturbed one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from training.trackers import TensorBoard


class Metrics:
    """Appends to `metrics.jsonl`, then tells the trackers; only rank 0 has one that writes."""

    def __init__(self, path: Path, after: int, writes: bool = True, trackers: Sequence[str] = ()) -> None:
        """Go on after update `after`: later lines, and a line cut short by a kill, are dropped first. The files of
        `trackers` go beside `path`."""
        self.path, self.file = path, None
        self.tensorboard = TensorBoard(path.parent / "tensorboard", after) if writes and trackers else None
        if not writes:
            return
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    step = json.loads(line)["step"]
                except ValueError:  # a line cut short is the last one
                    break
                if step <= after:
                    kept.append(line + "\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(kept))
        self.file = path.open("a", encoding="utf-8")

    def write(self, event: Literal["update", "evaluation", "heads", "skip"], step: int, **values: Any) -> None:
        """Append one line."""
        if self.file:
            line = json.dumps({"event": event, "step": step, **values}, allow_nan=False) + "\n"
            with naming(self.path):
                self.file.write(line)
                self.file.flush()
            if self.tensorboard:
                # development and test are measured at the same step, and are not one curve
                name = f"{event}/{values['split']}" if "split" in values else event
                self.tensorboard.write(name, step, values)

    def sync(self) -> None:
        """Wait until all lines are on the disk: a checkpoint must not be ahead of its metrics."""
        if self.file:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file and the trackers."""
        if self.tensorboard:
            self.tensorboard.close()
        if self.file:
            with naming(self.path):
                self.file.close()


def write_progress(path: Path, done: int, total: int, status: str, **values: Any) -> None:
    """Replace `progress.json`, which a launcher polls: `done` of `total` in `unit`, `status`, and what else is known.

    `status` is running, preempted, finished or failed.
    """
    record = {"done": done, "total": total, "unit": "updates", "status": status, **values}
    replace_file(path, json.dumps(record, allow_nan=False) + "\n")


def read_metrics(path: Path, event: str = "") -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, all or those of one event."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if not event or line["event"] == event]


def summarise(path: Path) -> dict[str, Any]:
    """A finished run from its `metrics.jsonl`: totals, the last losses, and one record per stage.

    Seconds are those of the updates that count: what a kill threw away is not in them. Where no line of an update is
    left, since a checkpoint of the last one came here without them, what they would tell is None.
    """
    records = read_metrics(path)
    updates = [record for record in records if record["event"] == "update"]
    heldout = {record["step"]: record["losses"] for record in records if record["event"] == "evaluation"}
    tokens = {record["step"]: record["tokens"] for record in updates}
    stages = []
    for name in dict.fromkeys(record["stage"] for record in updates):
        own = [record for record in updates if record["stage"] == name]
        first, last = own[0], own[-1]
        stages.append(
            {
                "name": name,
                "updates": len(own),
                # a checkpoint may have come here without the lines before it
                "tokens": last["tokens"] - tokens.get(first["step"] - 1, 0),
                "learning_rate": last["learning_rate"],
                "loss": last["loss"],
                "heldout": heldout.get(last["step"], {}),
                "max_logit": max(record["max_logit"] for record in own),
                "clipped_updates": sum(record["clipped_heads"] > 0 for record in own),
                "seconds": sum(record["timing"]["seconds"] for record in own),
            }
        )
    seconds = sum(record["timing"]["seconds"] for record in updates)
    last = updates[-1] if updates else {}
    return {
        "updates": len(updates),
        "tokens": last.get("tokens"),
        "loss": last.get("loss"),
        "heldout": heldout.get(last.get("step"), {}),
        "stages": stages,
        "seconds": seconds,
        "tokens_per_second": last["tokens"] / seconds if last else None,
    }


def replace_file(path: Path, text: str) -> None:
    """Write `path` so that a reader, or a kill, finds the old text or the new one whole."""
    partial = path.with_name(f".{path.name}.partial")
    with naming(partial):
        partial.write_text(text, encoding="utf-8")
    partial.replace(path)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file could not be written: the system does so where one is opened, not where the disk is full."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} could not be written: {error}") from error
