"""Reading a tokens artifact: its manifest, the table of its shards, the memory-mapped shards and the document index
beside each.

The layout (docs/tokens.md): `manifest.json` names `shards.parquet` with its sha256, and that table is the one list of
shards: TABLE has its columns. A shard is little-endian uint32 tokens, document after document, each ended by the
end-of-document token; its index is a Parquet table with one row a document. A file that the table does not list is
never read, and one that it lists is checked before its first use.

Legend: N shards.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

TOKEN = np.dtype("<u4")
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
}
"""Columns of `shards.parquet` and their Arrow types; one row a shard, in the order of keys. `key` is
`{split}/{domain}/{the source in small letters}/{batch}-{number}`; the shard lies at `shard_path`, its index at
`index_path`."""


class ShardError(RuntimeError):
    """Token shards that are missing, altered, cut or not what was asked for; the message names the file."""


def shard_path(key: str, sha256: str) -> str:
    """Where a shard lies, relative to its artifact."""
    return f"parts/shards/{key}.{sha256[:12]}.bin"


def index_path(key: str, sha256: str) -> str:
    """Where the index of a shard lies, relative to its artifact."""
    return f"parts/index/{key}.{sha256[:12]}.parquet"


def content(table: pa.Table) -> str:
    """Identity of the data: a hash over which tokens stand where. That of the table's file would also change with the
    version of the library that wrote it."""
    found = hashlib.sha256()
    for name in ("key", "source", "tokens", "documents", "sha256"):
        found.update(json.dumps([name, table[name].to_pylist()], ensure_ascii=False).encode())
    return found.hexdigest()


@dataclass(frozen=True)
class File:
    """One file of the artifact as its manifest or table lists it."""

    uri: str
    """Of the artifact."""
    path: str
    """Relative to `uri`."""
    sha256: str
    bytes: int

    @cached_property
    def local(self) -> Path:
        """A local path with exactly the listed bytes; ShardError otherwise. Remote files are fetched once."""
        path = _local(self.uri, self.path)
        if not path.is_file():
            raise ShardError(
                f"{self.uri}/{self.path} is missing though the manifest lists it: run the tokens stage again"
            )
        size = path.stat().st_size
        if size != self.bytes:
            raise ShardError(f"{path} has {size} bytes where its manifest lists {self.bytes}: it was cut; {_REPAIR}")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            raise ShardError(
                f"{path} was altered: its sha256 is {found[:12]}..., its manifest's {self.sha256[:12]}...; {_REPAIR}"
            )
        return path


@dataclass(frozen=True)
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

    @cached_property
    def tokens_T(self) -> np.ndarray:
        """All its tokens, memory-mapped, uint32."""
        if self.tokens == 0:
            return np.empty(0, TOKEN)
        # A plain view: slicing the memmap class itself costs more than reading a window.
        return np.memmap(self.file.local, TOKEN, "r").view(np.ndarray)

    @cached_property
    def documents(self) -> dict[str, list[Any]]:
        """The document index as columns: start, end (token offsets, the end-of-document token included), id, source,
        licence, rewrite, source_id."""
        import pyarrow.parquet as pq

        return pq.read_table(self.index.local).to_pydict()


class Stream(Sequence[Shard]):
    """The shards of one split, domain and source, in order; each is made at its first use, so that tens of thousands
    cost nothing until they are read."""

    def __init__(self, uri: str, table: pa.Table) -> None:
        self.uri = uri
        self._table = table
        self.split, self.domain, self.source = (table[name][0].as_py() for name in ("split", "domain", "source"))
        self.tokens_N: np.ndarray = table["tokens"].to_numpy()
        """Tokens of each shard, int64."""
        self.documents_N: np.ndarray = table["documents"].to_numpy()
        """Documents of each shard, copies counted, int64."""
        self._made: dict[int, Shard] = {}

    def __len__(self) -> int:
        return len(self.tokens_N)

    @overload
    def __getitem__(self, number: int) -> Shard: ...
    @overload
    def __getitem__(self, number: slice) -> list[Shard]: ...
    def __getitem__(self, number: int | slice) -> Shard | list[Shard]:
        if isinstance(number, slice):
            return [self[place] for place in range(len(self))[number]]
        place = range(len(self))[number]
        if place not in self._made:
            row = {name: self._table[name][place].as_py() for name in TABLE}
            tokens = File(self.uri, shard_path(row["key"], row["sha256"]), row["sha256"], row["bytes"])
            digest = row["index_sha256"]
            index = File(self.uri, index_path(row["key"], digest), digest, row["index_bytes"])
            self._made[place] = Shard(row["key"], self.split, self.domain, self.source, row["tokens"], tokens, index)
        return self._made[place]


class TokenShards:
    """The shards that the artifact at `uri` (a folder or any fsspec URL) lists, by split, domain and source."""

    def __init__(self, uri: str | Path) -> None:
        self.uri = str(uri).rstrip("/").removesuffix("/manifest.json")
        manifest = _manifest(self.uri)
        statistics = manifest["statistics"]
        if "end_of_document" not in statistics:
            raise ShardError(f"{self.uri} is an artifact of '{manifest['name']}', not of token shards")
        self.fingerprint: str = manifest["fingerprint"]
        self.vocabulary: int = statistics["vocabulary"]
        self.end_of_document: int = statistics["end_of_document"]
        self._table = _table(self.uri, manifest)
        self._streams: dict[str, dict[tuple[str, str], Stream]] = {}
        for first, end in _runs(self._table):
            stream = Stream(self.uri, self._table.slice(first, end - first))
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

    def shards(self, split: str) -> dict[str, list[Shard]]:
        """Domain -> its shards in order; ShardError for a split that does not exist."""
        found: dict[str, list[Shard]] = {}
        for (domain, _), stream in self.streams(split).items():
            found.setdefault(domain, []).extend(stream)
        return found

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
            _ = shard.file.local, shard.index.local


def count_windows(tokens_N: np.ndarray, sequence_length: int) -> np.ndarray:
    """Windows in each shard: each reads sequence_length + 1 tokens, the next starts sequence_length further (RECIPE 3).
    A window never crosses shards; what remains at a shard's end is not read at this length."""
    return np.maximum(0, (tokens_N - 1) // sequence_length)


_REPAIR = "delete the artifact's folder and run the tokens stage again"


def _manifest(uri: str) -> dict[str, Any]:
    path = _local(uri, "manifest.json", keep=False)
    if not path.is_file():
        raise ShardError(f"{uri}/manifest.json does not exist: nothing complete lies there; run the tokens stage")
    return json.loads(path.read_text(encoding="utf-8"))


def _table(uri: str, manifest: dict[str, Any]) -> pa.Table:
    """The table of shards, its file checked; ShardError where it is not what the manifest lists or not a table of
    shards in the order of keys."""
    import pyarrow.parquet as pq

    records = [part for part in manifest["parts"] if part["key"] == "shards"]
    if len(records) != 1:
        raise ShardError(f"{uri}/manifest.json lists no table of shards: an older openk2 wrote it; {_REPAIR}")
    path = File(uri, **{name: records[0][name] for name in ("path", "sha256", "bytes")}).local
    table = pq.ParquetFile(path).read()
    if {field.name: str(field.type) for field in table.schema} != TABLE:
        raise ShardError(f"{path} has other columns than a table of shards ({', '.join(TABLE)}); {_REPAIR}")
    table = table.combine_chunks()
    key_N = table["key"].to_numpy()
    if table.num_rows and not (key_N[:-1] < key_N[1:]).all():
        raise ShardError(f"{path} does not list its shards in the order of keys, each once; {_REPAIR}")
    return table


def _runs(table: pa.Table) -> Iterator[tuple[int, int]]:
    """(first, end) of the rows of each split, domain and source."""
    if not table.num_rows:
        return
    # Not in Arrow: loading its functions takes longer and more memory than all the rest.
    changes_N = np.zeros(table.num_rows, bool)
    for name in ("split", "domain", "source"):
        value_N = table[name].to_numpy()
        changes_N[1:] |= value_N[1:] != value_N[:-1]
    borders = [0, *np.flatnonzero(changes_N).tolist(), table.num_rows]
    yield from itertools.pairwise(borders)


def _local(uri: str, path: str, keep: bool = True) -> Path:
    """Where `path` of the artifact lies on this machine; fetched into the cache from a remote filesystem."""
    if "://" not in uri or uri.startswith("file://"):
        return Path(uri.removeprefix("file://")) / path
    import fsspec

    base = os.environ.get("OPENK2_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "openk2"
    target = Path(base) / hashlib.sha256(uri.encode()).hexdigest()[:16] / path
    if keep and target.is_file():
        return target
    fs, remote = fsspec.core.url_to_fs(f"{uri}/{path}")
    if fs.exists(remote):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        fs.get_file(remote, str(partial))
        partial.replace(target)
    return target
