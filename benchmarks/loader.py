"""Random windows a second: our loader against a bare copy of the same windows from a numpy memmap.

    python benchmarks/loader.py [--tokens ARTIFACT] [--length 4096] [--batch 64] [--seconds 3]

Without `--tokens`, 256 MiB of random tokens in eight shards are written to a temporary folder. Both sides read the
same number of windows at random places, single-threaded, from files in the page cache:
- copy: offsets drawn beforehand, each window of length + 1 copied into one uint32 array a batch;
- convert: the same, then inputs and targets as int64 (what a training step needs at least);
- loader: `Loader.batch`: the order computed by id, inputs and targets, domains;
- +documents: the same, then the document numbers of every position (for attention masks).
Rounds alternate, so that a busy machine hits all alike; the best round of each counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from tests.shards import folder_of  # noqa: E402 (the folder above is no package)
from training.loader import Loader  # noqa: E402
from training.shards import TOKEN, TokenShards  # noqa: E402

SHARDS, SHARD_TOKENS, DOCUMENT = 8, 8 << 20, 700


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", help="folder of a tokens artifact")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        uri = arguments.tokens or write(Path(folder))
        began = time.perf_counter()
        loader = Loader(uri, "train", None, 0, arguments.length)
        started = time.perf_counter() - began
        loader.store.verify()
        rates = measure(loader, arguments.batch, arguments.seconds)
    print(f"windows of {arguments.length} tokens, batches of {arguments.batch}; start-up {started * 1e3:.1f} ms")
    for name, rate in rates.items():
        print(f"{name:>10}: {rate:10,.0f} windows/s {rate * arguments.length / 1e6:8,.0f}M tokens/s")
    print(
        f"   ratio: {rates['loader'] / rates['copy']:.2f} of copy, {rates['loader'] / rates['convert']:.2f} of convert"
    )


def measure(loader: Loader, batch: int, seconds: float) -> dict[str, float]:
    """Windows a second of each side, the best of rounds that alternate for `seconds`."""
    length = loader.sequence_length
    maps = [
        np.memmap(shard.file.local, TOKEN, "r")
        for shards in TokenShards(loader.store.uri).shards("train").values()
        for shard in shards
        if shard.tokens > length
    ]
    generator = np.random.default_rng(0)

    def draw() -> list[tuple[np.memmap, int]]:
        chosen = generator.integers(len(maps), size=batch)
        return [(maps[number], int(generator.integers(len(maps[number]) - length))) for number in chosen]

    places = [draw() for _ in range(64)]

    def copy(turn: int) -> np.ndarray:
        read_BT = np.empty((batch, length + 1), np.uint32)
        for row, (tokens, start) in enumerate(places[turn % len(places)]):
            read_BT[row] = tokens[start : start + length + 1]
        return read_BT

    def convert(turn: int) -> tuple[np.ndarray, np.ndarray]:
        read_BT = copy(turn)
        return read_BT[:, :-1].astype(np.int64), read_BT[:, 1:].astype(np.int64)

    def ours(turn: int) -> object:
        return loader.batch(turn * batch, batch)

    def documents(turn: int) -> object:
        return loader.batch(turn * batch, batch).document_ids_BS

    sides: dict[str, Callable[[int], object]] = {
        "copy": copy,
        "convert": convert,
        "loader": ours,
        "+documents": documents,
    }
    best = dict.fromkeys(sides, 0.0)
    turn, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        for name, side in sides.items():
            began = time.perf_counter()
            for step in range(8):
                side(turn + step)
            best[name] = max(best[name], 8 * batch / (time.perf_counter() - began))
        turn += 8
    return best


def write(folder: Path) -> str:
    """A tokens artifact of random tokens; returns its folder."""
    generator, shards = np.random.default_rng(0), {}
    for number in range(SHARDS):
        tokens_T = generator.integers(1, 160_000, SHARD_TOKENS).astype(TOKEN)
        tokens_T[DOCUMENT - 1 :: DOCUMENT] = 0
        tokens_T[-1] = 0
        ends = (np.flatnonzero(tokens_T == 0) + 1).tolist()
        rows = {"start": [0, *ends[:-1]], "end": ends, "id": [f"{number}-{row}" for row in range(len(ends))]}
        shards[f"train/{'ab'[number % 2]}/made/{number}"] = (tokens_T, pa.table(rows))
    return folder_of(folder, shards, {"vocabulary": 160_000, "end_of_document": 0})


if __name__ == "__main__":
    main()
