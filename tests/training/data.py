"""Token artifacts in which every token tells where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.shards import folder_of

END = 0
MIX = {"code": 0.25, "math": 0.3, "web": 0.45}
LENGTHS = {  # tokens of each document, by shard
    "train/code/made/0": [5, 1, 40, 7, 90, 3],
    "train/code/made/1": [2, 2, 30],
    "train/math/made/0": [200],
    "train/web/made/0": [17, 16, 16, 16, 16, 50],
    "train/web/made/1": [1, 1, 1],
    "heldout/web/made/0": [60],
}
SOURCES = {  # two sources of web, of several shards each
    **{f"train/web/wiki/{number}": [300 + number, 9, 500] for number in range(4)},
    **{f"train/web/Crawl of 2026/{number}": [700, 1, 12, 400 + number] for number in range(5)},
    **{f"train/code/repos/{number}": [11, 1500, 8] for number in range(3)},
}


def artifact(folder: Path, lengths: Mapping[str, Sequence[int]], first: int = 1) -> str:
    """A tokens artifact with documents of these lengths; tokens count upwards, so that every window is unique."""
    shards, token = {}, first
    for key, documents in lengths.items():
        ends = np.cumsum(documents).tolist()
        tokens_T = np.arange(token, token + ends[-1])
        token += ends[-1]
        tokens_T[np.asarray(ends) - 1] = END
        name = key.replace("/", "-")
        rows = {
            "start": [0, *ends[:-1]],
            "end": ends,
            "id": [f"{name}-{n}" for n in range(len(ends))],
            "source": [key] * len(ends),
        }
        shards[key] = (tokens_T, pa.table(rows))
    return folder_of(folder, shards, {"vocabulary": token, "end_of_document": END})


def shard_file(uri: str, key: str) -> Path:
    """Where the tokens of a shard lie in a local artifact, by its key."""
    return next(Path(uri).glob(f"parts/shards/{key}.*.bin"))


def flip(path: Path) -> None:
    """Alter one bit of a file."""
    data = bytearray(path.read_bytes())
    data[77] ^= 1
    path.write_bytes(data)
