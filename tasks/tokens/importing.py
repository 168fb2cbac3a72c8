"""Megatron-LM's indexed datasets as token shards: an artifact like the tokens stage's, made of pairs of files.

A document of a pair becomes a document of the shards, all its sequences joined; one without tokens is left out and
counted. Where `tasks.tokens.exporting` wrote the pair, its record says where the documents belong and its table who
they are, so that shards come back as they were. For other pairs the caller says domain, source and licence, and a
document's id is a hash of its tokens.

Legend: N documents, T tokens, V vocabulary.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from tokenizers import Tokenizer as BPE

from model.config import Config
from model.vocabulary import EOS, K2_VOCABULARY, SPECIAL_TOKENS, special_ids
from tasks.artifact import Artifact, Step, sha256_file
from tasks.progress import Progress
from tasks.tokens.batches import DOMAIN, SPLITS, Documents, is_heldout, write_documents
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tasks.tokens.exporting import FILES, Record
from tasks.tokens.megatron import MegatronError, Pair, beside
from tasks.tokens.shards import balance, statistics
from tasks.tokens.table import Place, publish
from tasks.tokens.tokenizer import TokenizerError, adopt, load
from tasks.tokens.writing import FACTS
from training.shards import TOKEN

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)


class PairConfig(Config):
    """One pair: what it holds and where that belongs. Where it lies is no identity."""

    sha256: dict[str, str]
    """Of its files, by suffix; `.parquet` only for one of our own exports."""
    split: str | None
    """None: every document by the hash of its id, as in the tokens stage."""
    domain: str
    source: str
    licence: str
    """Of documents that no table tells of."""


class ImportConfig(Config):
    """What shards are made of, and how."""

    pairs: tuple[PairConfig, ...]
    end: int | None
    """Token that ends documents in the pairs; None for the tokenizer's own [EOS]. A document may also lack it."""
    tokens: TokensConfig
    """Size of the shards, and the held-out split of pairs that have none."""


@dataclass(frozen=True)
class PairBatch:
    """Some consecutive documents of one pair: as many as fill a shard."""

    number: int
    prefix: Path
    pair: PairConfig
    first: int
    last: int

    @property
    def key(self) -> str:
        return f"batches/{self.number:06d}"


def pairs_in(paths: Sequence[str]) -> list[Path]:
    """The prefixes that `paths` name: a pair with or without suffix, or a folder with all pairs under it."""
    found: list[Path] = []
    for name in paths:
        path = Path(os.path.abspath(name))  # noqa: PTH100 (`a`, `./a` and `b/../a` are one pair)
        if path.is_dir():
            inside = sorted(index.with_name(index.name.removesuffix(".idx")) for index in path.rglob("*.idx"))
            inside = [prefix for prefix in inside if not prefix.parent.name.endswith(".unfinished")]
            if not inside:
                raise MegatronError(f"there is no .idx under {path}: name a pair, or a folder that has some")
            found += inside
        else:
            found.append(path.with_name(re.sub(r"\.(bin|idx)$", "", path.name)))
    return list(dict.fromkeys(found))


def examine(prefix: Path, tokenizer: Artifact, domain: str = "", source: str = "", licence: str = "") -> PairConfig:
    """Check a pair as far as its index tells, and say where it belongs: by the record of an export, else by `domain`,
    `source` and `licence`. MegatronError where the pair is damaged or neither says."""
    pair, record = Pair.open(prefix), Record.read(prefix)
    pair.check()
    suffixes = FILES if record else FILES[:2]
    sha256 = {suffix: sha256_file(beside(prefix, suffix)) for suffix in suffixes if beside(prefix, suffix).exists()}
    if record:
        for suffix in FILES:
            if sha256.get(suffix) != record.sha256.get(suffix):
                raise MegatronError(f"{beside(prefix, suffix)} is not what was exported: export again")
        made = record.tokenizer_sha256
        if made and made != sha256_file(tokenizer.file("tokenizer")):
            raise MegatronError(
                f"{prefix} was made with another tokenizer than {tokenizer.uri}: give its own with --tokenizer"
            )
        facts = pq.ParquetFile(beside(prefix, ".parquet"))
        if facts.schema_arrow != FACTS or facts.metadata.num_rows != pair.documents:
            raise MegatronError(f"{beside(prefix, '.parquet')} is no table of its {pair.documents} documents")
        place = Place(record.split, record.domain, record.source)
        if place.split not in SPLITS or not DOMAIN.fullmatch(place.domain):
            raise MegatronError(f"{beside(prefix, '.json')} names no split or domain of ours: export again")
        return PairConfig(sha256=sha256, **place._asdict(), licence="")
    if not (DOMAIN.fullmatch(domain) and source and licence):
        raise MegatronError(
            f"nothing says whose documents {prefix} holds: give --domain (small letters, digits, '-', '_'), --source "
            f"and --licence"
        )
    return PairConfig(sha256=sha256, split=None, domain=domain, source=source, licence=licence)


def build(step: Step, prefixes: Sequence[Path], tokenizer: Artifact) -> Artifact:
    """Write the pairs as the shards of `step`; batches that an earlier attempt finished are kept. MegatronError for
    tokens (also the configured end) that the tokenizer does not have, or an end of document in the middle of one."""
    config = step.config
    assert isinstance(config, ImportConfig)
    vocabulary = int(tokenizer.statistics["vocabulary"])
    if config.end is not None and config.end >= vocabulary:
        raise MegatronError(f"--end {config.end} is no token: the tokenizer has {vocabulary} entries")
    batches: list[PairBatch] = []
    for prefix, pair in zip(prefixes, config.pairs, strict=True):
        for first, last in Pair.open(prefix).batches(config.tokens.shard_bytes // TOKEN.itemsize):
            batches.append(PairBatch(len(batches), prefix, pair, first, last))
    if not batches:
        raise MegatronError("the pairs hold no documents: there is nothing to import")
    documents = sum(batch.last - batch.first for batch in batches)
    with Progress("import", documents, "documents") as progress:
        for batch in batches:
            if step.part(batch.key) is None:
                write_batch(step, batch, tokenizer)
            progress.advance(batch.last - batch.first)
    records = [part.statistics for part in step.parts(batch.key for batch in batches)]
    shards = [row for record in records for row in record["shards"]]
    if not shards:
        raise MegatronError("the pairs hold no tokens: there is nothing to import")
    return publish(step, shards, statistics(records, tokenizer), balance(records, documents))


def write_batch(step: Step, batch: PairBatch, tokenizer: Artifact) -> None:
    """Write one batch as shards of its own; its record comes last."""
    config = step.config
    assert isinstance(config, ImportConfig)
    documents = _documents(config, batch, tokenizer)
    write_documents(step, batch.key, batch.number, config.tokens.shard_bytes, documents)


def _documents(config: ImportConfig, batch: PairBatch, tokenizer: Artifact) -> Iterator[Documents]:
    size_V = _bytes_of_tokens(tokenizer.file("tokenizer"))
    end_id = special_ids(len(size_V))[EOS]
    rows = _Rows(batch) if ".parquet" in batch.pair.sha256 else None
    for first, read_T, end_N in Pair.open(batch.prefix).read(batch.first, batch.last):
        _require(batch.prefix, first, read_T, end_N, config.end, end_id, len(size_V))
        ids_T = read_T.astype(TOKEN)
        tokens = [_ended(ids, config.end, end_id) for ids in np.split(ids_T, end_N[:-1])]
        facts = rows.take(len(tokens)) if rows else _facts(tokens, batch.pair)
        bytes_N = np.asarray([int(size_V[ids].sum()) for ids in tokens], np.int64)
        domains = [batch.pair.domain] * len(tokens)
        heldout_N = _heldout(config.tokens, batch.pair, facts)
        yield Documents(tokens, facts, domains, bytes_N, np.ones(len(tokens), np.int64), heldout_N)


def _require(
    prefix: Path, first: int, read_T: np.ndarray, end_N: np.ndarray, end: int | None, end_id: int, vocabulary: int
) -> None:
    """MegatronError for tokens outside the vocabulary, or an end of document that is not the last of its document."""
    strange_T = (read_T < 0) | (read_T >= vocabulary)
    if strange_T.any():
        place = int(np.argmax(strange_T))
        raise MegatronError(
            f"{prefix}.bin: document {first + _document(place, end_N)} has the token {read_T[place]} and the tokenizer "
            f"{vocabulary} entries: give the tokenizer that it was made with"
        )
    within_T = read_T == end_id
    if end is not None:
        within_T |= read_T == end
        # only the pair's own mark may stand at the end; it becomes the tokenizer's
        within_T[end_N[end_N > 0] - 1] &= read_T[end_N[end_N > 0] - 1] != end
    else:
        within_T[end_N[end_N > 0] - 1] = False
    if within_T.any():
        place = int(np.argmax(within_T))
        raise MegatronError(
            f"{prefix}.bin: document {first + _document(place, end_N)} has the end of a document, token "
            f"{read_T[place]}, inside: cut it there, or say with --end which token ends documents"
        )


def _document(place: int, end_N: np.ndarray) -> int:
    return int(np.searchsorted(end_N, place, side="right"))


def _ended(ids: np.ndarray, end: int | None, end_id: int) -> np.ndarray:
    """A document with the tokenizer's end of document as its last token; nothing where nothing else is in it."""
    if len(ids) and ids[-1] == (end_id if end is None else end):
        ids = ids[:-1]
    return np.append(ids, TOKEN.type(end_id)) if len(ids) else ids


def _heldout(config: TokensConfig, pair: PairConfig, facts: pa.Table) -> np.ndarray:
    if pair.split is not None:
        return np.full(facts.num_rows, pair.split == "heldout")
    return np.asarray([is_heldout(config, name) for name in facts["id"].to_pylist()], bool)


def _facts(tokens: Sequence[np.ndarray], pair: PairConfig) -> pa.Table:
    """The facts of documents of which only their tokens are known."""
    names = [xxhash.xxh3_128_hexdigest(ids.data) for ids in tokens]
    count = len(tokens)
    columns = [names, [pair.source] * count, [pair.licence] * count, [False] * count, [None] * count]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FACTS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FACTS)


class _Rows:
    """The table beside a pair, from the first document of a batch on."""

    def __init__(self, batch: PairBatch) -> None:
        self._path, self._source = beside(batch.prefix, ".parquet"), batch.pair.source
        self._groups = self._from(batch.first)
        self._held = pa.Table.from_batches([], FACTS)

    def take(self, count: int) -> pa.Table:
        """The next `count` rows; MegatronError where they are another source's."""
        while self._held.num_rows < count:
            self._held = pa.concat_tables([self._held, next(self._groups)])
        rows, self._held = self._held.slice(0, count), self._held.slice(count)
        if any(source != self._source for source in rows["source"].unique().to_pylist()):
            raise MegatronError(f"{self._path} has documents of other sources than '{self._source}': export again")
        return rows.combine_chunks()

    def _from(self, document: int) -> Iterator[pa.Table]:
        file = pq.ParquetFile(self._path)
        first = 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > document:
                yield file.read_row_group(group).cast(FACTS).slice(max(0, document - first))
            first += count


@lru_cache(1)
def _bytes_of_tokens(path: Path) -> np.ndarray:
    """Bytes of text that each token stands for, int64 [V]; none for special ones."""
    tokenizer = load(path)
    special = tokenizer.get_added_tokens_decoder()
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    # one character of the byte-level alphabet is one byte
    sizes = [0 if token in special else len(tokenizer.id_to_token(token) or "") for token in range(vocabulary)]
    return np.asarray(sizes, np.int64)


def adopt_tokenizer(path: Path, root: str) -> Step:
    """The published step of a tokenizer.json that pairs were made with: at its own size where it has K2's special
    tokens, else with them after its own entries. TokenizerError where it cannot be used."""
    if not path.is_file():
        raise TokenizerError(f"{path} does not exist: --tokenizer names a tokenizer.json")
    found = load(path)
    size = found.get_vocab_size(with_added_tokens=True)
    ours = 256 + len(SPECIAL_TOKENS) <= size <= K2_VOCABULARY and found.token_to_id(EOS) == special_ids(size)[EOS]
    vocabulary = size if ours else size + len(SPECIAL_TOKENS)
    try:
        special_ids(vocabulary)
    except ValueError as error:
        raise TokenizerError(f"{path} has {size} entries and cannot be used: {error}") from None
    config = TokenizerConfig(vocabulary=vocabulary, file=str(path), sha256=sha256_file(path))
    step = Step.of("tokenizer", "tasks.tokens.tokenizer", config, root)
    if step.artifact() is None:
        adopted = adopt(config).to_str()
        if adopted == BPE.from_file(str(path)).to_str():
            step.adopt("tokenizer", path)  # byte by byte, as the record of an export knows it
        else:
            step.put("tokenizer", ".json", lambda target: target.write_text(adopted, "utf-8"))
        step.publish({"vocabulary": vocabulary, "special": special_ids(vocabulary)})
    return step
