"""Token shards as Megatron-LM's indexed datasets: a pair of files for each split, domain and source.

    FOLDER/tokenizer.json
    FOLDER/{split}/{domain}/{source}/tokens.bin, tokens.idx    what Megatron reads: the prefix is .../tokens
                                     tokens.parquet            id, source, licence and origin of each document, in order
                                     tokens.json               what was written, and from what

A document is one sequence, its end-of-document token included. The folder of a pair gets its name when all of it is
written. Memory holds pieces of a shard, never one.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from model.storage import is_local, local_path
from tasks.artifact import Artifact, digest, sha256_file
from tasks.progress import Progress
from tasks.tokens.megatron import PIECE, MegatronError, Writer, beside
from tasks.tokens.table import Place
from tasks.tokens.writing import FACTS
from training.shards import TOKEN, Shard, ShardError, Stream, TokenShards

FILES = (".bin", ".idx", ".parquet")
NAME = "tokens"


@dataclass(frozen=True)
class Record:
    """What `PREFIX.json` says of a pair."""

    split: str
    domain: str
    source: str
    tokens: int
    documents: int
    vocabulary: int
    end_of_document: int
    tokenizer_sha256: str | None
    content: str
    """Hash over the shards that it was written from."""
    sha256: dict[str, str]
    """Of each of its files, by suffix."""
    bytes: dict[str, int] = field(default_factory=dict)
    """Of each of its files, by suffix; nothing in records of before it was noted."""

    @classmethod
    def read(cls, prefix: Path) -> Record | None:
        """The record beside a pair; None for one that something else wrote, MegatronError for one that is no record."""
        path = beside(prefix, ".json")
        if not path.exists():
            return None
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise MegatronError(f"{path} is no record of an export ({error}): delete it, or export again") from None

    def complete(self, prefix: Path) -> bool:
        """Whether the files of the pair at `prefix` are there, each of its size."""
        files = {suffix: beside(prefix, suffix) for suffix in FILES}
        return self.bytes == {suffix: path.stat().st_size for suffix, path in files.items() if path.is_file()}


def export(tokens: Artifact, folder: str, split: str = "", domain: str = "", source: str = "") -> dict[Path, Record]:
    """Write every stream of `tokens` (of one split, domain or source only, where one is named) under `folder`; prefix
    -> its record, in order. What an earlier export of the same shards finished stays, and a pair of which files were
    lost or cut since is written anew; MegatronError for other files in the way, or where nothing is meant."""
    if not is_local(folder):
        raise MegatronError(f"{folder} is no folder of this machine: export to one and copy from there")
    root = local_path(folder)
    shards = TokenShards(tokens.uri)
    if (shards.vocabulary - 1) > np.iinfo(np.int32).max:
        raise MegatronError(f"a vocabulary of {shards.vocabulary} entries does not fit Megatron's int32")
    chosen = [
        (Place(stream.split, stream.domain, stream.source), stream)
        for name in ([split] if split else shards.splits)
        for stream in shards.streams(name).values()
        if domain in ("", stream.domain) and source in ("", stream.source)
    ]
    if not chosen:
        raise MegatronError(f"{tokens.uri} has nothing of domain '{domain}' and source '{source}': leave one out")
    _copy_tokenizer(tokens, root)
    found: dict[Path, Record] = {}
    with Progress("export", sum(stream.bytes for _, stream in chosen) / 1e6, "MB") as progress:
        for place, stream in chosen:
            prefix = root / place.folder / NAME
            content = digest([[shard.key, shard.file.sha256, shard.index.sha256] for shard in stream])
            record = Record.read(prefix)
            same = record is not None and record.content == content
            if record is None or not same or not record.complete(prefix):
                if prefix.parent.exists() and not same:
                    raise MegatronError(f"{prefix.parent} holds something else: name another folder, or delete it")
                record = _export(prefix, place, stream, shards, content)
            found[prefix] = record
            progress.advance(stream.bytes / 1e6, place.folder)
    return found


def blend(found: dict[Path, Record]) -> list[str]:
    """Megatron's `--data-path` for the training split: the weight of each pair, its tokens, before its prefix."""
    train = [(prefix, record) for prefix, record in found.items() if record.split == "train"]
    return [word for prefix, record in train for word in (str(record.tokens), str(prefix))]


def _export(prefix: Path, place: Place, stream: Stream, shards: TokenShards, content: str) -> Record:
    folder = prefix.parent.with_name(f".{prefix.parent.name}.unfinished")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unfinished = folder / NAME
    with (
        Writer(unfinished, shards.vocabulary) as pair,
        pq.ParquetWriter(beside(unfinished, ".parquet"), FACTS, compression="zstd") as facts,
    ):
        for shard in stream:
            _copy_documents(shard, pair, facts)
            with shard.cache.open(shard.file) as file:
                while len(tokens_T := np.fromfile(file, TOKEN, PIECE)):
                    pair.add_tokens(tokens_T)
        pair.finish()
    record = Record(
        **place._asdict(),
        tokens=int(stream.tokens_N.sum()),
        documents=int(stream.documents_N.sum()),
        vocabulary=shards.vocabulary,
        end_of_document=shards.end_of_document,
        tokenizer_sha256=shards.tokenizer_sha256,
        content=content,
        sha256={suffix: sha256_file(beside(unfinished, suffix)) for suffix in FILES},
        bytes={suffix: beside(unfinished, suffix).stat().st_size for suffix in FILES},
    )
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n"
    beside(unfinished, ".json").write_text(text, encoding="utf-8")
    if not prefix.parent.exists():
        folder.replace(prefix.parent)
        return record
    for suffix in (*FILES, ".json"):  # in place of those that were cut, beside whatever else lies there
        beside(unfinished, suffix).replace(beside(prefix, suffix))
    folder.rmdir()
    return record


def _copy_documents(shard: Shard, pair: Writer, facts: pq.ParquetWriter) -> None:
    """The lengths and facts of a shard's documents; ShardError where they do not touch from its first to its last
    token."""
    end = 0
    for rows in shard.rows():
        start_N, end_N = rows["start"].to_numpy(), rows["end"].to_numpy()
        if len(start_N) and ((start_N != np.concatenate([[end], end_N[:-1]])).any() or (end_N <= start_N).any()):
            raise ShardError(f"the documents of {shard.key} do not touch: {shard.index.path} was altered")
        pair.add_lengths(end_N - start_N)
        facts.write_table(pa.Table.from_batches([rows]).select(FACTS.names).cast(FACTS))
        end = int(end_N[-1]) if len(end_N) else end
    if end != shard.tokens:
        raise ShardError(f"the documents of {shard.key} end at token {end} of {shard.tokens}: its index was altered")


def _copy_tokenizer(tokens: Artifact, root: Path) -> None:
    """Put the tokenizer that the shards were made with beside them, where it still exists."""
    tokenizer = tokens.made_from("tokenizer")
    if tokenizer is None:
        return
    path, target = tokenizer.file("tokenizer"), root / "tokenizer.json"
    if target.exists() and sha256_file(target) != sha256_file(path):
        raise MegatronError(f"{target} is another tokenizer than these shards': name another folder, or delete it")
    root.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
