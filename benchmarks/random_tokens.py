"""Tokens artifacts of random tokens, as large as a benchmark wants them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.shards import folder_of

DOCUMENT = 700
"""Tokens of a document."""


def random_tokens(folder: Path, sizes: Mapping[str, int], vocabulary: int, end: int) -> str:
    """An artifact of so many tokens in each shard, named by its key; `end` ends a document, and the ids above it are
    drawn. Returns its folder."""
    generator, made = np.random.default_rng(0), {}
    for key, count in sizes.items():
        tokens_T = generator.integers(end + 1, vocabulary, count)
        tokens_T[DOCUMENT - 1 :: DOCUMENT] = end
        tokens_T[-1] = end
        ends = np.flatnonzero(tokens_T == end) + 1
        rows = {"start": np.concatenate([[0], ends[:-1]]), "end": ends, "id": [str(at) for at in range(len(ends))]}
        made[key] = (tokens_T, pa.table(rows))
    return folder_of(folder, made, {"vocabulary": vocabulary, "end_of_document": end})
