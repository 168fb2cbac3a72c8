"""Token shards to train on, and a run that nothing disturbed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.shards import folder_of
from tests.training.runs import END, VOCABULARY, job, start, wait


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
    """A whole run in a process of its own, as every other run is compared with it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert wait(start(job(shards, folder / "work"), folder), folder) == [0]
    return folder / "work"
