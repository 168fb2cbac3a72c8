"""Tokenise and shard beside datatrove, and compression beside a public tokenizer.

    python -m benchmarks.tokens write --corpus ARTIFACT --datatrove PYTHON [--vocabulary 65536] [--rounds 3]
    python -m benchmarks.tokens compression --corpus ARTIFACT --tiktoken PYTHON --ranks o200k_base.json

ARTIFACT is the folder of a published corpus (`openk2 run corpus` makes one under data/corpus/). PYTHON is an
interpreter of its own environment that has `datatrove[processing,io]` or `tiktoken`; npm's package `tiktoken` has
o200k_base.json in its folder `encoders`.

- write: the corpus' Parquet files to uint32 shards with a document index, by one tokenizer.json that is trained here.
  Both sides run in processes of their own, in turns; CPU-seconds are those of the whole process tree, start and
  imports included, and those of the work alone. datatrove's does not shuffle. Every document's tokens are compared.
- compression: bytes per token by domain, of tokenizers of several sizes that learned from nine tenths of the corpus, on
  documents outside of that.

Run it once to compile the kernels before what counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from benchmarks.common import PEERS, cpu, in_turns, module, ratio, told
from model.config import Config
from tasks.artifact import Artifact, Step
from tasks.corpus.executor import Processes
from tasks.tokens import shards, tokenizer
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tasks.tokens.encoder import Encoder
from training.draw import draw
from training.shards import TokenShards

SIZES = (8_192, 32_768, 65_536, 163_840)


class Nothing(Config):
    """No literals."""


def learn(corpus: Artifact, vocabulary: int, folder: Path) -> Artifact:
    """A tokenizer of nine tenths of the corpus, every domain by its size."""
    size = sum(counts["bytes"] for counts in corpus.statistics["by_domain"].values())
    config = TokenizerConfig(vocabulary=vocabulary, sample_bytes=int(0.9 * size))
    return tokenizer.build(Step("tokenizer", config, str(folder)), corpus)


# --------------------------------------------------------------------------------------------------------------- write


def ours(corpus: str, learned: str, folder: Path, workers: int) -> None:
    """Our side, in a process of its own: shards under `folder`, a line of JSON on standard output."""
    began = cpu()
    nothing = Step("rewrites", Nothing(), str(folder)).publish({})
    step = Step("tokens", TokensConfig(heldout_fraction=0.0, batch_bytes=8 << 20), str(folder))
    made = shards.build(step, Artifact.load(corpus), nothing, Artifact.load(learned), executor=Processes(workers))
    print(json.dumps({"cpu": cpu() - began, "tokens": made.statistics["tokens"], "uri": made.uri}))


def our_documents(uri: str) -> Iterator[np.ndarray]:
    for shard in TokenShards(uri):
        yield from np.split(shard.tokens_T, shard.ends()[:-1])


def their_documents(folder: Path) -> Iterator[np.ndarray]:
    for path in sorted(folder.glob("*.ds")):
        ends = np.fromfile(f"{path}.index", "<u8")
        kind = "<u4" if path.stat().st_size == 4 * ends[-1] else "<u2"
        yield from np.split(np.fromfile(path, kind), ends[:-1].astype(np.int64))


def digests(documents: Iterator[np.ndarray]) -> Counter[str]:
    return Counter(xxhash.xxh3_128_hexdigest(tokens.astype("<u4").tobytes()) for tokens in documents)


def run(command: list[str]) -> dict[str, Any]:
    """What a side says of itself, and `tree`: CPU-seconds of all its processes."""
    began = cpu()
    found = told(command, {"TOKENIZERS_PARALLELISM": "false", "LOGURU_LEVEL": "ERROR"})
    return found | {"tree": cpu() - began}


def write(corpus: Artifact, datatrove: str, vocabulary: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        learned = learn(corpus, vocabulary, Path(root))
        files = sorted(str(path) for path in corpus.files("documents"))

        def ours(workers: int) -> dict[str, Any]:
            folder = tempfile.mkdtemp(dir=root)
            given = ["--corpus", corpus.uri, "--learned", learned.uri, "--folder", folder, "--workers", str(workers)]
            return run(module("tokens", "ours", *given))

        def peer() -> dict[str, Any]:
            folder, text = tempfile.mkdtemp(dir=root), str(learned.file("tokenizer"))
            return run([datatrove, str(PEERS / "datatrove_tokens.py"), text, folder, *files]) | {"uri": folder}

        sides = {"openk2": lambda: ours(1), "openk2, 2 workers": lambda: ours(2), "datatrove": peer}
        found = in_turns(sides, rounds)
        same = digests(our_documents(found["openk2"][0]["uri"])) == digests(
            their_documents(Path(found["datatrove"][0]["uri"]))
        )
    size = sum(counts["bytes"] for counts in corpus.statistics["by_domain"].values())
    print(f"{size / 1e6:.1f} MB of text, {vocabulary:,} entries, {rounds} rounds; the same tokens: {same}")
    for what, kind in (("tree", "whole tree"), ("cpu", "work alone")):
        rates = {name: [turn["tokens"] / turn[what] for turn in turns] for name, turns in found.items()}
        for name, own in rates.items():
            times = ratio(own, rates["datatrove"])
            print(f"{name:>18}, {kind}: {median(own) / 1e6:7.3f}M tokens per CPU-second, {times:6.2f} of datatrove")


# --------------------------------------------------------------------------------------------------------- compression


def outside(corpus: Artifact) -> dict[str, list[str]]:
    """By domain, and for Chinese by itself, the documents that no sample of nine tenths has."""
    found: dict[str, list[str]] = {}
    for path in corpus.files("documents"):
        for row in pq.read_table(path, columns=["id", "domain", "language", "text"]).to_pylist():
            if draw("tokenizer", 0, row["id"]) >= 0.9:
                found.setdefault(row["domain"], []).append(row["text"])
                if row["language"] == "zh":
                    found.setdefault("Chinese", []).append(row["text"])
    return dict(sorted(found.items()))


def compression(corpus: Artifact, tiktoken: str, ranks: str) -> None:
    texts = outside(corpus)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for size in SIZES:
            encoder = Encoder(tokenizer.load(learn(corpus, size, root).file("tokenizer")))
            rows[f"{size:,} entries"] = {
                domain: sum(len(text.encode()) for text in some) / len(encoder.encode(pa.array(some))[0])
                for domain, some in texts.items()
            }
        path = root / "texts.json"
        path.write_text(json.dumps(texts))
        rows[Path(ranks).stem] = told([tiktoken, str(PEERS / "tiktoken_peer.py"), ranks, str(path)])["bytes_per_token"]
    print("| bytes per token | " + " | ".join(texts) + " |\n|---|" + "---:|" * len(texts))
    for name, values in rows.items():
        print(f"| {name} | " + " | ".join(f"{values[domain]:.2f}" for domain in texts) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compression", "ours"))
    parser.add_argument("--corpus", required=True, help="folder of a corpus artifact")
    parser.add_argument("--datatrove", default=sys.executable, help="interpreter that has datatrove")
    parser.add_argument("--tiktoken", default=sys.executable, help="interpreter that has tiktoken")
    parser.add_argument("--ranks", help="o200k_base.json of npm's tiktoken")
    parser.add_argument("--vocabulary", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learned", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "compression" and not given.ranks:
        parser.error("compression wants --ranks")
    if given.what == "ours":
        ours(given.corpus, given.learned, given.folder, given.workers)
    elif given.what == "write":
        write(Artifact.load(given.corpus), given.datatrove, given.vocabulary, given.rounds)
    else:
        compression(Artifact.load(given.corpus), given.tiktoken, given.ranks)


if __name__ == "__main__":
    main()
