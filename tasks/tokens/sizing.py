"""How large the files beside the shards are: measured, by making them for shards that do not exist."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from model.config import Config
from tasks.artifact import MANIFEST, Step
from tasks.tokens.shards import statistics
from tasks.tokens.table import Place, list_shards, write_index
from tasks.tokens.writing import INDEX
from training.shards import TOKEN

DOCUMENTS = 1 << 17
"""Documents of the index that is made to measure one."""


@dataclass(frozen=True)
class Sizes:
    """Bytes."""

    table: int
    """`shards.parquet`."""
    manifest: int
    """`manifest.json`."""
    index_per_document: float
    """Of the index beside a shard."""


def measure(
    config: Config, places: Sequence[Place], shards: int, tokens: int, documents: int, vocabulary: int
) -> Sizes:
    """The files of an artifact of `shards` shards with `tokens` tokens and `documents` documents, spread evenly over
    the streams `places`; their hashes and ids are made up, and as hard to compress as real ones."""
    with tempfile.TemporaryDirectory() as folder:
        steps = tuple(Step(name, config, folder) for name in ("corpus", "rewrites", "tokenizer", "mix"))
        step = Step("tokens", config, folder, steps)
        rows = list(_rows(places, shards, tokens, documents))
        streams = [
            {**place._asdict(), "rewrites": False, "tokens": tokens, "documents": documents, "copies": documents}
            | {"bytes": 4 * tokens, "licence": "CC-BY-SA-4.0"}
            for place in places
        ]
        record = {"empty": documents, "left_out": documents, "streams": streams, "shards": rows}
        steps[2].put("tokenizer", ".json", lambda path: path.write_text("{}"))
        tokenizer = steps[2].publish({"vocabulary": vocabulary})
        artifact = list_shards(step, rows, statistics([record], tokenizer))
        index = Path(folder) / "index.parquet"
        write_index(_index(places[0].source, max(1, tokens // documents)), index)
        return Sizes(
            table=artifact.parts("shards")[0].bytes,
            manifest=(Path(artifact.uri) / MANIFEST).stat().st_size,
            index_per_document=index.stat().st_size / DOCUMENTS,
        )


def _rows(places: Sequence[Place], shards: int, tokens: int, documents: int) -> Iterator[dict[str, Any]]:
    for number in range(shards):
        place = places[number % len(places)]
        # not all the same: equal numbers would take no room
        filled = tokens // shards - number * 7919 % 1009
        yield {
            "key": f"{place.folder}/{number // len(places):06d}-000",
            **place._asdict(),
            "tokens": filled,
            "documents": documents // shards + number * 104_729 % 997,
            "bytes": filled * TOKEN.itemsize,
            **{name: hashlib.sha256(f"{name} {number}".encode()).hexdigest() for name in HASHES},
            "index_bytes": 10_000_000 + number * 15_485_863 % 1_000_003,
        }


HASHES = ("sha256", "index_sha256", "blocks_sha256")


def _index(source: str, length: int) -> pa.Table:
    """The index of DOCUMENTS documents of about `length` tokens."""
    drawn = [hashlib.blake2b(str(number).encode(), digest_size=16) for number in range(DOCUMENTS)]
    lengths = [1 + int.from_bytes(one.digest()[:4], "little") % (2 * length) for one in drawn]
    ends = pc.cumulative_sum(pa.array(lengths, pa.int64()))
    starts = pc.subtract(ends, pa.array(lengths, pa.int64()))
    names = pa.array([one.hexdigest() for one in drawn])
    same = (pa.array([value] * DOCUMENTS) for value in (source, "CC-BY-SA-4.0", False))
    return pa.Table.from_arrays([starts, ends, names, *same, pa.nulls(DOCUMENTS, pa.string())], schema=INDEX)
