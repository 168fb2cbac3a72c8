"""Reading a tokens artifact: its manifest, the table of its shards, the memory-mapped shards and the document index
beside each.

The layout (docs/tokens.md): `manifest.json` names `shards.parquet` with its sha256, and that table is the one list of
shards: TABLE has its columns. A shard is little-endian uint32 tokens, document after document, each ended by the
end-of-document token; its index is a Parquet table with one row a document. A file that the table does not list is
never read, and one that it lists is checked before its first use.

Legend: N shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.cache import REPAIR, Cache, File, ShardError, read_manifest
from training.ranges import BLOCK, DIGEST, Range, Ranges

if TYPE_CHECKING:
    import pyarrow as pa

TOKEN = np.dtype("<u4")
MAPS = 256
"""Files of one kind that a process keeps mapped, those that it read last: each holds a file open, of which many systems
allow a process 1,024, and a run reads tens of thousands."""
TABLE = {
    "key": "string",
    "split": "string",
    "domain": "string",
    "source": "string",
    "tokens": "int64",
    "documents": "int64",
    "bytes": "int64",
    "sha256": "string",
    "index_bytes": "int64",
    "index_sha256": "string",
    "blocks_sha256": "string",
}
"""Columns of `shards.parquet` and their Arrow types; one row a shard, in the order of keys. `key` is
`{split}/{domain}/{the source in small letters}/{batch}-{number}`; the shard lies at `shard_path`, its index at
`index_path`, the list of its blocks' sha256 (`training/ranges.py`) at `blocks_path`."""


class BadShard(ShardError):
    """A shard, or its index, that is missing, cut or altered."""

    def __init__(self, key: str, error: ShardError) -> None:
        super().__init__(str(error))
        self.key = key
        """Of the shard."""


def shard_path(key: str, sha256: str) -> str:
    """Where a shard lies, relative to its artifact."""
    return f"parts/shards/{key}.{sha256[:12]}.bin"


def index_path(key: str, sha256: str) -> str:
    """Where the index of a shard lies, relative to its artifact."""
    return f"parts/index/{key}.{sha256[:12]}.parquet"


def blocks_path(key: str, sha256: str) -> str:
    """Where the list of a shard's blocks lies, relative to its artifact."""
    return f"parts/blocks/{key}.{sha256[:12]}.sha256"


def content(table: pa.Table) -> str:
    """Identity of the data: a hash over which tokens stand where. That of the table's file would also change with the
    version of the library that wrote it."""
    found = hashlib.sha256()
    for name in ("key", "source", "tokens", "documents", "sha256"):
        found.update(json.dumps([name, table[name].to_pylist()], ensure_ascii=False).encode())
    return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Shard:
    """One shard: its tokens, and which documents they belong to."""

    key: str
    """Such as `train/code/python-docs/000003-000`."""
    split: str
    domain: str
    source: str
    tokens: int
    file: File
    index: File
    blocks: File
    cache: Cache
    ranges: Ranges | None
    """How parts of a remote shard are read; None fetches it whole."""

    @property
    def tokens_T(self) -> np.ndarray:
        """All its tokens, memory-mapped, uint32."""
        return _mapped(self)

    def read(self, start: int, end: int) -> np.ndarray:
        """Its tokens start .. end - 1, uint32; BadShard where its file is not the listed one. What is remote is not
        mapped: a mapped file would keep its room on the disk when it leaves the cache."""
        if self.file.is_local:
            return self.tokens_T[start:end]
        if self.ranges is not None:
            with self._naming():
                return np.frombuffer(self.ranges.read(self.range(start, end)), TOKEN)
        with self._naming(), self.cache.open(self.file) as file:
            return np.fromfile(file, TOKEN, end - start, offset=start * TOKEN.itemsize)

    def range(self, start: int, end: int) -> Range:
        """Where the tokens start .. end - 1 lie in its file."""
        return Range(self.file, self.blocks, start * TOKEN.itemsize, end * TOKEN.itemsize)

    def documents_in(self, spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """The rows of the document index, in order, whose documents have any of the tokens start .. end - 1 of one of
        `spans`: start, end (token offsets, the end-of-document token included), id, source, licence, rewrite,
        source_id. Only groups of rows that can hold them are read."""
        return self._find([[("end", ">", start), ("start", "<", end)] for start, end in spans])

    def documents_named(self, name: str) -> list[dict[str, Any]]:
        """The rows of the document index with this id: one for each copy."""
        return self._find([[("id", "==", name)]])

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The document index, some documents at a time."""
        import pyarrow.parquet as pq

        with self._naming(), self.cache.open(self.index) as file:
            yield from pq.ParquetFile(file).iter_batches()

    def ends(self) -> np.ndarray:
        """Where each document ends, int64: documents touch, and the first begins at 0."""
        return _integers(self._index(["end"]).combine_chunks(), "end")

    def documents(self) -> tuple[np.ndarray, np.ndarray]:
        """`ends`, and for each document a number that it shares with its copies, int64."""
        table = self._index(["end", "id"]).combine_chunks()
        return _integers(table, "end"), _numbers(table["id"])

    def _find(self, filters: list[list[tuple[str, str, Any]]]) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        with self._naming(), self.cache.open(self.index) as file:
            return pq.read_table(file, filters=filters).to_pylist()

    def verify(self) -> None:
        """Check its files now; BadShard where one is not the listed one."""
        with self._naming():
            self.cache.path(self.file)
            self.cache.path(self.index)

    def _index(self, columns: list[str] | None = None) -> pa.Table:
        import pyarrow.parquet as pq

        with self._naming(), self.cache.open(self.index) as file:
            return pq.ParquetFile(file).read(columns)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except ShardError as error:
            raise BadShard(self.key, error) from error


@lru_cache(MAPS)
def _mapped(shard: Shard) -> np.ndarray:
    if shard.tokens == 0:
        return np.empty(0, TOKEN)
    with shard._naming(), shard.cache.open(shard.file) as file:
        # Not numpy's memmap: to slice it costs more than to read a window.
        return np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), TOKEN)


class Stream:
    """The shards of one split, domain and source, in order; each is made at its first use, so that tens of thousands
    cost nothing until they are read."""

    def __init__(self, uri: str, table: pa.Table, cache: Cache) -> None:
        self.uri, self.cache = uri, cache
        self.ranges: Ranges | None = None
        self._table = table
        self.split, self.domain, self.source = (table[name][0].as_py() for name in ("split", "domain", "source"))
        self.tokens_N: np.ndarray = _integers(table, "tokens")
        """Tokens of each shard, int64."""
        self.bytes = int(self.tokens_N.sum()) * TOKEN.itemsize
        self.documents_N: np.ndarray = _integers(table, "documents")
        """Documents of each shard, copies counted, int64."""
        self._made: dict[int, Shard] = {}

    def __len__(self) -> int:
        return len(self.tokens_N)

    def read_in_parts(self, ranges: Ranges) -> None:
        """From now on read remote shards in parts, those that were made before (to count their rows) as well."""
        self.ranges = ranges
        self._made.clear()

    def keys(self) -> list[str]:
        """Of each shard, ascending."""
        return self._table["key"].to_pylist()

    def index_sha256(self) -> list[str]:
        """Of each shard's index."""
        return self._table["index_sha256"].to_pylist()

    def __iter__(self) -> Iterator[Shard]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> Shard:
        if place not in self._made:
            row = {name: self._table[name][place].as_py() for name in TABLE}
            tokens = File(self.uri, shard_path(row["key"], row["sha256"]), row["sha256"], row["bytes"])
            digest = row["index_sha256"]
            index = File(self.uri, index_path(row["key"], digest), digest, row["index_bytes"])
            digest, size = row["blocks_sha256"], -(-row["bytes"] // BLOCK) * DIGEST
            blocks = File(self.uri, blocks_path(row["key"], digest), digest, size)
            self._made[place] = Shard(
                row["key"],
                self.split,
                self.domain,
                self.source,
                row["tokens"],
                tokens,
                index,
                blocks,
                self.cache,
                self.ranges,
            )
        return self._made[place]


class TokenShards:
    """The shards that the artifact at `uri` (a folder or any fsspec URL) lists, by split, domain and source."""

    def __init__(self, uri: str | Path, cache: Cache | None = None) -> None:
        self.cache = cache or Cache.from_environment()
        self.uri = str(uri).rstrip("/").removesuffix("/manifest.json")
        manifest = read_manifest(self.uri)
        statistics = manifest["statistics"]
        if "end_of_document" not in statistics:
            raise ShardError(f"{self.uri} is an artifact of '{manifest['name']}', not of token shards")
        self.vocabulary: int = statistics["vocabulary"]
        self.end_of_document: int = statistics["end_of_document"]
        self.tokenizer_sha256: str | None = statistics.get("tokenizer_sha256")
        self._table = _table(self.uri, manifest, self.cache)
        self._streams: dict[str, dict[tuple[str, str], Stream]] = {}
        for stream in _streams(self.uri, self._table, self.cache):
            self._streams.setdefault(stream.split, {})[stream.domain, stream.source] = stream

    @cached_property
    def content(self) -> str:
        """The same content, the same tokens in the same places."""
        return content(self._table)

    @property
    def splits(self) -> list[str]:
        return sorted(self._streams)

    def streams(self, split: str) -> dict[tuple[str, str], Stream]:
        """(domain, source) -> its shards; ShardError for a split that does not exist."""
        if split not in self._streams:
            known = ", ".join(self.splits) or "none"
            raise ShardError(f"{self.uri} has no split '{split}'; it has: {known}")
        return self._streams[split]

    def under(self, prefix: str) -> list[Shard]:
        """The shards whose keys begin with `prefix`, in order; found by the table alone."""
        streams = [stream for split in self._streams.values() for stream in split.values()]
        return [
            stream[place] for stream in streams for place, key in enumerate(stream.keys()) if key.startswith(prefix)
        ]

    def windows(self, split: str, sequence_length: int) -> dict[str, int]:
        """Domain -> how many windows of `sequence_length` inputs (and their targets) it holds."""
        found: dict[str, int] = {}
        for (domain, _), stream in self.streams(split).items():
            windows = int(count_windows(stream.tokens_N, sequence_length).sum())
            found[domain] = found.get(domain, 0) + windows
        return found

    def __iter__(self) -> Iterator[Shard]:
        """Every shard of every split."""
        for split in self.splits:
            for stream in self._streams[split].values():
                yield from stream

    def verify(self) -> None:
        """Check every listed file now instead of at its first use; ShardError names the first bad one."""
        for shard in self:
            shard.verify()


def count_windows(tokens_N: np.ndarray, sequence_length: int) -> np.ndarray:
    """Windows in each shard: each reads sequence_length + 1 tokens, the next starts sequence_length further (RECIPE 3).
    A window never crosses shards; what remains at a shard's end is not read at this length."""
    return np.maximum(0, (tokens_N - 1) // sequence_length)


def _table(uri: str, manifest: dict[str, Any], cache: Cache) -> pa.Table:
    """The table of shards, its file checked; ShardError where it is not what the manifest lists or not a table of
    shards in the order of keys."""
    import pyarrow.parquet as pq

    records = [part for part in manifest["parts"] if part["key"] == "shards"]
    if len(records) != 1:
        raise ShardError(f"{uri}/manifest.json lists no table of shards: an older openk2 wrote it; {REPAIR}")
    listed = File(uri, **{name: records[0][name] for name in ("path", "sha256", "bytes")})
    path = listed.name
    with cache.open(listed) as file:
        table = pq.ParquetFile(file).read()
    if {field.name: str(field.type) for field in table.schema} != TABLE:
        raise ShardError(f"{path} has other columns than a table of shards ({', '.join(TABLE)}); {REPAIR}")
    return table.combine_chunks()


def _streams(uri: str, table: pa.Table, cache: Cache) -> Iterator[Stream]:
    """The rows of each split, domain and source; ShardError where the keys do not ascend."""
    # Neither Arrow's functions nor its arrays' `to_numpy`: loading them and pandas takes longer than all the rest.
    key_N = table["key"].to_pylist()
    if not all(one < other for one, other in itertools.pairwise(key_N)):
        raise ShardError(f"the table of {uri} does not list its shards in the order of keys, each once; {REPAIR}")
    first = 0
    for _, run in itertools.groupby(key.rpartition("/")[0] for key in key_N):
        count = sum(1 for _ in run)
        yield Stream(uri, table.slice(first, count), cache)
        first += count


def _integers(table: pa.Table, name: str) -> np.ndarray:
    """A column of int64, the table's own memory."""
    if not table.num_rows:
        return np.empty(0, np.int64)
    (chunk,) = table[name].chunks
    return np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk)]


def _numbers(texts: pa.ChunkedArray) -> np.ndarray:
    """A number of each text, int64, the same for equal ones: a hash where all are of one length, as ids are, which
    takes a tenth of the time of a dictionary."""
    if not len(texts):
        return np.empty(0, np.int64)
    chunk = texts.chunk(0)
    _, ends, data = chunk.buffers()
    end_N = np.frombuffer(ends, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    width = int(end_N[1] - end_N[0])
    if texts.num_chunks > 1 or not width or (np.diff(end_N) != width).any():
        return np.concatenate([part.indices.to_numpy() for part in texts.dictionary_encode().chunks])
    text_NW = np.zeros((len(chunk), -(-width // 8) * 8), np.uint8)
    text_NW[:, :width] = np.frombuffer(data, np.uint8)[end_N[0] : end_N[-1]].reshape(-1, width)
    number_N = np.zeros(len(chunk), np.uint64)
    for word_N in text_NW.view("<u8").T:
        number_N = (number_N ^ word_N) * np.uint64(0x9E3779B97F4A7C15)
        number_N ^= number_N >> np.uint64(32)
    return number_N.view(np.int64)
