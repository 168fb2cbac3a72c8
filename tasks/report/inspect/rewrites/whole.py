"""One document whole: its segments in order, every attempt at each, and the text they were joined to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tasks.artifact import Artifact, ArtifactError
from tasks.report.inspect.rewrites.attempts import Attempt, attempt


class UnknownDocument(ValueError):
    """An id that names no rewritten document, or several."""


@dataclass(frozen=True)
class Segment:
    """One segment of a document and what became of it."""

    index: int
    action: str
    """`rewritten`, `original` (no attempt passed), `block` (code, table or formula, kept as it is), or `refused` in a
    document that was not accepted."""
    source: str
    """Empty where the corpus is not at hand and nothing was attempted."""
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True)
class Whole:
    """One document in one style."""

    source_id: str
    style: str
    rewrite_id: str
    """Empty where the document was not accepted."""
    facts: tuple[tuple[str, str], ...]
    """Source, address, licence, language: what its row says."""
    segments: tuple[Segment, ...]
    text: str
    """The joined rewrite; empty where the document was not accepted."""


def documents(artifact: Artifact, identifier: str, style: str = "") -> list[Whole]:
    """The rewrites of the document whose id, or one of whose rewrites' ids, starts with `identifier`, one a style.
    Raises UnknownDocument where there is none or there are several."""
    start = identifier.strip().lower()
    attempts = [attempt(row) for row in _rows(artifact.files("segments"), "source_id", start)]
    made = list(_rows(artifact.files("rewrites"), "source_id", start))
    if not attempts and not made:
        made = list(_rows(artifact.files("rewrites"), "id", start))
        for name, own in sorted({(str(row["source_id"]), str(row["style"])) for row in made}):
            tried = map(attempt, _rows(artifact.files("segments"), "source_id", name))
            attempts += [one for one in tried if one.style == own]
    names = sorted({one.source_id for one in attempts} | {str(row["source_id"]) for row in made})
    if not start or not names:
        raise UnknownDocument(
            f"no rewritten document has an id that starts with '{start}' in {artifact.uri}: "
            "copy one from `openk2 inspect rewrites`"
        )
    if len(names) > 1:
        raise UnknownDocument(f"'{start}' starts {len(names)} ids ({', '.join(names[:4])}, ...): give more of it")
    text = _original(artifact, names[0])
    rows = {str(row["style"]): row for row in made}
    styles = sorted({one.style for one in attempts} | set(rows))
    if style and style not in styles:
        raise UnknownDocument(f"{names[0]} was rewritten as {', '.join(styles)}, not as '{style}'")
    found = []
    for manner in [style] if style else styles:
        same = [one for one in attempts if one.style == manner]
        found.append(_whole(names[0], manner, same, rows.get(manner), text))
    return found


def _whole(source_id: str, style: str, attempts: Sequence[Attempt], row: dict[str, Any] | None, text: str) -> Whole:
    by_index: defaultdict[int, list[Attempt]] = defaultdict(list)
    for one in sorted(attempts, key=lambda one: (one.index, one.attempt, one.candidate)):
        by_index[one.index].append(one)
    segments = []
    if row is None:
        for index, tried in sorted(by_index.items()):
            action = "rewritten" if any(one.accepted for one in tried) else "refused"
            segments.append(Segment(index, action, tried[0].source_text, tuple(tried)))
        return Whole(source_id, style, "", (), tuple(segments), "")
    for record in row["segments"]:
        tried = by_index[record["index"]]
        source = tried[0].source_text if tried else text[record["start"] : record["end"]]
        segments.append(Segment(record["index"], record["action"], source, tuple(tried)))
    facts = tuple((name, row[name]) for name in ("source", "url", "licence", "language") if row[name])
    return Whole(source_id, style, row["id"], facts, tuple(segments), row["text"])


def _original(artifact: Artifact, source_id: str) -> str:
    """The document's own text from the corpus that the rewrites were made of; empty where that is not at hand."""
    with suppress(ArtifactError, OSError):  # not at hand: what was attempted is shown without it
        corpus = artifact.made_from("corpus")
        for row in _rows(corpus.files("documents") if corpus else [], "id", source_id):
            return str(row["text"])
    return ""


def _rows(files: Sequence[Path], column: str, start: str) -> Iterator[dict[str, Any]]:
    """Rows whose `column` starts with `start`."""
    for path in files:
        rows = pl.scan_parquet(path).filter(pl.col(column).str.starts_with(start))
        yield from rows.collect(engine="streaming").iter_rows(named=True)
