"""mosaicml-streaming on the benchmark's tokens; benchmarks/loader.py runs it with the interpreter of an environment
of its own.

    PYTHON streaming_peer.py write TOKENS.bin LENGTH FOLDER    # windows of LENGTH + 1 tokens as MDS, uint32
    PYTHON streaming_peer.py read FOLDER BATCH SECONDS         # shuffled windows a second
    PYTHON streaming_peer.py resume FOLDER SAMPLE              # seconds to the first sample after SAMPLE

Prints one JSON line.
"""

from __future__ import annotations

import importlib.machinery
import json
import resource
import sys
import time
import types

import numpy as np

# Its vision datasets are imported with the rest and want torchvision, which text has no use for.
for name, attribute in (
    ("torchvision", ""),
    ("torchvision.datasets", "VisionDataset"),
    ("torchvision.transforms", ""),
    ("torchvision.transforms.functional", "to_tensor"),
):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    if attribute:
        setattr(module, attribute, object)
    sys.modules[name] = module

from streaming import MDSWriter, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


def write(tokens: str, length: int, folder: str) -> dict[str, float]:
    tokens_T = np.memmap(tokens, "<u4", "r")
    with MDSWriter(out=folder, columns={"tokens": f"ndarray:uint32:{length + 1}"}, size_limit=1 << 26) as out:
        for start in range(0, len(tokens_T) - length, length):
            out.write({"tokens": np.asarray(tokens_T[start : start + length + 1])})
    return {"windows": (len(tokens_T) - 1) // length}


def read(folder: str, batch: int, seconds: float) -> dict[str, float]:
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=batch, shuffle_seed=0)
    iterator = iter(dataset)
    rows: list[np.ndarray] = []
    count, batches = 0, 0
    for _ in range(4 * batch):
        next(iterator)
    began, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        try:
            rows.append(next(iterator)["tokens"])
        except StopIteration:
            iterator = iter(dataset)
            continue
        if len(rows) == batch:
            np.stack(rows).astype(np.int64)
            rows, count, batches = [], count + batch, batches + 1
    return {
        "per_second": count / (time.perf_counter() - began),
        "per_cpu_second": count / (time.process_time() - cpu),
    }


def resume(folder: str, sample: int) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    dataset = StreamingDataset(local=folder, shuffle=True, batch_size=64, shuffle_seed=0)
    size = len(dataset)
    dataset.load_state_dict(
        {
            "epoch": sample // size,
            "sample_in_epoch": sample % size,
            "num_canonical_nodes": 1,
            "shuffle_seed": 0,
            "initial_physical_nodes": 1,
        }
    )
    next(iter(dataset))
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    clean_stale_shared_memory()
    what, *given = sys.argv[1:]
    if what == "write":
        found = write(given[0], int(given[1]), given[2])
    elif what == "read":
        found = read(given[0], int(given[1]), float(given[2]))
    else:
        found = resume(given[0], int(given[1]))
    print(json.dumps(found))
