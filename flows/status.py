"""What exists of a recipe, what is stale, what is missing: read from manifests and records alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from flows.graph import Graph
from flows.steps import known
from model import storage
from tasks.artifact import MANIFEST, NotReady, Step
from tasks.launch import progress_of
from tasks.progress import clock
from training.precision import precisions

State = Literal["done", "begun", "stale", "missing", "waits"]


@dataclass(frozen=True)
class Line:
    """One step as `openk2 status` shows it."""

    name: str
    fingerprint: str
    state: State
    time: str
    sentence: str


def survey(graph: Graph) -> list[Line]:
    """One line per step, in the order in which they run; snapshots before the newest first. What has been begun in the
    other precision, on another machine or by another choice, follows the step as a line of its own."""
    lines = []
    for step, other in zip(graph.steps, (graph.other or graph).steps, strict=True):
        lines.append(_line(step))
        if known(step) and other.fingerprint != step.fingerprint and other.under_way():
            lines.append(replace(_line(other), name=f"{step.name} (other)"))
    return lines


def _line(step: Step) -> Line:
    line = _state(step)
    if line.fingerprint and (found := sorted(set(precisions(step.config).values()))):
        line = replace(line, sentence=f"in {' and '.join(found)}: {line.sentence}")
    snapshot = len(step.versions()) - 1
    return replace(line, name=f"{step.name}@{snapshot}") if snapshot else line


def _state(step: Step) -> Line:
    try:
        fingerprint, artifact = step.fingerprint, step.artifact()
    except NotReady as reason:
        return Line(step.name, "", "waits", "", str(reason).split(":")[0])
    if artifact is not None:
        took, holds = clock(artifact.manifest["seconds"]), headline(artifact.statistics)
        if changed := step.outdated():
            sentence = f"{' and '.join(changed)} came out otherwise than when it was made; a run makes it anew"
            return Line(step.name, fingerprint, "stale", took, sentence)
        since = "code changed since; " if artifact.other_code(step.code) else ""
        return Line(step.name, fingerprint, "done", took, f"{since}{holds}")
    if changed := step.begun_from_others():
        sentence = f"{' and '.join(changed)} came out otherwise than when it was begun; a run begins it anew"
        return Line(step.name, fingerprint, "stale", "", sentence)
    begun = step.recorded()
    if begun:
        return Line(step.name, fingerprint, "begun", "", f"{len(begun)} parts finished; a run goes on from here")
    if job := progress_of(step):
        reached = f"{job['done']:,} of {job['total']:,} {job['unit']}"
        ended = f", then it failed: {job['note']}" if job.get("status") == "failed" else ""
        return Line(step.name, fingerprint, "begun", "", f"{reached}{ended}; the same command goes on")
    if step.under_way():
        return Line(step.name, fingerprint, "begun", "", "by a job that keeps its state elsewhere, or has none yet")
    others = _others(step)
    if others:
        return Line(step.name, fingerprint, "stale", "", f"version, configuration or inputs changed since {others[-1]}")
    return Line(step.name, fingerprint, "missing", "", "not run yet")


def _others(step: Step) -> list[str]:
    """Fingerprints under which this step has been published before."""
    found = storage.matching(f"{step.name}/*/{MANIFEST}", under=step.root)
    return sorted(address.split("/")[-2] for address in found)


def headline(statistics: dict[str, Any]) -> str:
    """The first few plain figures of an artifact's statistics."""
    plain = [
        f"{name.replace('_', ' ')} {_figure(value)}"
        for name, value in statistics.items()
        if isinstance(value, int | float | bool) and name != "seconds"
    ]
    return ", ".join(plain[:5])


def _figure(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
