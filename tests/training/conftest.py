"""Token shards to train on, and a run that nothing disturbed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.shards import folder_of
from tests.training.runs import END, VOCABULARY, job, written


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokens artifact of two domains: counting up and counting down, so that there is something to learn."""
    root = tmp_path_factory.mktemp("tokens")
    random = np.random.default_rng(0)
    made = {}
    for split, documents in (("train", 60), ("heldout", 8)):
        for domain, step in (("code", 1), ("web", -1)):
            tokens, rows = [], []
            for number in range(documents):
                length = int(random.integers(40, 90))
                text = 2 + (random.integers(VOCABULARY) + step * np.arange(length)) % (VOCABULARY - 2)
                rows.append({"id": f"{domain}{number}", "start": len(tokens), "end": len(tokens) + length + 1})
                tokens += [*text.tolist(), END]
            made[f"{split}/{domain}/made/0"] = (np.asarray(tokens), pa.Table.from_pylist(rows))
    return Path(folder_of(root, made, {"vocabulary": VOCABULARY, "end_of_document": END}))


@pytest.fixture(scope="session")
def undisturbed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run by the command of a launcher, as every other run is compared with it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    command = [
        sys.executable,
        "-m",
        "training.pretrain",
        "--config",
        str(written(job(shards, folder / "work"), folder)),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run(command, env=environment, check=True)
    return folder / "work"
