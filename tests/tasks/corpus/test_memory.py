"""A corpus of twenty times the memory that a worker may take passes, duplicates found over all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[3]
# One thread and one heap, so that what the limit counts is what the work holds and not stacks and arenas.
PLAIN = {
    "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1",
}  # fmt: skip


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux only")
def test_a_corpus_of_twenty_times_the_memory_limit_passes_under_it(tmp_path):
    megabytes, times = 12, 20
    told = subprocess.run(
        [sys.executable, "-m", "tests.tasks.corpus.capped", str(tmp_path / "root"), str(megabytes), str(times)],
        cwd=HOUSE,
        env={**os.environ, **PLAIN},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr[-3000:]
    result = json.loads(told.stdout.splitlines()[-1])
    assert result["cap"] == megabytes << 20
    assert result["refused"], "the limit was not in force"
    assert result["bytes"] > 0.9 * times * result["cap"]
    assert result["read"] == result["documents"] + sum(result["rejected_by_reason"].values())
    # Two of every 50 documents are copies of another.
    assert result["rejected_by_reason"]["exact_duplicate"] == result["read"] // 50
    assert result["rejected_by_reason"]["near_duplicate"] == result["read"] // 50
