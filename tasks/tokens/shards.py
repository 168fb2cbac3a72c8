"""The tokens stage: corpus and accepted rewrites to uint32 shards with a document index, by split and domain.

A batch is some consecutive parts of the corpus or of the rewrites. Its documents are tokenised in order and written as
shards of their own, so that batches are independent: of each other, of the number of threads, and of how often the run
was killed. Where a mix says so a training document is written several times, or not at all; further copies come when
every document of the batch has been written once, so that they do not stand side by side. Layout and invariants:
docs/tokens.md.

Legend: T tokens of a shard.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer as BPE

from model.vocabulary import BOS, EOS, special_ids
from tasks.artifact import Artifact, ArtifactError, Part, Step
from tasks.draw import draw
from tasks.progress import Progress
from tasks.tokens.config import TokensConfig
from tasks.tokens.tokenizer import encode_texts, load

log = logging.getLogger(__name__)

TOKEN = np.dtype("<u4")
ROWS = 512
"""Documents tokenised at once."""
INDEX = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("licence", pa.string(), nullable=False),
        pa.field("rewrite", pa.bool_(), nullable=False),
        pa.field("source_id", pa.string()),
    ]
)
COLUMNS = ("id", "text", "source", "domain", "licence")
SPLITS = ("train", "heldout")
Copies = Callable[[Part], Iterator[dict[str, Any]]]
DOMAIN = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True)
class Batch:
    """One unit of work: consecutive parts of one input."""

    number: int
    group: str
    """`documents` or `rewrites`."""
    parts: tuple[Part, ...]

    @property
    def key(self) -> str:
        return f"batches/{self.number:05d}"

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


class _Document(NamedTuple):
    """One tokenised document."""

    id: str
    source: str
    licence: str
    source_id: str | None
    domain: str
    bytes: int
    tokens: np.ndarray
    first: bool = True
    """Whether this is no further copy."""

    @property
    def row(self) -> tuple[Any, ...]:
        """Its columns of the index after the span."""
        return self.id, self.source, self.licence, self.source_id is not None, self.source_id


@dataclass
class _Open:
    """The shard being filled for one split and domain."""

    tokens: list[np.ndarray] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    length: int = 0
    number: int = 0


def plan(config: TokensConfig, corpus: Artifact, rewrites: Artifact) -> list[Batch]:
    """Every batch, in order; a function of the inputs' manifests alone."""
    batches: list[Batch] = []
    for artifact, group in ((corpus, "documents"), (rewrites, "rewrites")):
        parts: list[Part] = []
        for part in artifact.parts(group):
            if parts and sum(held.bytes for held in parts) + part.bytes > config.batch_bytes:
                batches.append(Batch(len(batches), group, tuple(parts)))
                parts = []
            parts.append(part)
        if parts:
            batches.append(Batch(len(batches), group, tuple(parts)))
    return batches


def build(
    step: Step, corpus: Artifact, rewrites: Artifact, tokenizer: Artifact, mix: Artifact | None = None
) -> Artifact:
    """The tokens stage: write every batch that no record has, publish shards, index and statistics. `mix` says how
    often each document is written; without one, once."""
    config = step.config
    assert isinstance(config, TokensConfig)
    batches = plan(config, corpus, rewrites)
    if not batches:
        raise ArtifactError(f"{corpus.uri} lists no documents: there is nothing to tokenise")
    encoder = load(tokenizer.file("tokenizer"))
    copies = _copies(mix)
    total = sum(batch.bytes for batch in batches)
    with Progress("tokens", total / 1e6, "MB") as progress:
        for batch in batches:
            if step.part(batch.key) is None:
                write_batch(step, batch, rewrites if batch.group == "rewrites" else corpus, encoder, copies)
            progress.advance(batch.bytes / 1e6, f"{batch.group} {batch.number + 1}/{len(batches)}")
    return step.publish(statistics(step, encoder, tokenizer, len(batches)), keep="shards,index")


def write_batch(step: Step, batch: Batch, artifact: Artifact, tokenizer: BPE, copies: Copies) -> Part:
    """Tokenise one batch into shards; its record is written last and makes them count."""
    config = step.config
    assert isinstance(config, TokensConfig)
    special = special_ids(tokenizer.get_vocab_size(with_added_tokens=True))
    end_id, begin_id = special[EOS], special[BOS]
    head = [begin_id] if config.begin_documents else []
    largest = config.shard_bytes // TOKEN.itemsize
    shards: dict[tuple[str, str], _Open] = {}
    counts = _tables()
    keys: list[str] = []
    empty = left_out = 0

    def close(split: str, domain: str) -> None:
        shard = shards[split, domain]
        key = f"{split}/{domain}/{batch.number:05d}-{shard.number:03d}"
        _put_shard(step, key, shard, end_id)
        keys.append(key)
        shards[split, domain] = _Open(number=shard.number + 1)

    def add(split: str, document: _Document) -> None:
        shard = shards.setdefault((split, document.domain), _Open())
        length = len(document.tokens)
        if shard.length and shard.length + length > largest:
            close(split, document.domain)
            shard = shards[split, document.domain]
        shard.tokens.append(document.tokens)
        shard.rows.append((shard.length, shard.length + length, *document.row))
        shard.length += length
        _count(counts[split], document)

    again: list[tuple[int, _Document]] = []
    for part in batch.parts:
        for rows in _rows(artifact.file(part), batch.group, copies(part)):
            for row, ids in zip(rows, encode_texts(tokenizer, [row["text"] for row in rows]), strict=True):
                if not ids:
                    empty += 1
                    continue
                document = _document(row, np.asarray([*head, *ids, end_id], TOKEN))
                # A rewrite goes where its source goes: nothing of a held-out document is ever trained on.
                if draw("heldout", config.seed, document.source_id or document.id) < config.heldout_fraction:
                    add("heldout", document)
                elif row["copies"]:
                    add("train", document)
                    if row["copies"] > 1:
                        again.append((row["copies"], document._replace(first=False)))
                else:
                    left_out += 1
    for copy in range(1, max((times for times, _ in again), default=0)):
        for times, document in again:
            if times > copy:
                add("train", document)
    for split, domain in sorted(shards):
        if shards[split, domain].length:
            close(split, domain)
    record = {"documents": counts, "empty": empty, "left_out": left_out, "shards": sorted(keys)}
    return step.put(batch.key, ".json", lambda path: path.write_text(json.dumps(record) + "\n"), statistics=record)


def _document(row: dict[str, Any], tokens: np.ndarray) -> _Document:
    names = (row["id"], row["source"], row["licence"], row.get("source_id"))
    return _Document(*names, domain=row["domain"], bytes=len(row["text"].encode()), tokens=tokens)


def _copies(mix: Artifact | None) -> Copies:
    """What gives id and copies of every row of a part; without a mix, one copy of whatever stands there."""
    if mix is None:
        return lambda part: itertools.repeat({"id": None, "copies": 1})
    beside = {part.key: part for part in mix.parts("copies")}

    def read(part: Part) -> Iterator[dict[str, Any]]:
        key = f"copies/{part.key}"
        if key not in beside:
            raise ArtifactError(f"{mix.uri} has no part '{key}': it is of other documents; run its stage again")
        for rows in pq.ParquetFile(mix.file(beside[key])).iter_batches(ROWS):
            yield from rows.to_pylist()

    return read


def statistics(step: Step, tokenizer: BPE, source: Artifact, batches: int) -> dict[str, Any]:
    """The stage's statistics, summed over the records of its batches. `tokens`, `documents`, `copies`, `by_domain`,
    `by_source` and `rewrites` count the training split, tokens and bytes with every copy; `heldout` has the held-out
    one by domain, `left_out` the documents that the mix gives no copy."""
    records = [part.statistics for part in step.recorded("batches")]
    if len(records) != batches:
        raise ArtifactError(f"{step.uri} has {len(records)} of {batches} batches: run the tokens stage again")
    splits = _tables()
    for record in records:
        for split, tables in record["documents"].items():
            for table, rows in tables.items():
                for name, counts in rows.items():
                    _add(splits[split][table].setdefault(name, {}), counts)
    for tables in splits.values():
        for rows in tables.values():
            for counts in rows.values():
                counts["bytes_per_token"] = round(counts["bytes"] / counts["tokens"], 4)
    train, heldout = splits["train"], splits["heldout"]
    keys = [key for record in records for key in record["shards"]]
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    return {
        "tokens": sum(counts["tokens"] for counts in train["by_domain"].values()),
        "documents": sum(counts["documents"] for counts in train["by_domain"].values()),
        "copies": sum(counts["copies"] for counts in train["by_domain"].values()),
        "by_domain": train["by_domain"],
        "by_source": train["by_source"],
        "rewrites": train["rewrites"].get("all", {"documents": 0, "copies": 0, "tokens": 0, "bytes": 0}),
        "heldout": heldout["by_domain"],
        "empty": sum(record["empty"] for record in records),
        "left_out": sum(record["left_out"] for record in records),
        "shards": {split: sum(key.startswith(f"{split}/") for key in keys) for split in SPLITS},
        "vocabulary": vocabulary,
        "end_of_document": special_ids(vocabulary)[EOS],
        "tokenizer": source.fingerprint,
    }


def _put_shard(step: Step, key: str, shard: _Open, end_id: int) -> None:
    """Write one shard and its index. The end-of-document token must occur once a document: readers part documents by
    it."""
    tokens_T = np.concatenate(shard.tokens)
    ends = np.flatnonzero(tokens_T == end_id) + 1
    if ends.tolist() != [row[1] for row in shard.rows]:
        raise ArtifactError(
            f"shard {key} has {EOS} inside a document: the tokenizer must encode special tokens in text as text"
        )
    columns = [list(column) for column in zip(*shard.rows, strict=True)]
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, INDEX, strict=True)], schema=INDEX
    )
    step.put(f"index/{key}", ".parquet", lambda path: pq.write_table(table, path, compression="zstd"), table.num_rows)
    step.put(f"shards/{key}", ".bin", lambda path: tokens_T.tofile(path), len(tokens_T))


def _rows(path: Path, group: str, copies: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The records of one input file with their `copies`, some at a time; ArtifactError for a file that cannot be
    tokenised, or that the copies are not of."""
    columns = [*COLUMNS, *(["source_id"] if group == "rewrites" else [])]
    file = pq.ParquetFile(path)
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise ArtifactError(f"{path} has no column '{missing[0]}': {group} need {', '.join(columns)}")
    for rows in file.iter_batches(ROWS, columns=columns):
        records = rows.to_pylist()
        for record in records:
            empty = [name for name in columns if record[name] is None]
            if empty or not DOMAIN.fullmatch(record["domain"]):
                what = f"no {empty[0]}" if empty else f"the domain '{record['domain']}'"
                raise ArtifactError(
                    f"{path}: document '{record['id']}' has {what}: every document needs {', '.join(columns)}, and a "
                    f"domain of small letters, digits, '-' and '_'"
                )
            told = next(copies, {"id": "", "copies": 0})
            if told["id"] not in (None, record["id"]):
                raise ArtifactError(f"{path}: the mix does not know document '{record['id']}': run its stage again")
            record["copies"] = told["copies"]
        yield records


def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Counts by split, table and name, empty."""
    return {split: {table: {} for table in ("by_domain", "by_source", "rewrites")} for split in SPLITS}


def _count(tables: dict[str, Any], document: _Document) -> None:
    counts = {"tokens": len(document.tokens), "documents": int(document.first), "copies": 1, "bytes": document.bytes}
    _add(tables["by_domain"].setdefault(document.domain, {}), counts)
    source = tables["by_source"].setdefault(document.source, {})
    _add(source, counts)
    source["licence"] = document.licence
    if document.source_id is not None:
        _add(tables["rewrites"].setdefault("all", {}), counts)


def _add(total: dict[str, Any], counts: dict[str, Any]) -> None:
    for name, value in counts.items():
        total[name] = value if isinstance(value, str) else total.get(name, 0) + value
