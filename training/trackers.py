"""What shows a run while it trains, beside `metrics.jsonl`. A tracker that fails is dropped and never ends a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A place that metrics go to."""

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Take one line of the metrics; any exception drops the tracker."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files of TensorBoard (the extra `tensorboard`): every number of a line as `event/name`."""

    def __init__(self, folder: Path, after: int) -> None:
        """Go on after update `after`: points of later updates, of before a kill or a rollback, are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=after + 1)

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Add the line's numbers as scalars."""
        for name, number in scalars(event, values):
            self._writer.add_scalar(name, number, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class Trackers:
    """Several trackers, each dropped with a warning at its first error."""

    def __init__(self, names: Sequence[str], folder: Path, after: int) -> None:
        """Trackers by name (`tensorboard`), with their files under `folder`."""
        self._open: dict[str, Tracker] = {}
        for name in names:
            try:
                self._open[name] = TensorBoard(folder / name, after)
            except Exception as error:  # whatever a library does, the run goes on
                log.warning("no %s: %s (pip install 'openk2[%s]'); the run goes on without it", name, error, name)

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Give a line to every tracker."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.write(event, step, values)
            except Exception as error:
                self._drop(name, error)

    def close(self) -> None:
        """Close every tracker."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.close()
            except Exception as error:
                self._drop(name, error)
        self._open.clear()

    def _drop(self, name: str, error: Exception) -> None:
        log.warning("%s failed: %s; the run goes on without it, metrics.jsonl has everything", name, error)
        del self._open[name]


def scalars(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Every number in `value`, with the path to it: keys of mappings and places in lists."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from scalars(f"{name}/{key}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from scalars(f"{name}/{place}", inner)
    elif isinstance(value, int | float):
        yield name, float(value)
