"""What shows a run while it trains, beside `metrics.jsonl`: TensorBoard. Where it fails it is dropped, and the run goes
on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class TensorBoard:
    """Event files of TensorBoard (the extra `tensorboard`): every number of a line as `event/name`."""

    def __init__(self, folder: Path, after: int) -> None:
        """Go on after update `after`: points of later updates, of before a kill or a rollback, are hidden."""
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder), purge_step=after + 1)
        except Exception as error:  # whatever the library does, the run goes on
            log.warning("no tensorboard: %s (pip install 'openk2[tensorboard]'); the run goes on without it", error)

    def write(self, event: str, step: int, values: Mapping[str, Any]) -> None:
        """Add the numbers of a line of the metrics as scalars."""
        with self._dropped_at_an_error():
            for name, number in scalars(event, values) if self._writer else ():
                self._writer.add_scalar(name, number, step)

    def close(self) -> None:
        """Write what is left."""
        with self._dropped_at_an_error():
            if self._writer:
                self._writer.close()

    @contextlib.contextmanager
    def _dropped_at_an_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            log.warning("tensorboard failed: %s; the run goes on without it, metrics.jsonl has everything", error)
            self._writer = None


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
