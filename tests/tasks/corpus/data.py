"""Texts that curation keeps, the rows that it made of them, and runs that are stopped on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.artifact import Artifact, Step
from tasks.corpus.wordlist import words

WORDS = sorted(
    words("river harbour market valley forest temple garden engine bridge the of and that have with near under")
)


def sentences(seed: int, count: int = 25) -> str:
    """A document of `count` paragraphs like no other seed's."""
    pick = random.Random(seed)
    return "\n\n".join(" ".join(pick.choices(WORDS, k=14)).capitalize() + "." for _ in range(count))


def rows(artifact: Artifact, group: str) -> list[dict]:
    """Every row of the tables of a group."""
    return pa.concat_tables([pq.read_table(path) for path in artifact.files(group)]).to_pylist()


@contextmanager
def stopped_at(part: str) -> Iterator[None]:
    """What runs within is stopped, as Ctrl-C would, where it comes to the first part whose key begins so."""
    put = Step.put

    def stop(self, key, *arguments, **options):
        if key.startswith(part):
            raise KeyboardInterrupt
        return put(self, key, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "put", stop)
        with pytest.raises(KeyboardInterrupt):
            yield
