"""What the tests of rephrasing share: the real embeddings once, and a small corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import xxhash

from model.config import Config
from model.engines.embedding import MiniLM, Vector
from tasks.artifact import Artifact, Step
from tasks.rephrase.alignment.reading import Readers
from tests.tasks.rephrase.pairs import PARAPHRASES

CODE = "```\n" + "x = 1\n" * 60 + "```\n"


class Plain(Config):
    """The configuration of a corpus that nobody curated."""


@pytest.fixture(scope="session")
def embedder() -> MiniLM:
    return MiniLM()


class Remembering:
    """A network that reads a text once: the tests of the whole stage share their texts."""

    def __init__(self, embedder: Readers) -> None:
        self._embedder = embedder
        self._known: dict[str, Vector] = {}

    def vector(self, text: str) -> Vector:
        if text not in self._known:
            self._known[text] = self._embedder.vector(text)
        return self._known[text]

    def read(self, *texts: Any) -> Any:
        raise AssertionError("no preset of the tests names a model of fidelity")


@pytest.fixture(scope="session")
def once(embedder: MiniLM) -> Remembering:
    return Remembering(embedder)


def row(text: str, domain: str = "knowledge", language: str = "en") -> dict[str, str]:
    return {
        "id": xxhash.xxh3_128_hexdigest(text.encode()),
        "text": text,
        "source": "tests",
        "url": f"tests:{len(text)}",
        "domain": domain,
        "language": language,
        "licence": "CC0-1.0",
        "meta": '{"page": 1}',
    }


def sources() -> list[dict[str, str]]:
    """Six English documents of two paragraphs each, two of them mathematics, one Chinese and one of code alone."""
    texts = [source for source, _ in PARAPHRASES[:7]]
    rows = [row(f"{texts[one]}\n\n{texts[other]}") for one, other in ((0, 1), (1, 3), (6, 3), (6, 0))]
    rows += [row(f"{texts[4]}\n\n{texts[place]}", domain="math") for place in (0, 3)]
    rows.append(row(PARAPHRASES[7][0] * 3, language="zh"))
    rows.append(row(CODE, domain="code"))
    return rows


def write_corpus(root: Path, rows: list[dict[str, str]], parts: int = 2) -> Artifact:
    step = Step("corpus", Plain(), str(root))
    size = -(-len(rows) // parts) or 1
    for number in range(parts):
        frame = pl.DataFrame(rows[number * size : (number + 1) * size], schema=dict.fromkeys(row(""), pl.String))
        step.put(f"documents/{number}", ".parquet", frame.write_parquet, rows=frame.height)
    return step.publish({"documents": len(rows)})


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return write_corpus(tmp_path / "corpus", sources())
