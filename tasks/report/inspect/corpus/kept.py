"""Kept documents nearest to a rule's threshold: those that the next change of it would drop.

What was measured of a kept document is stored nowhere, so the rule is asked again, on a bounded share of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from tasks.artifact import Artifact
from tasks.corpus.config import HEAD_CHARS, CorpusConfig
from tasks.corpus.quality.judge import judge
from tasks.corpus.records import is_code
from tasks.report.inspect.corpus.rejects import Sample, Selection
from tasks.report.rejects import beginnings

SCAN = 20_000
"""Documents that are measured, the same share of every part."""
_COLUMNS = ("id", "text", "source", "url", "domain", "language", "meta")


class KeptError(ValueError):
    """Documents of which the rule cannot be asked again."""


def nearest(artifact: Artifact, rule: str, selection: Selection, count: int) -> tuple[list[Sample], int]:
    """(the `count` kept documents nearest to the threshold of `rule`, how many it judged). The text is measured as it
    was kept: what was replaced or cut out after the judgement is not in it.

    Raises KeptError for a rule that does not judge documents by their text, and for a corpus of another version.
    """
    config = _config(artifact)
    judged = 0

    def samples() -> Iterator[Sample]:
        nonlocal judged
        for row in _documents(artifact, selection):
            measured = _measured(rule, row, config)
            if measured is None:
                continue
            judged += 1
            number, limit = measured
            yield Sample(
                id=row["id"],
                source=row["source"],
                url=row["url"],
                stage="kept",
                reason=rule,
                value="",
                number=number,
                limit=limit,
                others=(),
                head=row["text"][:HEAD_CHARS],
                distance=abs(number - limit) / (abs(limit) or 1.0),
            )

    best = heapq.nsmallest(count, samples(), key=lambda one: (one.distance or 0.0, one.id, one.url))
    if not judged:
        raise KeptError(
            f"'{rule}' judges no kept document that was asked for: only rules on the text can be asked again"
        )
    return best, judged


def _config(artifact: Artifact) -> CorpusConfig:
    try:
        return CorpusConfig.model_validate(artifact.manifest["config"])
    except ValidationError as error:
        raise KeptError(
            f"{artifact.uri} was made by another version, whose rules are not these ({error.error_count()} fields "
            "differ): run the corpus stage again to measure what it keeps"
        ) from error


def _documents(artifact: Artifact, selection: Selection) -> Iterator[dict[str, Any]]:
    """About SCAN kept documents, those of them that are selected."""
    wanted = {name: value for name in ("source", "language") if (value := getattr(selection, name))}
    for frame in beginnings(artifact, _COLUMNS, SCAN):
        yield from frame.filter(**wanted).iter_rows(named=True)


def _measured(rule: str, row: dict[str, Any], config: CorpusConfig) -> tuple[float, float] | None:
    """(number, limit) of a document, None where its route does not have the rule."""
    if rule == "too_short":
        return float(len(row["text"])), float(config.document_chars_min)
    path = row["url"].partition(":")[2].partition("#")[0]
    found = judge(row["text"], row["domain"], row["language"], is_code(row["meta"]), config, path)
    rules = found.active.documents
    for at, known in enumerate(rules.rules):
        if known.name == rule:
            return round(float(found.values[at]), 6), float(rules.limits[at])
    return None
