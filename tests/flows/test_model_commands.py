"""`openk2 model`: recipes, sizes and checkpoints in numbers, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.model_commands import network
from flows.options import RequestError
from flows.preset import PresetError
from flows.request import PresetName
from model.describe import Description
from model.sizes import MODEL_PRESETS, model_preset


def told(*words: str) -> str:
    done = CliRunner().invoke(network, words, env={"COLUMNS": "80"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_k2_is_told_beside_its_report():
    page = told("describe", "--preset", "k2")
    for words in (
        *("1,026,408,232,448", "32,861,477,888", "1.04T", "32.6B", "23,040", "1,026,408,209,408"),
        *("1,014,686,023,680", "21,139,292,160", "70,272 bytes", "2,498,560 bytes", "35.6"),
    ):
        assert words in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("name", dict.fromkeys([*PresetName, *MODEL_PRESETS]))
def test_every_recipe_and_every_size_can_be_described(name):
    description = Description.model_validate_json(told("describe", "--preset", name, "--json"))
    assert description.name == name
    assert description.total == sum(part.parameters for part in description.components)
    if name in ("3b", "tiny"):  # no recipe has this name: the size is meant
        assert description.config == MODEL_PRESETS[name]


def test_a_changed_recipe_and_a_preset_of_ones_own(tmp_path: Path):
    few = json.loads(told("describe", "--set", "pretrain.model.n_routed_experts=4", "--json"))
    assert few["config"]["n_routed_experts"] == 4
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: laptop\npretrain: {model: {kv_lora_rank: 48}}\n")
    assert json.loads(told("describe", "--preset-file", str(mine), "--json"))["config"]["kv_lora_rank"] == 48


def test_a_checkpoint_is_described_by_its_config_alone(tmp_path: Path):
    config = model_preset("tiny").with_yarn(4)
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    assert Description.model_validate_json(told("describe", "--checkpoint", str(tmp_path), "--json")).config == config


def test_every_size_is_listed_in_80_columns():
    page = told("sizes")
    assert max(map(len, page.splitlines())) <= 80
    listed = [line.split()[0] for line in page.splitlines() if line]
    assert [name for name in MODEL_PRESETS if name in listed] == list(MODEL_PRESETS)
    assert "1.03T" in page


def test_what_cannot_be_described_is_refused():
    said = CliRunner().invoke(network, ["describe", "--preset", "nope"], env={"COLUMNS": "200"})
    assert said.exit_code == 2
    assert "there is no 'nope'" in said.output
    said = CliRunner().invoke(network, ["describe", "--preset", "3b", "--set", "x=1"], env={"COLUMNS": "200"})
    assert said.exit_code == 2
    assert "is a size and no recipe" in said.output
    with pytest.raises(RequestError, match="--checkpoint is a network by itself"):
        told("describe", "--checkpoint", "nowhere", "--set", "pretrain.seed=1")
    with pytest.raises(RequestError, match="credentials"):
        told("describe", "--set", "rephrase.model=https://me:secret@host/model")
    with pytest.raises(PresetError, match="qk_rope_head_dim = 7"):
        told("describe", "--set", "pretrain.model.qk_rope_head_dim=7")
    with pytest.raises(RequestError, match=r"nowhere has no config\.json"):
        told("describe", "--checkpoint", "nowhere")
