"""What deduplication takes away: the table `removals/<key>` of each partition, and its application to the documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.corpus import records
from tasks.corpus.dedup.passages import cut

REMOVALS = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),  # in the table of candidates
        pa.field("reason", pa.string(), nullable=False),  # why it is dropped, or that it is cut
        pa.field("dropped", pa.bool_(), nullable=False),
        pa.field("survivor", pa.string(), nullable=False),  # id of the document that stands for it, or empty
        pa.field("similarity", pa.float64()),  # with that document: Jaccard, or cosine where the reason is semantic
        pa.field("limit", pa.float64()),  # characters that its cuts had to leave, where they did not
        pa.field("id", pa.string(), nullable=False),  # of the text that the cuts leave, or empty where there are none
        pa.field(
            "spans",  # of the text, in characters, in order and without overlaps
            pa.list_(pa.struct([("begin", pa.int32()), ("end", pa.int32()), ("reason", pa.string())])),
            nullable=False,
        ),
    ]
)
DROP_REASONS = ("exact_duplicate", "near_duplicate", "semantic_duplicate")
CUT_REASON, SHORT_REASON = "cut", "too_short_after_cuts"


def removal(
    row: int,
    reason: str,
    *,
    dropped: bool,
    survivor: str = "",
    similarity: float | None = None,
    limit: float | None = None,
    id: str = "",
    spans: Sequence[tuple[int, int, str]] = (),
) -> dict[str, Any]:
    """One row of the table."""
    return {
        "row": row,
        "reason": reason,
        "dropped": dropped,
        "survivor": survivor,
        "similarity": similarity,
        "limit": limit,
        "id": id,
        "spans": [{"begin": begin, "end": end, "reason": why} for begin, end, why in spans],
    }


def apply(table: pa.Table, removals: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
    """(documents, rejected rows) of some candidates, whose rows `removals` names: the candidates without what is
    dropped, with shorter texts and new ids where passages are cut. As many come out as go in, kept or rejected."""
    rows = removals["row"].to_numpy()
    if len(rows) and (rows.min() < 0 or rows.max() >= table.num_rows or len(np.unique(rows)) < len(rows)):
        raise ValueError(f"removals of other candidates: they name rows up to {rows.max()} of {table.num_rows}")
    kept = np.ones(table.num_rows, bool)
    rejected = []
    changed: dict[int, tuple[str, str]] = {}
    for document, one in zip(table.take(rows).to_pylist(), removals.to_pylist(), strict=True):
        text = cut(document["text"], [(span["begin"], span["end"]) for span in one["spans"]])
        if not one["dropped"]:
            changed[one["row"]] = (one["id"], text)
            continue
        kept[one["row"]] = False
        value: Any = f"{one['survivor']} {one['similarity']:.4f}" if one["survivor"] else len(text)
        place = document["source"], document["url"]
        rejected.append(records.rejected(*place, "dedup", one["reason"], value, document["text"], one["limit"]))
    if changed:
        ids, texts = table["id"].to_pylist(), table["text"].to_pylist()
        for row, (new, text) in changed.items():
            ids[row], texts[row] = new, text
        for name, values in (("id", ids), ("text", texts)):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(name), pa.array(values, pa.string()))
    return table.filter(pa.array(kept)), rejected
