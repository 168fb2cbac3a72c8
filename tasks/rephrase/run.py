"""One run of the stage over all its attempts: what was predicted, how long it took, what it comes to in the end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from model.engines.engine import Engine, Price
from tasks.accounts import Balance
from tasks.artifact import Artifact, Step
from tasks.rephrase.ledger import add, statistics
from tasks.rephrase.prediction import Prediction, comparison, keep_rates

log = logging.getLogger(__name__)

REWRITE, SEGMENT, OUTCOME = "rewrites", "segments", "outcomes"
"""What every batch leaves: one part in each of these groups."""


def keys_of(batches: Iterable[str]) -> list[str]:
    """The keys of all parts of some batches."""
    return [f"{group}/{batch}" for batch in batches for group in (REWRITE, SEGMENT, OUTCOME)]


class Run:
    """The stage's own records, in its workspace: they outlive a kill and are no part of the artifact."""

    def __init__(self, step: Step, price: Price) -> None:
        self.step, self.price = step, price
        self.folder = step.workspace()
        self._file = self.folder / "run.json"
        self._state: dict[str, Any] = {"prediction": {}, "seconds": 0.0}
        with suppress(FileNotFoundError, ValueError):  # a machine that lost its power may have kept the name alone
            self._state |= json.loads(self._file.read_text())
        self._began = 0.0

    @property
    def predicted(self) -> dict[str, Any]:
        """What the first attempt expected; empty where nothing was chosen."""
        return self._state["prediction"]

    def expect(self, prediction: Prediction) -> None:
        """Keep the first attempt's prediction, and say it."""
        log.info("predicted: %s", prediction.sentence())
        self._state["prediction"] = asdict(prediction)
        self._save()

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Count the seconds of this attempt."""
        self._began = time.monotonic()
        try:
            yield
        finally:
            self.tick()

    def tick(self) -> None:
        """Write the seconds down: a kill costs those since the last batch."""
        now = time.monotonic()
        self._state["seconds"] += now - self._began
        self._began = now
        self._save()

    def publish(
        self,
        engine: Engine | None,
        rates: Path | None,
        batches: Sequence[str],
        balance: Balance,
        thresholds: Mapping[str, Any],
    ) -> Artifact:
        """Publish the artifact, which consists of `batches`, with its ledger; what `engine` measured goes to the folder
        `rates`."""
        counts: dict[str, Any] = {"seconds_wall": self._state["seconds"]}
        for part in self.step.parts(f"{SEGMENT}/{batch}" for batch in batches):
            add(counts, part.statistics)
        found = statistics(counts, self.price)
        compared = comparison(self.predicted, found)
        if engine is not None and rates is not None:
            keep_rates(rates, engine.name, engine.model, counts, found)
        if compared:
            names, sides = ("requests", "tokens_generated", "money"), ("actual", "predicted")
            log.info(
                "%d requests (%d predicted), %d tokens generated (%d), %.2f in money (%.2f)",
                *(compared[name][side] for name in names for side in sides),
            )
        return self.step.publish(
            found | {"prediction": self.predicted, "comparison": compared, "thresholds": dict(thresholds)},
            keys_of(batches),
            balance,
            {"money": found["money"]},
        )

    def _save(self) -> None:
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps(self._state))
        scratch.replace(self._file)
