"""When an update must not be applied, and how a run goes round it: robust bounds, rollbacks, data left out.

An update whose loss or gradient norm lies far above the recent ones of its stage, or is not a number, is a spike. It is
not applied: the run goes back to its last good checkpoint and leaves out the samples from there to the spike (PaLM,
arXiv 2204.02311, section 5.1, found that the same data past another state of the weights is harmless, and that leaving
out a window of it gets a run past the spike).

What is left out is a list of windows of sample ids, kept in `rollbacks.jsonl`, in every checkpoint and in the run's
summary: the plan's sample ids go on as if the windows were not there (`position`), so that the samples of an update
still follow from its number.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from training.config import SpikeConfig
from training.metrics import naming
from training.schedule import StagePlan

NORMAL = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


class Spike(Exception):
    """An update that must not be applied; the message says what stands out."""


class SpikeDetector:
    """Judges each update's loss and gradient norm by the latest applied ones of its stage.

    No clock and no randomness: the same numbers get the same verdicts, and `state` continues them.
    """

    def __init__(self, config: SpikeConfig) -> None:
        self.config = config
        self.stage = ""
        self._recent: deque[tuple[float, float]] = deque(maxlen=config.window)

    def judge(self, stage: str, loss: float, gradient_norm: float) -> str:
        """Why an update of `stage` is a spike; empty where it is none."""
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            return f"loss {loss} and gradient norm {gradient_norm} are not both finite"
        if stage != self.stage or len(self._recent) < self.config.least:
            return ""
        config = self.config
        for what, value, recent, deviations, share in (
            ("loss", loss, [pair[0] for pair in self._recent], config.loss_deviations, config.loss_share),
            (
                "gradient norm",
                gradient_norm,
                [pair[1] for pair in self._recent],
                config.gradient_deviations,
                config.gradient_share,
            ),
        ):
            usual = median(recent)
            spread = NORMAL * median(abs(other - usual) for other in recent)
            bound = usual + max(deviations * spread, share * abs(usual))
            if value > bound:
                return f"{what} {value:.4g} is above {bound:.4g} (median {usual:.4g}, deviation {spread:.2g})"
        return ""

    def applied(self, stage: str, loss: float, gradient_norm: float) -> None:
        """Count an update that was applied; another stage starts afresh."""
        if stage != self.stage:
            self.stage = stage
            self._recent.clear()
        self._recent.append((loss, gradient_norm))

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"stage": self.stage, "recent": [list(pair) for pair in self._recent]}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`; an empty one forgets everything."""
        self.stage = state.get("stage", "")
        self._recent.clear()
        self._recent.extend((loss, norm) for loss, norm in state.get("recent", []))


@dataclass(frozen=True)
class Rollback:
    """One return to a checkpoint, and the samples that are left out ever after."""

    update: int
    """The update that was a spike; it was not applied."""
    to: int
    """The checkpoint's update; 0 is the start of the run."""
    stream: int
    """Stream of the samples left out."""
    first_sample: int
    end_sample: int
    """Samples first_sample .. end_sample - 1 are left out: those of the updates after the checkpoint, as far as they
    are of the spike's stream, to the spike's own."""
    reason: str


class Rollbacks:
    """All rollbacks of a run, in their order, and the sample ids they leave out. `path` keeps them, one a line."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """Those of the run with this identity; lines of another are ignored: its sample ids name other samples."""
        self.path, self.identity = path, dict(identity)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        # a line cut short by a kill is no rollback yet: the spike comes again
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        # older versions wrote no identity
        self.all = parse(record for record in records if record.pop("identity", self.identity) == self.identity)

    def add(self, rollback: Rollback, writes: bool) -> None:
        """Count a rollback from now on; the rank that `writes` puts it on the disk first."""
        self.replace([*self.all, rollback], writes)

    def replace(self, rollbacks: Sequence[Rollback], writes: bool) -> None:
        """Make `rollbacks` the run's."""
        if writes:
            partial = self.path.with_name(f".{self.path.name}.partial")
            with naming(partial), partial.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(each) | {"identity": self.identity}) + "\n" for each in rollbacks)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        self.all = list(rollbacks)

    @property
    def taken(self) -> set[int]:
        """The checkpoints gone back to: one that leads to a spike again is not good, the one before it may be. What is
        written anew once the run has gone back past one is another."""
        return {each.to for at, each in enumerate(self.all, start=1) if not self.undone(each.to, at)}

    def undone(self, update: int, known: int) -> bool:
        """Whether a later rollback went back past `update`, from the view of who knew the first `known` of them."""
        return any(each.to < update for each in self.all[known:])

    def records(self) -> list[dict[str, Any]]:
        """As JSON-able records."""
        return [asdict(each) for each in self.all]


def parse(records: Iterable[dict[str, Any]]) -> list[Rollback]:
    """Rollbacks from their records."""
    return [Rollback(**record) for record in records]


def windows(rollbacks: Iterable[Rollback], stream: int) -> list[tuple[int, int]]:
    """The windows [first, end) of a stream that are left out, disjoint and ascending."""
    found: list[tuple[int, int]] = []
    for first, end in sorted((each.first_sample, each.end_sample) for each in rollbacks if each.stream == stream):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


def position(left_out: Iterable[tuple[int, int]], sample: int) -> int:
    """The id that the plan's sample `sample` has once windows are left out of the stream."""
    for first, end in left_out:
        if first <= sample:
            sample += end - first
    return sample


def planned(left_out: Iterable[tuple[int, int]], sample: int) -> int | None:
    """The plan's number of sample id `sample`: the inverse of `position`; None for one that is left out."""
    before = 0
    for first, end in left_out:
        if first <= sample < end:
            return None
        if end <= sample:
            before += end - first
    return sample - before


def mixes(plan: StagePlan, stream: int, rollbacks: Iterable[Rollback]) -> list[tuple[int, dict[str, float] | None]]:
    """`plan.mixes(stream)` by the ids that they begin at once rollbacks, in their order, have left samples out.

    The ids below a window's end name for ever what they named when they were read: had a mix that began in the window
    moved past it, the samples left out would come again there. From the window's end on the mixes are the plan's.
    """
    asked = plan.mixes(stream)
    found, known = asked, list[Rollback]()
    for each in rollbacks:
        if each.stream != stream:
            continue
        known.append(each)
        left_out = windows(known, stream)
        end = next(end for _, end in left_out if each.end_sample <= end)
        moved = [(position(left_out, first), mix) for first, mix in asked]
        found = [(first, mix) for first, mix in found if first < end]
        mix = [mix for first, mix in moved if first <= end][-1]
        if mix != found[-1][1]:
            found.append((end, mix))
        found += [(first, mix) for first, mix in moved if first > end]
    return found
