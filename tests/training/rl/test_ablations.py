"""The study of RL's parts: its page says what its runs came to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import rl_ablations as study
from benchmarks import rl_pauses as pauses
from benchmarks import rl_slow as slow
from benchmarks.studies import read_table
from model.quantize import round_to_int4
from model.transformer import Transformer
from tests.posttraining import tiny_config
from tests.tasks.report import rollouts

CLAIMS = Path(__file__).resolve().parents[3] / "docs" / "claims"


def test_the_page_has_the_tables_of_the_runs():
    runs = read_table(CLAIMS / "rl" / "runs.csv")
    assert {run["arm"] for run in runs} == {study.BEFORE, *study.ARMS}
    page = (CLAIMS / "rl.md").read_text(encoding="utf-8")
    for table in study.markdown(runs).split("\n\n"):
        assert table in page, "python -m benchmarks.rl_ablations --tables prints them"


def test_the_page_has_the_table_of_what_pauses_bring():
    runs = read_table(CLAIMS / "rl" / "pauses.csv")
    assert {run["arm"] for run in runs} == {*pauses.ARMS}
    assert pauses.markdown(runs) in (CLAIMS / "rl.md").read_text(encoding="utf-8")


def test_the_page_has_the_table_of_when_pauses_cost():
    runs = read_table(CLAIMS / "rl" / "regimes.csv")
    assert {run["arm"] for run in runs} == {*pauses.REGIMES}
    assert pauses.regimes_markdown(runs) in (CLAIMS / "rl.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "arms", "table"),
    [
        ("slow.csv", slow.PARTS, slow.markdown),
        ("steps.csv", slow.STEPS, slow.steps_markdown),
        ("hopeless.csv", slow.HOPELESS, slow.hopeless_markdown),
        ("rounded.csv", slow.ROUNDED, slow.rounded_markdown),
    ],
)
def test_the_page_has_the_tables_of_each_study(file, arms, table):
    runs = read_table(CLAIMS / "rl" / file)
    assert {run["arm"] for run in runs} == {*arms}
    page = (CLAIMS / "rl.md").read_text(encoding="utf-8")
    assert table(runs) in page, "python -m benchmarks.rl_slow --tables prints them"


@pytest.mark.parametrize("rounding", [slow.int4, slow.three_bits])
def test_a_generator_has_every_matrix_rounded_and_the_trainer_none(rounding):
    model = Transformer(tiny_config(), seed=0)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    for name, weight in slow.rounded(model, rounding).named_parameters():
        whole = weight.dim() == 1
        assert torch.equal(weight, before[name]) == whole, name
        assert whole or (weight - before[name]).abs().max() < before[name].abs().max() / 5
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_rounding_has_the_levels_that_it_says():
    weight = torch.randn(3, 5, 64)
    assert torch.equal(slow.int4(weight), round_to_int4(weight))
    assert torch.equal(slow.int4(weight[..., :16]), slow.int4(weight[..., :16].repeat(1, 1, 2))[..., :16])
    assert all(len(row.unique()) <= 7 for row in slow.three_bits(weight).flatten(0, 1))


def test_the_tail_of_a_run_is_what_one_policy_draws_of_a_reply(tmp_path):
    rollouts.write(tmp_path)
    episodes = [one for number in (1, 2) for group in rollouts.practice(number) for one in group.responses]
    versions = sorted({version for one in episodes for version in one.versions if version >= 0})
    longest = [max(one.drawn(version) for one in episodes) for version in versions]
    found = pauses.tail(tmp_path)
    assert found["longest"] == round(sum(longest) / len(longest), 2)
    assert found["paused"] == round(sum(len({*one.versions} - {-1}) > 1 for one in episodes) / len(episodes), 4)


def test_an_iteration_waits_for_its_longest_response(tmp_path):
    rollouts.write(tmp_path)
    longest = [
        max(one.drawn(number - 1) for group in rollouts.practice(number) for one in group.responses)
        for number in (1, 2)
    ]
    assert study.waits(tmp_path, None) == longest
    assert study.waits(tmp_path, 12) == [12, 12]
