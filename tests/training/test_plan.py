"""The planner prints what the recipe derives (section 7), and counts what the real optimizer counts."""

import pytest

from model.config import ModelConfig, flops_per_token, parameter_count
from model.sizes import model_preset
from model.transformer import Transformer
from tests.training.k2 import k2_stages
from training.config import MuonClipConfig
from training.layout import Layout, LayoutError
from training.muonclip import MuonClip
from training.plan import Hardware, muon_shapes, plan, update_flops

H800 = Hardware(name="H800", peak_flops=989e12, memory_bytes=80e9, mfu=0.3, price_per_hour=2.0)
K2 = Layout(pipeline=16, expert=16)
COUNT = parameter_count(ModelConfig())


def test_k2_at_full_scale() -> None:
    result = plan(ModelConfig(), k2_stages(), K2, 2048, H800)
    assert result.copy_bytes == pytest.approx(6.16e12, rel=1e-3)
    assert result.rank_bytes / 2**30 == pytest.approx(30, abs=0.5)
    # 0.37 % of 6 N_active, the usual count without attention's own products; the Gram form takes 0.8 of it
    usual = MuonClipConfig(gram_ratio=None)
    plain = plan(ModelConfig(), k2_stages(), K2, 2048, H800, usual).newton_schulz_share
    assert plain * flops_per_token(ModelConfig(), 4096) / (6 * COUNT.active) == pytest.approx(0.0037, rel=0.05)
    assert result.newton_schulz_share / plain == pytest.approx(0.8, abs=0.01)
    assert result.muon_matrices == 61 * 5 + 3 + 60 * (384 * 3 + 3 + 1)
    # 6 N_active per token is 3.1e24; attention and the exact sum add to it
    assert 3.1e24 < result.flops < 3.8e24
    assert result.days == pytest.approx(result.accelerator_hours / 2048 / 24)
    assert result.money == pytest.approx(2 * result.accelerator_hours)


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("router", ["muon", "adamw"])
def test_it_counts_the_matrices_of_a_real_optimizer(router: str, per_head: bool) -> None:
    config, asked = model_preset("tiny"), MuonClipConfig.model_validate({"router": router, "per_head": per_head})
    optimizer = MuonClip.for_model(Transformer(config), asked)
    shapes = muon_shapes(config, router == "muon", per_head)
    assert optimizer.matrices == sum(count for count, _, _ in shapes)
    planned = plan(config, k2_stages(), Layout(), 1, H800, asked)
    assert planned.muon_matrices == optimizer.matrices
    priced = planned.newton_schulz_share * update_flops(config, k2_stages().stages[0])
    assert priced == pytest.approx(sum(stack.size * stack.cost for stack in optimizer._stacks))
    ours: dict[tuple[int, int], int] = {}
    for count, rows, columns in shapes:
        if count:
            shape = min(rows, columns), max(rows, columns)
            ours[shape] = ours.get(shape, 0) + count
    assert ours == {(stack.n, stack.m): stack.size for stack in optimizer._stacks}


def test_adamw_on_the_matrices_costs_its_second_moment_and_no_newton_schulz() -> None:
    muon, adamw = (
        plan(ModelConfig(), k2_stages(), K2, 256, H800, MuonClipConfig.model_validate({"matrices": who}))
        for who in ("muon", "adamw")
    )
    assert (adamw.muon_matrices, adamw.newton_schulz_share) == (0, 0)
    assert adamw.rank_bytes - muon.rank_bytes == pytest.approx(4 * COUNT.trainable / 256, rel=0.01)


def test_memory_shrinks_with_the_ranks() -> None:
    sizes = [plan(ModelConfig(), k2_stages(), K2, ranks, H800).rank_bytes for ranks in (256, 768, 2048)]
    assert sizes == sorted(sizes, reverse=True)


def test_ranks_that_hold_no_whole_copy_are_refused() -> None:
    with pytest.raises(LayoutError, match="such as 512"):
        plan(ModelConfig(), k2_stages(), K2, 300, H800)
