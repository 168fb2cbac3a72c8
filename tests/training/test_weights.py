"""Weights in bfloat16 beside float32 masters: a run with them learns, and one that is stopped goes on bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from tests.training.runs import MODEL, STAGES, assert_same, job, leaves, lines, next_token, start, trainer_of, wait
from training.config import PretrainConfig
from training.trainer import DONE


class Lost(Exception):
    """The process is gone."""


def test_a_run_on_bfloat16_weights_learns_and_resumes(shards: Path, tmp_path: Path) -> None:
    whole, stopped = (job(shards, tmp_path / name, weights="bfloat16") for name in ("whole", "stopped"))
    assert trainer_of(whole).run() == DONE
    first = trainer_of(stopped)
    step = first.objective.step

    def until_lost(number: int) -> str:
        if number == 6:  # past the checkpoint of update 3
            raise Lost
        return step(number)

    first.objective.step = until_lost  # type: ignore[method-assign]
    with pytest.raises(Lost):
        first.run()
    assert trainer_of(stopped).run() == DONE
    assert_same(tmp_path / "stopped", tmp_path / "whole")
    losses = [line["loss"] for line in lines(tmp_path / "whole") if line["event"] == "update"]
    assert losses[-1] < losses[0] - 0.1
    kept = leaves(tmp_path / "whole")
    weights = {name: value for name, value in kept.items() if name.startswith("last/") and "bias" not in name}
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    masters = [name for name in kept if name.startswith("optimizer/master/") and kept[name].ndim >= 2]
    assert {kept[name].dtype for name in masters} == {torch.float32}
    for name in masters:  # optimizer/master/NAME/FIRST
        weight, first_row = weights[f"last/{name.split('/')[2]}"], int(name.split("/")[3])
        rounded = kept[name].bfloat16().view(-1, *weight.shape[1:]) if weight.ndim == 3 else kept[name].bfloat16()
        assert torch.equal(rounded.view(-1, weight.shape[-1]), weight[first_row:].reshape(-1, weight.shape[-1])), name


def test_two_ranks_with_half_of_the_experts_train_what_one_trains(shards: Path, tmp_path: Path) -> None:
    """To the rounding of bfloat16 sums, over ten updates."""
    run = {"micro_batch": 2}
    one = job(shards, tmp_path / "one", run=run, weights="bfloat16")
    two = job(shards, tmp_path / "two", run=run | {"layout": {"expert": 2}}, weights="bfloat16")
    assert trainer_of(one).run() == DONE
    assert wait(start(two, tmp_path, ranks=2), tmp_path) == [0, 0]
    losses = [[line["loss"] for line in lines(tmp_path / name) if line["event"] == "update"] for name in ("one", "two")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_gradients_of_bfloat16_weights_are_summed_in_float32(shards: Path, tmp_path: Path) -> None:
    trainer = trainer_of(job(shards, tmp_path / "work", weights="bfloat16"))
    objective = next_token(trainer)
    update = objective.plan.update(1)
    trainer.accumulate(objective.parts(objective.streams.read(update)[0], update.stage.batch))
    gradients = [parameter.grad for parameter in trainer.model.parameters()]
    assert {gradient.dtype for gradient in gradients if gradient is not None} == {torch.float32}
    assert None not in gradients


def test_bfloat16_weights_with_products_in_float32_are_refused() -> None:
    with pytest.raises(ValidationError, match="set dtype to bfloat16, or weights to float32"):
        PretrainConfig.model_validate({"model": MODEL, "stages": STAGES, "weights": "bfloat16", "dtype": "float32"})
