"""What a report may read: the manifests of the steps, the small parts they list, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from model import storage
from tasks.artifact import Artifact, NotReady, Step
from training.metrics import read_metrics


class NotRun(RuntimeError):
    """A stage that has not been run yet."""


class Absent(RuntimeError):
    """A statistic, part or event that a published stage does not have."""


class Book:
    """The steps of one recipe and what has been published of them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self._found: dict[str, Artifact] = {}
        for step in steps:
            try:
                artifact = step.artifact()
            except NotReady:  # a leaf below has not been fetched: nothing of it can exist
                continue
            if artifact is not None:
                self._found[step.name] = artifact

    @cached_property
    def done(self) -> list[str]:
        """Names of the published steps, in the order in which they run."""
        return [step.name for step in self.steps if step.name in self._found]

    def has(self, *names: str) -> bool:
        return all(name in self._found for name in names)

    def stage(self, name: str) -> Artifact:
        """The published artifact of `name`; NotRun where there is none."""
        if name not in self._found:
            raise NotRun(f"`{name}` has not been run yet")
        return self._found[name]

    def statistic(self, name: str, *path: str) -> Any:
        """A statistic of stage `name`; Absent, naming it, where the stage has no such thing."""
        value: Any = self.stage(name).statistics
        for depth, key in enumerate(path):
            if not isinstance(value, dict) or key not in value:
                raise Absent(f"the statistics of `{name}` have no `{'.'.join(path[: depth + 1])}`")
            value = value[key]
        return value

    def optional(self, name: str, *path: str, default: Any = None) -> Any:
        """The same, `default` where it is not there."""
        try:
            return self.statistic(name, *path)
        except (Absent, NotRun):
            return default

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """The lines of a training stage's metrics.jsonl."""
        artifact = self.stage(name)
        if not artifact.parts("metrics"):
            raise Absent(f"`{name}` lists no part `metrics`")
        return read_metrics(artifact.file("metrics"))

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """Those lines of one kind; Absent where there is none."""
        lines = self.metrics(name)
        found = [line for line in lines if line.get("event") == event]
        if not found:
            kinds = sorted({str(line.get("event")) for line in lines})
            raise Absent(f"the metrics of `{name}` have no `{event}` line, only {', '.join(kinds) or 'nothing'}")
        return found

    def files(self, name: str, group: str) -> list[Path]:
        """A group of parts; Absent where the stage has none."""
        files = self.stage(name).files(group)
        if not files:
            raise Absent(f"`{name}` lists no parts under `{group}`")
        return files

    def rows(self, name: str, group: str) -> pl.LazyFrame:
        """A group of parquet parts of narrow columns; Absent where the stage has none. Samples of long texts are
        `inspect.rows`'s: a frame that is collected may hold all of a corpus."""
        return pl.scan_parquet(self.files(name, group))

    def address(self, path: str) -> str:
        """Where a file of an artifact lies, seen from the page at the artifacts' root."""
        root = f"{self.steps[0].root.rstrip('/')}/" if self.steps else ""
        return path.removeprefix(root)

    def blocked(self, name: str) -> tuple[list[dict[str, Any]], str] | None:
        """What a gate that failed left behind: its expectations, and where its pages lie."""
        step = next((step for step in self.steps if step.name == name), None)
        if step is None or name in self._found:
            return None
        try:
            folder = f"{step.uri}/docs"
        except NotReady:
            return None
        try:
            return json.loads(storage.read(f"{folder}/verdict.json")), f"{folder}/index.html"
        except FileNotFoundError:
            return None


def column(lines: Iterable[dict[str, Any]], key: str) -> list[Any]:
    """`key` of every line; Absent where a line has none."""
    values = []
    for line in lines:
        value: Any = line
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise Absent(f"the metrics have no `{key}`")
            value = value[part]
        values.append(value)
    return values
