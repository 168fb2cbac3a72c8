"""A corpus in the form that curation publishes: a few documents, rejects of every stage, statistics by rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.artifact import Artifact, Step
from tasks.corpus import records
from tasks.corpus.config import CorpusConfig

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"
EVIL = f"{ESCAPE}[bold]x[/bold] <script>alert(1)</script> \u202egnp.exe\u2066 \x9b31m \x00 </mark>&lt;"


def document(text: str, **values: Any) -> dict[str, Any]:
    row = {
        "source": "web",
        "url": f"web:{len(text)}",
        "domain": "web",
        "language": "en",
        "licence": "MIT",
        "meta": "{}",
    }
    return row | values | {"id": records.document_id(text), "text": text}


def reject(reason: str, value: Any, text: str, stage: str = "quality", limit: float | None = None, **values: Any):
    row = records.rejected("web", f"web:{reason}", stage, reason, value, text, limit, values.pop("others", ()))
    return row | values


def rule(name: str, route: str, limit: float, direction: str, failed: int) -> dict[str, Any]:
    return {
        "rule": name,
        "route": route,
        "unit": "document",
        "judged": 100,
        "failed": failed,
        "only": failed // 2,
        "limit": limit,
        "direction": direction,
        "edges": [limit * bin / 4 for bin in range(9)],
        "counts": [0, 10, 20, 60 - failed, 0, failed, 4, 3, 3],
    }


def rejects() -> list[dict[str, Any]]:
    """Rejects of every stage; of `fineweb_short_lines` 60 at 0.70, 0.71, ... against 0.67."""
    rows = [
        reject(
            "fineweb_short_lines",
            0.70 + number / 100,
            f"A line.\nOther {number}.",
            limit=0.67,
            others=("c4_sentences",),
        )
        for number in range(60)
    ]
    rows += [reject("gopher_words_min", number, f"{'word ' * number}end", limit=50.0) for number in range(1, 20)]
    rows += [reject("too_short", 10, "Ten chars.", limit=200.0, source="foldoc")]
    rows += [reject("unreadable", "gzip ends too early", "", "read")]
    rows += [reject("language_not_kept", "ro", "Acesta este un text.", "language")]
    rows += [reject("licence_not_allowed", "CC-BY-NC-4.0", "Some text.", "licence")]
    hit = "humaneval HumanEval/12: 20 words, 62% of the item, at characters 5 to 18"
    rows += [reject("contaminated", hit, "Once longest of all there was", "decontamination")]
    rows += [reject("near_duplicate", f"{records.document_id(SURVIVOR)} 0.8213", "The text stayed, nearly.", "dedup")]
    return rows


SURVIVOR = "The text stayed, wholly."


def statistics(documents: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rules = [
        rule("fineweb_short_lines", "prose", 0.67, "above", 60),
        rule("fineweb_short_lines", "mathematics", 0.8, "above", 0),
        rule("gopher_words_min", "prose", 50.0, "below", 20),
        rule("gopher_hashes", "prose", 0.1, "above", 0),
    ]
    unreadable = sum(row["stage"] == "read" for row in rows)
    return {
        "documents": documents,
        "bytes": 1000,
        "read": documents + len(rows),
        "rejected": len(rows) - unreadable,
        "unreadable": unreadable,
        "by_source": {
            "web": {"language": "en", "domain": "web", "documents": documents, "bytes": 900, "licence": "MIT"},
            "foldoc": {"language": "zh", "domain": "knowledge", "documents": 0, "bytes": 0, "licence": "MIT"},
        },
        "rejected_by_reason": dict.fromkeys(sorted({row["reason"] for row in rows}), 1),
        "masked": {"EMAIL": 12, "KEY": 3},
        "rules": {f"{record['route']}/{record['rule']}": record for record in rules},
    }


def publish(
    root: Path,
    rows: Sequence[dict[str, Any]] | None = None,
    documents: Sequence[dict[str, Any]] = (),
    parts: int = 2,
) -> Artifact:
    """The corpus in `parts` parts."""
    rows = list(rejects() if rows is None else rows)
    kept = [*documents, document(SURVIVOR)]
    step = Step("corpus", CorpusConfig(), str(root))
    for number in range(parts):
        table = pa.Table.from_pylist(rows[number::parts], schema=records.REJECTED)
        step.put(
            f"rejected/web/{number:03}", ".parquet", lambda path, table=table: records.write(path, table), len(table)
        )
    table = pa.Table.from_pylist(kept, schema=records.DOCUMENT)
    step.put("documents/web/000", ".parquet", lambda path: records.write(path, table), rows=len(kept))
    return step.publish(statistics(len(kept), rows))
