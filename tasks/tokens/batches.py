"""One batch of the tokens stage: some consecutive parts of the corpus or of the rewrites, from text to shards.

Batches are independent of each other: any number of workers writes the same bytes. The record of a batch is written
last and makes its shards count; a killed run repeats the batches that have none.

Legend: N documents, T tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from model.vocabulary import BOS, EOS, special_ids, token_name
from tasks.artifact import Artifact, ArtifactError, Part, Step
from tasks.tokens.config import TokensConfig
from tasks.tokens.encoder import Encoder
from tasks.tokens.table import Place
from tasks.tokens.tokenizer import load
from tasks.tokens.writing import FACTS, Writer, append
from training.draw import draw
from training.shards import TOKEN

ROWS = 512
"""Documents tokenised at once."""
COLUMNS = ("id", "text", "source", "domain", "licence")
SPLITS = ("train", "heldout")
COUNTS = ("tokens", "documents", "copies", "bytes")
DOMAIN = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True)
class PartBatch:
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
class Documents:
    """Some documents on their way into shards."""

    tokens: Sequence[np.ndarray]
    """Of each document, [BOS] and [EOS] included; none for an empty one."""
    facts: pa.Table
    """Their rows of the index without the spans."""
    domains: list[str]
    bytes_N: np.ndarray
    copies_N: np.ndarray
    """How often each is written; 0 for one that is left out."""
    heldout_N: np.ndarray

    @property
    def length_N(self) -> np.ndarray:
        return np.fromiter(map(len, self.tokens), np.int64, len(self.tokens))

    def take(self, chosen_N: np.ndarray) -> Documents:
        """Those for which `chosen_N` is true."""
        places = np.flatnonzero(chosen_N)
        if len(places) == len(self.tokens):
            return self
        return Documents(
            [self.tokens[place] for place in places.tolist()],
            self.facts.take(pa.array(places)),
            [self.domains[place] for place in places.tolist()],
            self.bytes_N[places],
            self.copies_N[places],
            self.heldout_N[places],
        )

    def streams(self) -> Iterator[tuple[Place, Documents]]:
        """Each stream that occurs, and its documents in order."""
        names = zip(self.heldout_N.tolist(), self.domains, self.facts["source"].to_pylist(), strict=True)
        places = [Place(SPLITS[held], domain, source) for held, domain, source in names]
        found = list(dict.fromkeys(places))
        number = {place: count for count, place in enumerate(found)}
        number_N = np.fromiter((number[place] for place in places), np.int64, len(places))
        for place in found:
            yield place, self.take(number_N == number[place])


class _Again:
    """Documents that are written more than once, their tokens on disk until it is their turn again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: list[tuple[Documents, np.ndarray]] = []

    @property
    def most(self) -> int:
        """The most copies of any."""
        return max((int(documents.copies_N.max()) for documents, _ in self._held), default=0)

    def add(self, documents: Documents) -> None:
        if not documents.tokens:
            return
        append(self.path, documents.tokens)
        self._held.append((documents, documents.length_N))
        documents.tokens = ()

    def __iter__(self) -> Iterator[Documents]:
        tokens_T = np.memmap(self.path, TOKEN, "r").view(np.ndarray)
        first = 0
        for documents, length_N in self._held:
            end_N = first + np.cumsum(length_N)
            documents.tokens = np.split(tokens_T[first : end_N[-1]], end_N[:-1] - first)
            yield documents
            documents.tokens = ()
            first = int(end_N[-1])


@dataclass
class _Counts:
    """What a batch's record says of it, besides its shards."""

    empty: int = 0
    left_out: int = 0
    streams: dict[tuple[Place, bool], dict[str, Any]] = field(default_factory=dict)
    """By place and whether these are rewrites."""

    def add(self, place: Place, documents: Documents, first: bool) -> None:
        """Count documents of one stream; `first` where these are no further copies."""
        rewrite_N = np.asarray(documents.facts["rewrite"].to_pylist(), bool)
        for rewrite in np.unique(rewrite_N).tolist():
            some = documents.take(rewrite_N == rewrite)
            counts = self.streams.setdefault((place, rewrite), dict.fromkeys(COUNTS, 0))
            counts["tokens"] += int(some.length_N.sum())
            counts["documents"] += len(some.tokens) if first else 0
            counts["copies"] += len(some.tokens)
            counts["bytes"] += int(some.bytes_N.sum())
            counts["licence"] = some.facts["licence"][-1].as_py()

    def record(self, shards: list[dict[str, Any]]) -> dict[str, Any]:
        streams = [
            {**place._asdict(), "rewrites": rewrite, **counts}
            for (place, rewrite), counts in sorted(self.streams.items())
        ]
        facts = {"empty": self.empty, "left_out": self.left_out}
        return facts | {"streams": streams, "shards": sorted(shards, key=lambda row: row["key"])}


def write_batch(step: Step, batch: PartBatch, artifact: Artifact, tokenizer: Artifact, mix: Artifact | None) -> None:
    """Tokenise the batch's parts of `artifact` into shards of `step`; its record comes last. ArtifactError for
    documents that cannot be tokenised, or that the mix is not of."""
    config = step.config
    assert isinstance(config, TokensConfig)
    encoder = _encoder(tokenizer.file("tokenizer"))
    documents = (some for part in batch.parts for some in _read(config, part, artifact, batch.group, encoder, mix))
    write_documents(step, batch.key, batch.number, config.shard_bytes, documents)


def write_documents(step: Step, key: str, number: int, shard_bytes: int, batch: Iterable[Documents]) -> None:
    """Write documents as the shards `{number}-{n}` of their streams, no larger than `shard_bytes` where no single
    document is. The part `key`, their record, is written last and makes them count."""
    counts = _Counts()
    with step.scratch() as folder:
        writer, again = Writer(step, folder, number, shard_bytes), _Again(folder / "again.bin")

        def write(documents: Documents, first: bool) -> None:
            for place, some in documents.streams():
                writer.add(place, some.tokens, some.facts)
                counts.add(place, some, first)

        for documents in batch:
            there_N = documents.length_N > 0
            wanted_N = there_N & ((documents.copies_N > 0) | documents.heldout_N)
            counts.empty += int((~there_N).sum())
            counts.left_out += int((there_N & ~wanted_N).sum())
            write(documents.take(wanted_N), first=True)
            # A held-out document is written once, whatever the mix says.
            again.add(documents.take(wanted_N & (documents.copies_N > 1) & ~documents.heldout_N))
        for copy in range(1, again.most):
            for documents in again:
                write(documents.take(documents.copies_N > copy), first=False)
        writer.finish()
    record = counts.record(writer.rows)
    step.put(key, ".json", lambda path: path.write_text(json.dumps(record) + "\n"), statistics=record)


def is_heldout(config: TokensConfig, name: str) -> bool:
    """Whether the document with the id `name`, and all that was rewritten of it, is kept out of training."""
    return draw("heldout", config.seed, name) < config.heldout_fraction


@lru_cache(1)
def _encoder(path: Path) -> Encoder:
    """A worker's encoder: its tables take a second, and its memory of words serves all of its batches."""
    return Encoder(load(path))


def _read(
    config: TokensConfig, part: Part, artifact: Artifact, group: str, encoder: Encoder, mix: Artifact | None
) -> Iterator[Documents]:
    """The documents of one input file, tokenised, some at a time."""
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
            if not here["id"].combine_chunks().equals(rows["id"].cast(pa.string())):
                raise ArtifactError(f"{mix and mix.uri} does not know the documents of {path}: run its stage again")
            copies_N = here["copies"].to_numpy()
        first += rows.num_rows
        yield _documents(config, path, rows, encoder, copies_N)


def _documents(
    config: TokensConfig, path: Path, rows: pa.RecordBatch, encoder: Encoder, copies_N: np.ndarray
) -> Documents:
    special = special_ids(encoder.vocabulary)
    end_id, head = special[EOS], [special[BOS]] if config.begin_documents else []
    try:
        rows["text"].validate(full=True)
    except pa.ArrowInvalid as error:
        raise ArtifactError(
            f"{path} has text that is not UTF-8 ({error}): run the stage that wrote it again"
        ) from error
    ids_T, end_N = encoder.encode(rows["text"], head, [end_id])
    start_N = np.concatenate([[0], end_N[:-1]])
    special_T = ids_T >= special[BOS]
    # a border each, and no others: readers part documents by [EOS], and what lies above it opens turns and tool calls
    if np.count_nonzero(special_T) != np.count_nonzero(end_N > start_N) * (len(head) + 1):
        special_T[end_N[end_N > start_N] - 1] = False
        special_T[start_N[end_N > start_N]] &= not head
        name = token_name(int(ids_T[np.argmax(special_T)]), encoder.vocabulary)
        raise ArtifactError(f"a document of {path} has {name} inside: the tokenizer must encode it as the text it is")
    rewrite = "source_id" in rows.schema.names
    # A rewrite goes where its source goes: nothing of a held-out document is ever trained on.
    roots = rows["source_id" if rewrite else "id"].to_pylist()
    held = [is_heldout(config, name) for name in roots]
    marks = pa.array([rewrite] * rows.num_rows, pa.bool_())
    sources = rows["source_id"] if rewrite else pa.nulls(rows.num_rows, pa.string())
    facts = [rows["id"], rows["source"], rows["licence"], marks, sources]
    return Documents(
        [ids_T[start:end] for start, end in zip(start_N.tolist(), end_N.tolist(), strict=True)],
        pa.Table.from_arrays([fact.cast(field.type) for fact, field in zip(facts, FACTS, strict=True)], schema=FACTS),
        rows["domain"].to_pylist(),
        pc.binary_length(rows["text"]).to_numpy(),
        copies_N,
        np.asarray(held, bool),
    )


def _require(path: Path, rows: pa.RecordBatch, columns: Sequence[str]) -> None:
    """ArtifactError for the first document that lacks something or has a domain that no path can have."""
    found: dict[int, str] = {}
    for name in columns:
        if rows[name].null_count:
            found.setdefault(rows[name].is_null().to_pylist().index(True), f"no {name}")
    domains = rows["domain"].to_pylist()
    for name in sorted({domain for domain in domains if domain is not None}):
        if not DOMAIN.fullmatch(name):
            found.setdefault(domains.index(name), f"the domain '{name}'")
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
