"""Altered shards end a run, or are skipped by all ranks and recorded."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.shards import folder_of
from tests.training.data import flip, shard_file
from tests.training.runs import (
    END,
    STAGES,
    VOCABULARY,
    job,
    lines,
    start,
    trainer_of,
    wait,
)
from training import checkpoint
from training.cache import ShardError


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokens artifact with sixteen shards of one source to train on, one of them altered."""
    random = np.random.default_rng(0)
    made = {}
    for key in ("heldout/web/made/0", *(f"train/web/made/{number:02}" for number in range(16))):
        tokens = random.integers(2, VOCABULARY, 400)
        tokens[-1] = END
        made[key] = (tokens, pa.table({"start": [0], "end": [400], "id": [key]}))
    root = folder_of(tmp_path_factory.mktemp("many"), made, {"vocabulary": VOCABULARY, "end_of_document": END})
    flip(shard_file(root, "train/web/made/07"))
    return Path(root)


SKIP = {"bad_shards": "skip", "most_skipped": 0.1}
SHORT = [{**STAGES[0], "updates": 8, "samples": "windows"}]


def test_a_bad_shard_ends_a_run_unless_it_may_be_skipped(many: Path, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"07\.\w+\.bin was altered"):
        trainer_of(job(many, tmp_path / "error", stages=SHORT)).run()
    with pytest.raises(ShardError, match=r"6\.2% of the samples lie in skipped shards .*made/07"):
        trainer_of(job(many, tmp_path / "few", stages=SHORT, run={**SKIP, "most_skipped": 0.05})).run()


def test_every_rank_skips_the_same_shard_from_the_same_sample_on_and_so_does_a_resumed_run(
    many: Path, tmp_path: Path
) -> None:
    """One rank, two ranks, and one that was ended after the skip: the same record and the same samples."""
    exact = {
        "dtype": "float32",
        "optimizer": {"newton_schulz_dtype": "float32"},
        "stages": SHORT,
        "evaluate_every": 1,
    }
    one, two = tmp_path / "one", tmp_path / "two"
    assert trainer_of(job(many, one, **exact, run=SKIP)).run() == 0
    (skip,) = [line for line in lines(one) if line["event"] == "skip"]
    assert skip["shard"] == "train/web/made/07"
    assert skip["first_sample"] == 8 * (skip["step"] - 1)
    assert json.loads((one / "summary.json").read_text())["skipped"] == [{skip["shard"]: skip["first_sample"]}]
    state = checkpoint.load_state(checkpoint.checkpoints(one / "checkpoints")[-1])
    assert state["skipped"] == [{skip["shard"]: skip["first_sample"]}]
    assert wait(start(job(many, two, **exact, run=SKIP), tmp_path, ranks=2), tmp_path) == [0, 0]
    assert [line for line in lines(two) if line["event"] == "skip"] == [skip]
    for mine, other in zip(lines(one), lines(two), strict=True):
        assert mine.get("loss", 0.0) == pytest.approx(other.get("loss", 0.0), rel=1e-4)
    shutil.rmtree(one / "final")
    for directory in checkpoint.checkpoints(one / "checkpoints"):
        if checkpoint.load_state(directory)["update"] > 6:
            shutil.rmtree(directory)
    before, summary = lines(one), json.loads((one / "summary.json").read_text())
    for lost in ("checkpoints", "summary.json"):  # killed before `final/` was written, and before the summary
        assert trainer_of(job(many, one, **exact, run=SKIP)).run() == 0
        assert lines(one) == before
        again = json.loads((one / "summary.json").read_text())
        assert (again["skipped"], again["epochs"]) == (summary["skipped"], summary["epochs"]), lost
        (one / "summary.json").unlink()


def test_bad_heldout_shards_are_skipped_by_every_rank_and_by_a_resumed_run(tmp_path: Path) -> None:
    """One of three shards of web and the only one of code: the second rank alone would meet some."""
    random, made = np.random.default_rng(0), {}
    for key in ("heldout/code/made/0", *(f"heldout/web/made/{n}" for n in range(3)), "train/web/made/0"):
        tokens = random.integers(2, VOCABULARY, 400)
        tokens[-1] = END
        made[key] = (tokens, pa.table({"start": [0], "end": [400], "id": [key]}))
    root = Path(folder_of(tmp_path / "many", made, {"vocabulary": VOCABULARY, "end_of_document": END}))
    bad = ["heldout/code/made/0", "heldout/web/made/1"]
    for key in bad:
        flip(shard_file(str(root), key))
    exact: dict[str, Any] = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}, "evaluate_every": 2}
    exact |= {"stages": [{**STAGES[0], "updates": 4}], "evaluation_samples": 12}
    with pytest.raises(ShardError, match="was altered"):
        trainer_of(job(root, tmp_path / "error", **exact)).run()
    one, two = tmp_path / "one", tmp_path / "two"
    run = {"bad_shards": "skip", "checkpoint_every": 2}
    assert trainer_of(job(root, one, **exact, run=run)).run() == 0
    skips = [line for line in lines(one) if line["event"] == "skip"]
    assert [(line["step"], line["shard"]) for line in skips] == [(2, key) for key in bad]
    assert json.loads((one / "summary.json").read_text())["heldout_skipped"] == bad
    assert [list(line["losses"]) for line in lines(one) if line["event"] == "evaluation"] == [["web"]] * 2
    assert wait(start(job(root, two, **exact, run=run), tmp_path, ranks=2), tmp_path) == [0, 0]
    assert [line for line in lines(two) if line["event"] == "skip"] == skips
    before = lines(one)
    shutil.rmtree(one / "final")
    shutil.rmtree(checkpoint.checkpoints(one / "checkpoints")[-1])
    assert trainer_of(job(root, one, **exact, run=run)).run() == 0
    assert lines(one) == before
