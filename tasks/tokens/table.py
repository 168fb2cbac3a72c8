"""The files of the tokens artifact: shards by split, domain and source, and the table that makes them real.

The columns of the table and where a shard lies are `training.shards`'s, which reads what is written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tasks.accounts import Balance
from tasks.artifact import Artifact, Step
from tasks.manifest import lacking
from training.ranges import BLOCK, DIGEST, block_digests
from training.shards import TABLE, TOKEN, blocks_path, index_path, shard_path

ROW_GROUP = 1 << 14
"""Documents of one group of rows of an index."""
SLUG = 40
"""Most characters of a source's name in a path."""


class Place(NamedTuple):
    """What the shards of one stream have in common."""

    split: str
    domain: str
    source: str

    @property
    def folder(self) -> str:
        return f"{self.split}/{self.domain}/{slug(self.source)}"


def slug(source: str) -> str:
    """A source's name as part of a path: itself where it is short, small and plain, else what is plain of it with a
    hash that keeps it apart from others."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", source.lower())[:SLUG].strip("-")
    return plain if plain == source else f"{plain}-{xxhash.xxh3_64_hexdigest(source.encode())[:8]}".lstrip("-")


def put_shard(step: Step, place: Place, name: str, write: Callable[[Path], object], index: pa.Table) -> dict[str, Any]:
    """Store one shard and its index; the row of the table that will list them. `write(path)` makes the shard's file."""
    key = f"{place.folder}/{name}"
    beside = step.store(f"index/{key}", ".parquet", lambda path: write_index(index, path))
    digests = bytearray()

    def write_digested(path: Path) -> None:
        write(path)
        digests.extend(block_digests(path))

    shard = step.store(f"shards/{key}", ".bin", write_digested)
    blocks = step.store(f"blocks/{key}", ".sha256", lambda path: path.write_bytes(digests))
    return {
        "key": key,
        **place._asdict(),
        "tokens": shard.bytes // TOKEN.itemsize,
        "documents": index.num_rows,
        "bytes": shard.bytes,
        "sha256": shard.sha256,
        "index_bytes": beside.bytes,
        "index_sha256": beside.sha256,
        "blocks_sha256": blocks.sha256,
    }


def write_index(index: pa.Table, path: Path) -> None:
    """Write a document index, in small groups of rows, so that a lookup by position reads one of them. Columns that
    ascend are stored as differences: with these settings it takes a fifth less room than with the library's own."""
    spans = dict.fromkeys(("start", "end"), "DELTA_BINARY_PACKED")
    repeated = ["source", "licence", "source_id"]
    pq.write_table(index, path, ROW_GROUP, compression="zstd", use_dictionary=repeated, column_encoding=spans)


def _files(row: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """(path, bytes) of a shard, its index and its blocks' digests."""
    for path, size in (
        (shard_path(row["key"], row["sha256"]), row["bytes"]),
        (index_path(row["key"], row["index_sha256"]), row["index_bytes"]),
        (blocks_path(row["key"], row["blocks_sha256"]), -(-row["bytes"] // BLOCK) * DIGEST),
    ):
        yield PurePosixPath(path).as_posix(), size  # a source without a name leaves an empty folder name


def publish(
    step: Step, rows: Iterable[Mapping[str, Any]], statistics: Mapping[str, Any], balance: Balance | None = None
) -> Artifact:
    """Write the table of `rows`, then the manifest that names it: nothing of the shards is read before.

    Raises ArtifactError where a file of a shard is not there any more; its batch is then to be written again.
    """
    rows = list(rows)
    lying = step.lying()
    lost = [row["key"] for row in rows if any(lying.get(path) != size for path, size in _files(row))]
    step.forget({f"batches/{key.rpartition('/')[2].partition('-')[0]}" for key in lost})
    if lost:
        raise lacking(step.uri, lost, len(rows))
    step.put("shards", ".parquet", lambda path: write_table(rows, path), len(rows))
    return step.publish(statistics, ["shards"], balance)


def write_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the table of some shards."""
    schema = pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in TABLE.items()])
    table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["key"]), schema)
    pq.write_table(table, path, compression="zstd")
