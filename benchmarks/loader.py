"""The loader beside a bare numpy memmap and mosaicml-streaming: windows a second, start-up, resume, remote reads.

    python -m benchmarks.loader [--only read,scale,remote,resume] [--peers PYTHON] [--length 4096] [--batch 64]
                                [--rounds 7] [--seconds 1]

PYTHON is an interpreter of another environment that has mosaicml-streaming:

    uv venv peers && uv pip install --python peers/bin/python --no-deps mosaicml-streaming
    uv pip install --python peers/bin/python "torch==2.13.0" "numpy<2.2" "transformers<5" brotli catalogue pillow \\
        python-snappy xxhash zstd boto3

- read: 256 MiB of random tokens in eight shards of the page cache, one thread. `copy` copies random windows of
  length + 1 out of memmaps into one array a batch; `convert` also makes int64 inputs and targets of it; `loader` is
  `Loader.batch` with all that it computes; `documents` adds the document number of every position; `best_fit` reads
  packed rows; `mosaicml` iterates a shuffled StreamingDataset over the same tokens (a process of its own each round)
  and stacks batches as int64. Rounds take turns; medians.
- scale: a table of 57,742 shards of 1 GiB (3.78e9 windows) of which no file exists: CPU seconds and memory of a fresh
  process until the places of sample 0 and of sample 3e9 are known.
- resume: seconds to the next sample of a dataset of many small samples, ours and mosaicml's, as it grows.
- remote: bytes fetched for a byte read from a remote filesystem, whole shards against ranges, by the size of the cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.common import PEERS, in_turns, module, ratio, told
from benchmarks.random_tokens import random_tokens
from training.cache import Cache
from training.loader import Loader
from training.ranges import Ranges
from training.shards import TABLE, TOKEN

PEER = str(PEERS / "streaming_peer.py")
SHARDS, SHARD_TOKENS = 8, 8 << 20
MANY, MANY_TOKENS = 57_742, 1 << 28


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="read,scale,remote,resume")
    parser.add_argument("--peers", help="an interpreter that has mosaicml-streaming")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--start", nargs=2, metavar=("URI", "LENGTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start:
        uri, length = arguments.start
        print(json.dumps(start(uri, int(length))))
        return
    for name in arguments.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            {"read": read, "scale": scale, "resume": resume, "remote": remote}[name](Path(folder), arguments)


# ----------------------------------------------------------------------------------------------------------------- read


def read(folder: Path, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    cache = Cache(folder / "cache")
    uri = write(folder, SHARDS, SHARD_TOKENS)
    loader = Loader(uri, "train", None, 0, arguments.length, cache=cache)
    packed = Loader(uri, "train", None, 0, arguments.length, "best_fit", cache)
    loader.store.verify()
    turns = sides(loader, packed, arguments.batch)
    timed: dict[str, Callable[[], dict[str, float]]] = {
        name: partial(rate, side, arguments.batch, arguments.seconds) for name, side in turns.items()
    }
    if arguments.peers:
        tokens, mds = folder / "tokens.bin", str(folder / "mds")
        with tokens.open("wb") as file:
            for shard in loader.store:
                file.write(shard.tokens_T.tobytes())
        told([arguments.peers, PEER, "write", str(tokens), str(arguments.length), mds])
        reading = [arguments.peers, PEER, "read", mds, str(arguments.batch), str(arguments.seconds)]
        timed["mosaicml"] = partial(told, reading)
    found = in_turns(timed, arguments.rounds)
    print(f"windows of {arguments.length} tokens, batches of {arguments.batch}, medians of {arguments.rounds} rounds")
    wall, cpu = (
        {name: [one[what] for one in rounds] for name, rounds in found.items()}
        for what in ("per_second", "per_cpu_second")
    )
    for name in found:
        print(
            f"{name:>10}: {median(wall[name]):10,.0f} a second, {median(cpu[name]):10,.0f} a CPU-second; "
            f"loader is {ratio(cpu['loader'], cpu[name]):6.2f} of it"
        )
    print(f"  padding of packed rows: {packed.waste()}")


def sides(loader: Loader, packed: Loader, batch: int) -> dict[str, Callable[[int], object]]:
    """What is measured, each a function of the number of the batch."""
    length = loader.sequence_length
    maps = [np.memmap(shard.file.local, TOKEN, "r") for shard in loader.store]
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

    return {
        "copy": copy,
        "convert": convert,
        "loader": lambda turn: loader.batch(turn * batch, batch),
        "documents": lambda turn: loader.batch(turn * batch, batch).document_ids_BS,
        "best_fit": lambda turn: packed.batch(turn * batch, batch),
    }


def rate(side: Callable[[int], object], batch: int, seconds: float) -> dict[str, float]:
    """Windows a second and a CPU-second."""
    for turn in range(4):
        side(turn)
    began, cpu, turn = time.perf_counter(), time.process_time(), 4
    while time.perf_counter() - began < seconds:
        side(turn)
        turn += 1
    count = (turn - 4) * batch
    return {
        "per_second": count / (time.perf_counter() - began),
        "per_cpu_second": count / (time.process_time() - cpu),
    }


def write(folder: Path, shards: int, tokens: int) -> str:
    """A tokens artifact of random tokens in two domains; returns its folder."""
    sizes = {f"train/{'ab'[number % 2]}/made/{number:04}": tokens for number in range(shards)}
    return random_tokens(folder, sizes, vocabulary=160_000, end=0)


# ---------------------------------------------------------------------------------------------------------------- scale


def scale(folder: Path, arguments: argparse.Namespace) -> None:
    uri = listed(folder, MANY, MANY_TOKENS)
    results = [told(module("loader", "--start", uri, str(arguments.length))) for _ in range(arguments.rounds)]
    print(f"{MANY:,} shards, {results[0]['windows']:,.0f} windows of {arguments.length}; fresh processes, medians")
    for name in results[0]:
        print(f"  {name}: {median(result[name] for result in results):,.4g}")


def listed(folder: Path, shards: int, tokens: int) -> str:
    """A tokens artifact with a table and no shards."""
    rows: dict[str, list[Any]] = {name: [] for name in TABLE}
    for number in range(shards):
        domain = ("code", "knowledge", "math", "web")[number * 4 // shards]
        source = f"source-{number * 40 // shards:02}"
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        values = [f"train/{domain}/{source}/{number:06}", "train", domain, source, tokens, 400_000, 4 * tokens]
        for name, value in zip(TABLE, [*values, digest, 1 << 24, digest[::-1], digest[::-1]], strict=True):
            rows[name].append(value)
    path = folder / "shards.parquet"
    schema = pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=False) for name, kind in TABLE.items()])
    pq.write_table(pa.table(rows, schema), path, compression="zstd")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    part = {"key": "shards", "path": path.name, "sha256": digest, "bytes": path.stat().st_size}
    statistics = {"vocabulary": 163_840, "end_of_document": 163_585}
    record = {"name": "tokens", "fingerprint": "0", "content": "0", "parts": [part], "statistics": statistics}
    (folder / "manifest.json").write_text(json.dumps(record))
    return str(folder)


def start(uri: str, length: int) -> dict[str, float]:
    """Start-up of a process, from its imports on."""
    imported, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loader = Loader(uri, "train", None, 0, length)
    loader.order.locate(np.arange(64))
    started, more = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loader.order.locate(np.arange(3_000_000_000, 3_000_000_064))
    resumed = time.process_time()
    _ = loader.store.content
    return {
        "windows": float(loader.order.windows_D.sum()),
        "imports, CPU seconds": imported,
        "loader and first samples, CPU seconds": started - imported,
        "64 samples at 3e9, CPU seconds": resumed - started,
        "hash of the content, CPU seconds": time.process_time() - resumed,
        "memory of the imports, MB": memory,
        "memory of the loader, MB": more - memory,
    }


# --------------------------------------------------------------------------------------------------------------- resume


def resume(folder: Path, arguments: argparse.Namespace) -> None:
    for tokens in (1 << 17, 1 << 20):
        here = folder / str(tokens)
        loader_uri = write(here, 1, 2 * tokens)
        at = int(0.9 * tokens)
        ours = []
        for _ in range(arguments.rounds):
            began = time.process_time()
            Loader(loader_uri, "train", None, 0, 2).batch(at, 1)
            ours.append(time.process_time() - began)
        line = f"{tokens:>10,} samples: ours {median(ours) * 1e3:8.1f} ms of CPU"
        if arguments.peers:
            (shard,) = list(Loader(loader_uri, "train", None, 0, 2).store)
            found = told([arguments.peers, PEER, "write", str(shard.file.local), "2", str(here / "mds")])
            assert abs(found["windows"] - tokens) < 2
            theirs = told([arguments.peers, PEER, "resume", str(here / "mds"), str(at)])
            line += f", mosaicml {theirs['cpu_seconds'] * 1e3:8.1f} ms, {theirs['megabytes']:.0f} MB"
        print(line)


# --------------------------------------------------------------------------------------------------------------- remote


def remote(folder: Path, arguments: argparse.Namespace) -> None:
    uri = write(folder, 64, 1 << 18)
    fsspec.filesystem("memory").put(f"{uri}/", "memory://bench/", recursive=True)
    total, count = 64 * (1 << 20), 1000
    print(f"{count} windows of {arguments.length}, 64 shards of 1 MiB; bytes fetched for a byte used")
    for part in (0.1, 0.5, 1.1):
        used = count * (arguments.length + 1) * 4
        fetched = []
        for ranged in (False, True):
            cache = Cache(folder / f"cache-{part}-{ranged}", int(part * total))
            loader = Loader("memory://bench", "train", None, 0, arguments.length, cache=cache)
            ranges = Ranges(cache) if ranged else None
            for stream in loader._streams:
                stream.ranges = ranges
            began = time.process_time()
            for first in range(0, count, 50):
                loader.batch(first, 50)
            seconds = time.process_time() - began
            fetched.append((cache.fetched_bytes + (ranges.fetched_bytes if ranges else 0), seconds))
        whole, parts = fetched
        print(
            f"  cache of {part:.0%} of the data: whole shards {whole[0] / used:7.2f} ({whole[1]:.2f} CPU-s), "
            f"ranges {parts[0] / used:5.2f} ({parts[1]:.2f} CPU-s)"
        )


if __name__ == "__main__":
    main()
