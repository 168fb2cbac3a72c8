"""`auto` among the precisions of training: found, decided, and refused by a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.runs import MODEL, STAGES
from training.config import PretrainConfig
from training.job import Job, JobError
from training.precision import decided, precisions, undecided
from training.pretrain import NextToken
from training.rl.config import RlConfig
from training.sft_config import SftConfig
from training.trainer import main

ALL = ["dtype", "optimizer.newton_schulz_dtype"]


@pytest.mark.parametrize("kind", [SftConfig, RlConfig])
def test_every_stage_leaves_its_precisions_open_and_takes_a_decision(kind) -> None:
    assert sorted(undecided(kind())) == ALL
    assert set(precisions(decided(kind(), "float32")).values()) == {"float32"}


def test_what_is_said_outright_is_not_touched() -> None:
    config = RlConfig(dtype="float32")
    found = decided(config, "bfloat16")
    assert precisions(found) == {"dtype": "float32", "optimizer.newton_schulz_dtype": "bfloat16"}
    assert decided(found, "float32") is found
    assert undecided(config) == ["optimizer.newton_schulz_dtype"]


def test_one_field_of_an_optimizer_leaves_the_others_as_the_stage_has_them() -> None:
    config = RlConfig.model_validate({"optimizer": {"newton_schulz_dtype": "float32"}})
    assert config.optimizer.weight_decay == RlConfig().optimizer.weight_decay == 0


@pytest.mark.parametrize("kind", [SftConfig, RlConfig])
def test_a_job_refuses_an_open_precision(kind, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"config.*dtype is 'auto'.*'bfloat16' or 'float32'"):
        Job({}, {}, tmp_path).configured(kind)
    with pytest.raises(JobError, match=r"optimizer.newton_schulz_dtype is 'auto'"):
        Job({"dtype": "float32"}, {}, tmp_path).configured(kind)
    whole = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}}
    assert Job(whole, {}, tmp_path).configured(kind).dtype == "float32"


def test_pretraining_refuses_it_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"config": {"model": MODEL, "stages": STAGES}, "inputs": {}, "work": str(tmp_path)}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert main(NextToken, "training.pretrain", ["--config", str(tmp_path / "job.json")]) == 1
    assert "JobError: config.optimizer.newton_schulz_dtype is 'auto'" in capsys.readouterr().err


def test_weights_in_bfloat16_want_products_in_bfloat16() -> None:
    values = {"model": MODEL, "stages": STAGES, "weights": "bfloat16"}
    with pytest.raises(ValueError, match="set dtype to bfloat16"):
        PretrainConfig.model_validate(values)
    assert PretrainConfig.model_validate(values | {"dtype": "bfloat16"}).weights == "bfloat16"
