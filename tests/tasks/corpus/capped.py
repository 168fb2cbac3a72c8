"""Curates a corpus of many times the memory that it may take: `python -m tests.tasks.corpus.capped FOLDER MB TIMES`.

Everything is warmed up on a small corpus first (imports, compiled kernels, tables). Then the process may take MB more
(RLIMIT_DATA: heap and anonymous mappings, files apart) and curates TIMES as much text, through to publication. Prints
JSON: what it curated, the cap, and whether one more cap's worth of memory was refused in the end.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.artifact import Artifact, Step
from tasks.corpus import records
from tasks.corpus.acquire import acquire
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.curation import curate
from tasks.corpus.dedup import partitions

COMMON = ["the", "of", "and", "to", "that", "with", "in", "is", "have", "be"]
WORDS = [*COMMON, *(f"{a}{b}{c}" for a in "bdfglmnprst" for b in ("a", "e", "ing", "o", "or") for c in "dklmnrst")]
"""The common ones first. A list: numpy would copy every word that it draws."""
FILE_BYTES = 1_000_000


def write(folder: Path, size: int, seed: int) -> None:
    """JSONL files of `size` bytes of text in all; of every 50 documents one is an exact and one a near copy."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    total = number = 0
    while total < size:
        with (folder / f"{number:04}.jsonl").open("w") as file:
            while file.tell() < min(FILE_BYTES, size - total):
                batch = [text(random) for _ in range(48)]
                for one in [*batch, batch[0], f"{batch[1]}\n\nThe end of that is the end."]:
                    file.write(json.dumps({"text": one}) + "\n")
            total += file.tell()
        number += 1


def text(random: np.random.Generator) -> str:
    common = random.random((20, 40)) < 0.4
    words = np.where(
        common, random.integers(0, len(COMMON), (20, 40)), random.integers(len(COMMON), len(WORDS), (20, 40))
    )
    return "\n\n".join(" ".join([WORDS[word] for word in line]).capitalize() + "." for line in words.tolist())


def run(root: Path, folder: Path, memory_bytes: int) -> Artifact:
    source = {"name": "web", "kind": "folder", "path": str(folder), "domain": "web", "language": "en", "licence": "MIT"}
    config = SourcesConfig(sources=[source], shard_bytes=FILE_BYTES, record_bytes_max=1_000_000)
    sources = Step("sources", config, str(root), leaf=True)
    return curate(
        Step("corpus", CorpusConfig(), str(root), (sources,)),
        acquire(sources, root),
        memory_bytes=memory_bytes,
    )


def data_bytes() -> int:
    """What RLIMIT_DATA counts of this process."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmData:")[2].split()[0])


def main(root: Path, megabytes: int, times: int) -> None:
    cap = megabytes << 20
    # Batches that suit a cap so small: one of the usual size takes some 50 MB in the kernels.
    partitions.MEMORY_MIN, records.BATCH_CHARS = 1 << 20, 1 << 17
    write(root / "small", 3_000_000, seed=1)
    run(root / "warm", root / "small", cap // 4)
    write(root / "large", cap * times, seed=2)
    before = data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (before + cap, before + cap))
    began = time.process_time()
    corpus = run(root / "data", root / "large", cap // 4)
    seconds = time.process_time() - began
    try:
        refused = not np.ones(2 * cap, np.uint8).all()
    except MemoryError:
        refused = True
    print(  # noqa: T201
        json.dumps({
            "before": before, "cap": cap, "refused": refused, "cpu_seconds": round(seconds, 1),
            "peak_rss": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "pool": pa.default_memory_pool().backend_name, "cost": corpus.manifest["cost"],
            **{name: corpus.statistics[name] for name in ("documents", "bytes", "read", "rejected_by_reason")},
        })
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
