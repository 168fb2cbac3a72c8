"""Corpora of candidate rows, deduplicated as the corpus stage does it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.artifact import Artifact, Step
from tasks.corpus import records
from tasks.corpus.config import CorpusConfig
from tasks.corpus.dedup.config import DedupConfig
from tasks.corpus.dedup.find import find
from tasks.corpus.dedup.index import IndexWriter
from tasks.corpus.dedup.removals import apply
from tasks.corpus.executor import Executor, Serial

Rows = Sequence[Mapping[str, Any]]


def row(text: str, url: str, domain: str = "web", code: bool = False) -> dict[str, Any]:
    return {
        "id": records.document_id(text),
        "text": text,
        "source": "s",
        "url": url,
        "domain": domain,
        "language": "en",
        "licence": "MIT",
        "meta": records.meta(code=code),
    }


class Corpus:
    """A step whose partitions have been refined."""

    def __init__(self, root: Path, partitions: Sequence[Rows], dedup: DedupConfig, inputs: Sequence[Step] = ()) -> None:
        config = CorpusConfig(dedup=dedup, document_chars_min=20)
        self.step = Step("corpus", config, str(root), tuple(inputs))
        self.keys = [f"s/{number:03}" for number in range(len(partitions))]
        for key, rows in zip(self.keys, partitions, strict=True):
            table = records.table([dict(one) for one in rows], records.DOCUMENT)
            self.step.put(f"candidates/{key}", ".parquet", lambda path, t=table: records.write(path, t), rows=len(rows))
            writer = IndexWriter(dedup)
            writer.add(rows)
            self.step.put(f"index/{key}", ".index", writer.write, rows=len(rows))

    def find(self, executor: Executor | None = None, earlier: Sequence[Artifact] = (), memory: int = 1 << 28) -> None:
        find(self.step, self.keys, executor or Serial(), earlier, memory)

    def table(self, key: str) -> pa.Table:
        part = self.step.part(key)
        assert part is not None, key
        return pq.read_table(self.step.path(part))

    def result(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(documents, rejected rows), by url."""
        documents, rejected = [], []
        for key in self.keys:
            candidates = self.table(f"candidates/{key}")
            kept, lost = apply(candidates, self.table(f"removals/{key}"))
            assert kept.num_rows + len(lost) == candidates.num_rows
            documents += kept.to_pylist()
            rejected += lost
        return sorted(documents, key=lambda one: one["url"]), sorted(rejected, key=lambda one: one["url"])

    def published(self) -> Artifact:
        return self.step.publish({}, [f"{group}/{key}" for group in ("index", "removals") for key in self.keys])


@pytest.fixture
def deduplicated(tmp_path_factory) -> Callable[..., tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Documents and rejected rows of partitions of rows."""

    def run(partitions: Sequence[Rows], dedup: DedupConfig, executor: Executor | None = None, memory: int = 1 << 28):
        corpus = Corpus(tmp_path_factory.mktemp("corpus"), partitions, dedup)
        corpus.find(executor, memory=memory)
        return corpus.result()

    return run


@pytest.fixture
def make_corpus(tmp_path_factory) -> Callable[..., Corpus]:
    return lambda partitions, dedup, inputs=(): Corpus(tmp_path_factory.mktemp("corpus"), partitions, dedup, inputs)


@pytest.fixture
def make_row() -> Callable[..., dict[str, Any]]:
    return row


@pytest.fixture
def write_sentences() -> Callable[..., list[str]]:
    """Sentences of made-up words: (seed, sentences, words to each)."""
    syllables = ["ba", "de", "ko", "li", "mu", "na", "po", "ri", "su", "ta", "ve", "wo"]

    def sentences(seed: int, count: int, words: int = 12) -> list[str]:
        pick = random.Random(f"sentences {seed}")
        word = lambda: "".join(pick.choices(syllables, k=pick.randint(2, 4)))  # noqa: E731
        return [" ".join(word() for _ in range(words)).capitalize() + "." for _ in range(count)]

    return sentences
