"""The tokens stage: corpus and accepted rewrites to uint32 shards with a document index, by split, domain and source.

A batch is some consecutive parts of the corpus or of the rewrites. Its documents are tokenised in order and written as
shards of their own, so that batches are independent: of each other, of the number of workers, and of how often the run
was killed. Where a mix says so a training document is written several times, or not at all; further copies come when
every document of the batch has been written once, so that they do not stand side by side. Layout and invariants:
docs/tokens.md.

Legend: N documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer as BPE

from model.vocabulary import BOS, EOS, special_ids
from tasks.artifact import Artifact, ArtifactError, Part, Step
from tasks.draw import draw
from tasks.progress import Progress
from tasks.tokens.config import TokensConfig
from tasks.tokens.table import Place, publish
from tasks.tokens.tokenizer import encode_texts, load
from tasks.tokens.writing import INDEX, Writer
from training.shards import TOKEN

ROWS = 512
"""Documents tokenised at once."""
COLUMNS = ("id", "text", "source", "domain", "licence")
SPLITS = ("train", "heldout")
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
        return f"batches/{self.number:06d}"

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass
class _Documents:
    """Some documents on their way into shards."""

    tokens: list[np.ndarray]
    facts: pa.Table
    """Their rows of the index without the spans."""
    domains: list[str]
    bytes_N: np.ndarray
    copies_N: np.ndarray
    """How often each is written; 0 for one that is left out."""
    heldout_N: np.ndarray

    def take(self, chosen_N: np.ndarray) -> _Documents:
        """Those at the places `chosen_N`."""
        places = chosen_N.tolist()
        return _Documents(
            [self.tokens[place] for place in places],
            self.facts.take(pa.array(chosen_N)),
            [self.domains[place] for place in places],
            self.bytes_N[chosen_N],
            self.copies_N[chosen_N],
            self.heldout_N[chosen_N],
        )

    def streams(self) -> Iterator[tuple[Place, np.ndarray]]:
        """Each stream that occurs, and the places of its documents, in order."""
        found: dict[Place, list[int]] = {}
        names = zip(self.heldout_N.tolist(), self.domains, self.facts["source"].to_pylist(), strict=True)
        for place, (held, domain, source) in enumerate(names):
            found.setdefault(Place(SPLITS[held], domain, source), []).append(place)
        for stream, places in found.items():
            yield stream, np.asarray(places)


@dataclass
class _Counts:
    """What a batch's record says of it, besides its shards."""

    rewrites: bool
    empty: int = 0
    left_out: int = 0
    streams: dict[Place, dict[str, Any]] = field(default_factory=dict)

    def add(self, place: Place, documents: _Documents, first: bool) -> None:
        """Count documents of one stream; `first` where these are no further copies."""
        counts = self.streams.setdefault(place, dict.fromkeys(("tokens", "documents", "copies", "bytes"), 0))
        counts["tokens"] += sum(len(tokens) for tokens in documents.tokens)
        counts["documents"] += len(documents.tokens) if first else 0
        counts["copies"] += len(documents.tokens)
        counts["bytes"] += int(documents.bytes_N.sum())
        counts["licence"] = documents.facts["licence"][-1].as_py()

    def record(self, shards: list[dict[str, Any]]) -> dict[str, Any]:
        streams = [{**place._asdict(), **counts} for place, counts in sorted(self.streams.items())]
        facts = {"rewrites": self.rewrites, "empty": self.empty, "left_out": self.left_out}
        return facts | {"streams": streams, "shards": sorted(shards, key=lambda row: row["key"])}


def plan(config: TokensConfig, corpus: Artifact, rewrites: Artifact) -> list[Batch]:
    """Every batch, in order; a function of the inputs' manifests alone."""
    batches: list[Batch] = []
    for artifact, group in ((corpus, "documents"), (rewrites, "rewrites")):
        parts: list[Part] = []
        held = 0
        for part in artifact.parts(group):
            if parts and held + part.bytes > config.batch_bytes:
                batches.append(Batch(len(batches), group, tuple(parts)))
                parts, held = [], 0
            parts.append(part)
            held += part.bytes
        if parts:
            batches.append(Batch(len(batches), group, tuple(parts)))
    return batches


def build(
    step: Step, corpus: Artifact, rewrites: Artifact, tokenizer: Artifact, mix: Artifact | None = None
) -> Artifact:
    """The tokens stage: write every batch that no record has, publish table and statistics. `mix` says how often each
    document is written; without one, once."""
    config = step.config
    assert isinstance(config, TokensConfig)
    batches = plan(config, corpus, rewrites)
    if not batches:
        raise ArtifactError(f"{corpus.uri} lists no documents: there is nothing to tokenise")
    encoder = load(tokenizer.file("tokenizer"))
    total = sum(batch.bytes for batch in batches)
    with Progress("tokens", total / 1e6, "MB") as progress:
        for batch in batches:
            if step.part(batch.key) is None:
                write_batch(step, batch, rewrites if batch.group == "rewrites" else corpus, encoder, mix)
            progress.advance(batch.bytes / 1e6, f"{batch.group} {batch.number + 1}/{len(batches)}")
    records = [part.statistics for part in step.recorded("batches")]
    if len(records) != len(batches):
        raise ArtifactError(f"{step.uri} has {len(records)} of {len(batches)} batches: run the tokens stage again")
    shards = [row for record in records for row in record["shards"]]
    return publish(step, shards, statistics(records, encoder, tokenizer))


def write_batch(step: Step, batch: Batch, artifact: Artifact, tokenizer: BPE, mix: Artifact | None) -> Part:
    """Tokenise one batch into shards; its record is written last and makes them count."""
    config = step.config
    assert isinstance(config, TokensConfig)
    special = special_ids(tokenizer.get_vocab_size(with_added_tokens=True))
    counts = _Counts(batch.group == "rewrites")
    again: list[_Documents] = []
    with step.scratch() as folder:
        writer = Writer(step, folder, batch.number, config.shard_bytes)

        def write(documents: _Documents, first: bool) -> None:
            for place, chosen_N in documents.streams():
                some = documents.take(chosen_N)
                writer.add(place, some.tokens, some.facts)
                counts.add(place, some, first)

        for part in batch.parts:
            for documents in _read(config, part, artifact, batch.group, tokenizer, special, mix):
                length_N = np.asarray([len(tokens) for tokens in documents.tokens], np.int64)
                counts.empty += int((length_N == 0).sum())
                wanted_N = (length_N > 0) & ((documents.copies_N > 0) | documents.heldout_N)
                counts.left_out += int(((length_N > 0) & ~wanted_N).sum())
                write(documents.take(np.flatnonzero(wanted_N)), first=True)
                repeated_N = wanted_N & (documents.copies_N > 1) & ~documents.heldout_N
                if repeated_N.any():
                    again.append(documents.take(np.flatnonzero(repeated_N)))
        for copy in range(1, max((int(documents.copies_N.max()) for documents in again), default=0)):
            for documents in again:
                write(documents.take(np.flatnonzero(documents.copies_N > copy)), first=False)
        writer.finish()
    record = counts.record(writer.rows)
    return step.put(batch.key, ".json", lambda path: path.write_text(json.dumps(record) + "\n"), statistics=record)


def statistics(records: list[dict[str, Any]], tokenizer: BPE, source: Artifact) -> dict[str, Any]:
    """The stage's statistics, summed over the records of its batches. `tokens`, `documents`, `copies`, `by_domain`,
    `by_source` and `rewrites` count the training split, tokens and bytes with every copy; `heldout` has the held-out
    one by domain, `left_out` the documents that the mix gives no copy."""
    tables: dict[str, dict[str, dict[str, Any]]] = {"by_domain": {}, "by_source": {}, "heldout": {}, "rewrites": {}}
    for record in records:
        for stream in record["streams"]:
            counts = {name: stream[name] for name in ("tokens", "documents", "copies", "bytes")}
            if stream["split"] == "heldout":
                _add(tables["heldout"], stream["domain"], counts)
                continue
            _add(tables["by_domain"], stream["domain"], counts)
            _add(tables["by_source"], stream["source"], counts)["licence"] = stream["licence"]
            if record["rewrites"]:
                _add(tables["rewrites"], "all", counts)
    for rows in tables.values():
        for counts in rows.values():
            counts["bytes_per_token"] = round(counts["bytes"] / counts["tokens"], 4)
    train = tables["by_domain"].values()
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    splits = [row["split"] for record in records for row in record["shards"]]
    return {
        **{name: sum(counts[name] for counts in train) for name in ("tokens", "documents", "copies")},
        "by_domain": tables["by_domain"],
        "by_source": tables["by_source"],
        "rewrites": tables["rewrites"].get("all", {"documents": 0, "copies": 0, "tokens": 0, "bytes": 0}),
        "heldout": tables["heldout"],
        **{name: sum(record[name] for record in records) for name in ("empty", "left_out")},
        "shards": {split: splits.count(split) for split in SPLITS},
        "vocabulary": vocabulary,
        "end_of_document": special_ids(vocabulary)[EOS],
        "tokenizer": source.fingerprint,
    }


def _add(table: dict[str, dict[str, Any]], name: str, counts: dict[str, int]) -> dict[str, Any]:
    total = table.setdefault(name, dict.fromkeys(counts, 0))
    for key, value in counts.items():
        total[key] += value
    return total


def _read(
    config: TokensConfig,
    part: Part,
    artifact: Artifact,
    group: str,
    tokenizer: BPE,
    special: dict[str, int],
    mix: Artifact | None,
) -> Iterator[_Documents]:
    """The documents of one input file, tokenised, some at a time; ArtifactError for a file that cannot be tokenised,
    or that the mix is not of."""
    path = artifact.file(part)
    file = pq.ParquetFile(path)
    columns = [*COLUMNS, *(["source_id"] if group == "rewrites" else [])]
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise ArtifactError(f"{path} has no column '{missing[0]}': {group} need {', '.join(columns)}")
    told = _copies(mix, part)
    first = 0
    for rows in file.iter_batches(ROWS, columns=columns):
        _require(path, rows, columns)
        copies_N = np.ones(rows.num_rows, np.int64)
        if told is not None:
            here = told.slice(first, rows.num_rows)
            if here["id"].to_pylist() != rows["id"].to_pylist():
                raise ArtifactError(f"{mix and mix.uri} does not know the documents of {path}: run its stage again")
            copies_N = here["copies"].to_numpy()
        first += rows.num_rows
        yield _documents(config, rows, tokenizer, special, copies_N)


def _documents(
    config: TokensConfig, rows: pa.RecordBatch, tokenizer: BPE, special: dict[str, int], copies_N: np.ndarray
) -> _Documents:
    texts = rows["text"].to_pylist()
    head = [special[BOS]] if config.begin_documents else []
    tokens = [np.asarray([*head, *ids, special[EOS]] if ids else [], TOKEN) for ids in encode_texts(tokenizer, texts)]
    names = rows["id"].to_pylist()
    for name, ids in zip(names, tokens, strict=True):
        # Readers part documents by it.
        if len(ids) and int((ids == special[EOS]).sum()) != 1:
            raise ArtifactError(
                f"document '{name}' has {EOS} inside: the tokenizer must encode special tokens in text as text"
            )
    rewrite = "source_id" in rows.schema.names
    roots = rows["source_id"].to_pylist() if rewrite else names
    # A rewrite goes where its source goes: nothing of a held-out document is ever trained on.
    held = [draw("heldout", config.seed, name) < config.heldout_fraction for name in roots]
    marks = pa.array([rewrite] * rows.num_rows, pa.bool_())
    sources = rows["source_id"] if rewrite else pa.nulls(rows.num_rows, pa.string())
    columns = [rows["id"], rows["source"], rows["licence"], marks, sources]
    facts = pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, list(INDEX)[2:], strict=True)],
        schema=pa.schema(list(INDEX)[2:]),
    )
    bytes_N = np.asarray([len(text.encode()) for text in texts], np.int64)
    return _Documents(tokens, facts, rows["domain"].to_pylist(), bytes_N, copies_N, np.asarray(held, bool))


def _require(path: Path, rows: pa.RecordBatch, columns: list[str]) -> None:
    """ArtifactError for the first document that lacks something or has a domain that no path can have."""
    found: dict[int, str] = {}
    for name in columns:
        if rows[name].null_count:
            found.setdefault(rows[name].is_null().to_pylist().index(True), f"no {name}")
    for name in {domain for domain in rows["domain"].to_pylist() if domain is not None}:
        if not DOMAIN.fullmatch(name):
            found.setdefault(rows["domain"].to_pylist().index(name), f"the domain '{name}'")
    if found:
        place = min(found)
        raise ArtifactError(
            f"{path}: document '{rows['id'][place]}' has {found[place]}: every document needs {', '.join(columns)}, "
            f"and a domain of small letters, digits, '-' and '_'"
        )


def _copies(mix: Artifact | None, part: Part) -> pa.Table | None:
    """`id` and `copies` of every row of a part; None without a mix."""
    if mix is None:
        return None
    beside = {listed.key: listed for listed in mix.parts("copies")}
    key = f"copies/{part.key}"
    if key not in beside:
        raise ArtifactError(f"{mix.uri} has no part '{key}': it is of other documents; run its stage again")
    return pq.read_table(mix.file(beside[key]), columns=["id", "copies"])
