"""The study of INT4: its page says what its tables say, and its runs differ in nothing but the rounding."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from benchmarks import int4_study as study
from flows.preset import load_preset
from model.convert import as_served
from model.quantize import fake_quantize_experts, seen_state
from model.sizes import model_preset
from model.transformer import Transformer

PAGE = Path(__file__).parents[2] / "docs" / "claims" / "int4.md"


def test_the_page_says_what_the_tables_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    lines = study.markdown(PAGE.with_suffix("")).splitlines()
    assert len(lines) > 10
    assert [line for line in lines if line not in page] == []


def test_the_sides_differ_in_the_rounding_alone() -> None:
    plain, through = (load_preset(study.request("data", 2, int4)) for int4 in (False, True))
    assert (plain.sft.int4, plain.rl.int4) == (False, False)
    same = {"int4": False}
    assert through.sft.model_copy(update=same) == plain.sft
    assert through.rl.model_copy(update=same) == plain.rl
    assert (plain.sft.seed, plain.rl.seed) == (2, 2)
    changed = {"sft": plain.sft, "rl": plain.rl}
    assert through.model_copy(update=changed) == plain


def test_differences_are_paired_by_seed() -> None:
    rows = [
        {"stage": "sft", "seed": seed, "variant": variant, **dict.fromkeys(study.MEASURES, seed + change)}
        for seed in (3.0, 1.0, 2.0)
        for variant, change in (("bf16", 0.0), ("rounded", 0.5), ("trained", 0.25))
    ]
    assert "| SFT: rounded after training - bf16 | +0.5000 ± 0.0000 |" in study._differences(rows, ["sft"])
    assert "| bf16 | 2.0000 ± 2.4843 |" in study._levels(rows, "sft")


def test_the_control_rounds_by_int4s_own_rule() -> None:
    plain = Transformer(model_preset("tiny"), seed=0)
    through = copy.deepcopy(plain)
    fake_quantize_experts(through)
    study.on_grid(plain, 4)
    served = as_served(plain, int4=False).state_dict()
    for name, weight in seen_state(through).items():
        if ".experts." in name:
            assert torch.equal(served[name], weight)
