"""Every rule of a corpus in numbers: what the corpus stage published of it, and what its rejected rows say.

The statistics hold a histogram over all documents that a rule on the text judged; of other reasons there are the
rejects alone, and their histograms say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.artifact import Artifact
from tasks.report.inspect.corpus.rejects import Selection, Tally, survey
from tasks.report.rejects import place


@dataclass(frozen=True)
class Route:
    """One rule as one route applies it: the same rule may have another threshold for mathematics than for prose."""

    name: str
    judged: int | None
    """Documents it judged."""
    failed: int | None
    """Those it refuses, whether or not another rule came first."""
    only: int | None
    """Those that no other rule refuses."""
    limit: float | None
    direction: str
    """`above` or `below`: the side of the limit that is refused; empty where that is unknown."""
    edges: tuple[float, ...]
    """One more than `counts`."""
    counts: tuple[int, ...]
    whole: bool
    """Whether the histogram counts all that was judged, the last bin also what lies beyond it, or the dropped documents
    alone."""
    unit: str = "document"
    """What it judges: a `line` rule takes lines out of documents and drops none."""

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The least and the most that passes."""
        return (None, self.limit) if self.direction == "above" else (self.limit, None)


@dataclass(frozen=True)
class Rule:
    """One reason for which documents are dropped."""

    stage: str
    name: str
    dropped: int
    """Documents whose first reason it is: rows of the rejected table."""
    routes: tuple[Route, ...]

    @property
    def unit(self) -> str:
        """What it judges: `document` or `line`."""
        return self.routes[0].unit


@dataclass(frozen=True)
class Inspection:
    """What `openk2 inspect corpus` shows, whether in a terminal or on a page."""

    artifact: Artifact
    rules: tuple[Rule, ...]
    tally: Tally

    def rule(self, name: str) -> Rule | None:
        """The rule called `name`, if anything was dropped or judged by it."""
        return next((rule for rule in self.rules if rule.name == name), None)


def inspect(artifact: Artifact, selection: Selection, count: int) -> Inspection:
    """The rules of a published corpus with their numbers and the `count` rejects nearest to each threshold. Reads the
    narrow columns of every reject once; `selection` narrows samples and the count of the dropped."""
    tally = survey(artifact, selection, count, _limits(artifact.manifest["config"]))
    routes = _published(artifact.statistics["rules"])
    names = [(stage, name) for stage, name in tally.counts]
    if not (selection.source or selection.language):  # those rows have no source: they count the whole corpus
        names += [("quality", name) for name in routes if ("quality", name) not in tally.counts]
    rules = []
    for stage, name in names:
        if (selection.stage and stage != selection.stage) or (selection.reason and name != selection.reason):
            continue
        known = routes.get(name, ()) if not (selection.source or selection.language) else ()
        rules.append(Rule(stage, name, tally.counts.get((stage, name), 0), tuple(known) or (_of(tally, stage, name),)))
    order = {name: at for at, name in enumerate(routes)}
    rules.sort(
        key=lambda rule: (place(rule.stage), rule.unit, -rule.dropped, order.get(rule.name, len(order)), rule.name)
    )
    return Inspection(artifact, tuple(rules), tally)


def declared_languages(artifact: Artifact) -> dict[str, str]:
    """The language that each source declares."""
    sources = artifact.statistics.get("by_source", {})
    return {name: str(entry.get("language") or "") for name, entry in sources.items()}


def _published(rules: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Route, ...]]:
    """The routes of every rule that the statistics tell of, in their order."""
    found: dict[str, tuple[Route, ...]] = {}
    for record in rules.values():
        edges, name = record["edges"], record["rule"]
        route = Route(
            record["route"],
            record["judged"],
            record["failed"],
            record["only"],
            record["limit"],
            record["direction"],
            (*edges, 2 * edges[-1] - edges[-2]),
            tuple(record["counts"]),
            whole=True,
            unit=record["unit"],
        )
        found[name] = (*found.get(name, ()), route)
    return found


def _of(tally: Tally, stage: str, name: str) -> Route:
    """What the rejected rows alone tell of a rule."""
    edges, counts = tally.numbers[stage, name].bins()
    limits = tally.limits[stage, name]
    limit = next(iter(limits)) if len(limits) == 1 else None  # one line cannot stand for the limits of several routes
    return Route("", None, None, None, limit, _direction(limit, edges), tuple(edges), tuple(counts), whole=False)


def _direction(limit: float | None, edges: list[float]) -> str:
    """The refused side: where the dropped lie."""
    if limit is None or not edges:
        return ""
    return "above" if (edges[0] + edges[-1]) / 2 > limit else "below"


def _limits(config: Mapping[str, Any]) -> dict[str, float]:
    """The similarities from which deduplication drops: its rejects name their own alone."""
    dedup = config["dedup"]
    kinds = {kind: (dedup.get(kind) or {}).get("threshold") for kind in ("near", "semantic")}
    return {f"{kind}_duplicate": float(value) for kind, value in kinds.items() if value is not None}
