"""Newton-Schulz against the SVD, batch against slice, and the bounds that every step is held to."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from training.newton_schulz import (
    COEFFICIENTS,
    newton_schulz,
    newton_schulz_cost,
    newton_schulz_wide,
    rms_bounds,
)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", sorted(COEFFICIENTS))
def test_each_coefficient_set_does_what_it_says(name: str) -> None:
    coefficients = COEFFICIENTS[name]
    x = np.geomspace(coefficients.floor, 1, 200_001)
    for a, b, c in coefficients.steps:
        x = a * x + b * x**3 + c * x**5
    assert coefficients.low <= x.min()
    assert x.max() <= coefficients.high


@pytest.mark.parametrize("name", sorted(COEFFICIENTS))
@pytest.mark.parametrize("gram_ratio", [None, 1.0])
@pytest.mark.parametrize("shape", [(24, 24), (16, 48), (48, 16)])
def test_newton_schulz_keeps_the_singular_vectors(name: str, shape: tuple[int, int], gram_ratio: float | None) -> None:
    matrix = random(*shape)
    result = newton_schulz(matrix, COEFFICIENTS[name], torch.float32, gram_ratio)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    core = u.T @ result @ vh.T  # diagonal, if the singular vectors are the same
    values = core.diagonal()
    assert (core - values.diag()).abs().max() < 1e-3
    assert COEFFICIENTS[name].low * 0.999 <= values.min()
    assert values.max() <= COEFFICIENTS[name].high * 1.001


@pytest.mark.parametrize("name", sorted(COEFFICIENTS))
@pytest.mark.parametrize("spectrum", ["full", "low rank", "steep"])
def test_the_gram_form_is_the_plain_form(name: str, spectrum: str) -> None:
    """In float32 to the rounding that the steps amplify; in bfloat16 as near to that as the plain form is."""
    coefficients = COEFFICIENTS[name]
    matrices = random(3, 24, 96)
    if spectrum == "low rank":
        matrices = random(3, 24, 4) @ random(3, 4, 96, seed=1)
    if spectrum == "steep":
        left, right = (torch.linalg.qr(random(3, size, 24, seed=size)).Q for size in (24, 96))
        matrices = left * 0.5 ** torch.arange(24) @ right.mT
    plain, gram = (newton_schulz(matrices, coefficients, torch.float32, ratio) for ratio in (None, 1.0))
    assert float((gram - plain).norm() / plain.norm()) < 2e-3
    rough, rough_gram = (newton_schulz(matrices, coefficients, torch.bfloat16, ratio).float() for ratio in (None, 1.0))
    assert float((rough_gram - plain).norm()) < 1.5 * float((rough - plain).norm()) + 0.05 * float(plain.norm())
    assert float(torch.linalg.svdvals(rough_gram).max()) < 1.1 * coefficients.high


def test_the_gram_form_starts_afresh_before_rounding_grows() -> None:
    assert {name: [len(run) for run in each.runs] for name, each in COEFFICIENTS.items()} == {
        "quintic": [3, 2],
        "quintic_varied": [2, 3],
        "polar_express_5": [2, 2, 1],
        "polar_express_6": [2, 2, 2],
        "polar_express_8": [2, 2, 4],
    }


@pytest.mark.parametrize("name", sorted(COEFFICIENTS))
@pytest.mark.parametrize(("n", "m"), [(8, 8), (8, 15), (30, 10), (8, 64)])
def test_the_cost_is_what_is_computed(name: str, n: int, m: int) -> None:
    """Above the ratio the Gram form, below it the plain one."""
    with FlopCounterMode(display=False) as counted:
        newton_schulz(random(n, m), COEFFICIENTS[name], torch.float32, gram_ratio=2.0)
    assert newton_schulz_cost(n, m, COEFFICIENTS[name], 2.0) == counted.get_total_flops()
    plain = newton_schulz_cost(n, m, COEFFICIENTS[name], None)
    assert (newton_schulz_cost(n, m, COEFFICIENTS[name], 2.0) < plain) == (max(n, m) >= 2 * min(n, m))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_is_its_slices(dtype: torch.dtype) -> None:
    stack = random(5, 12, 20)
    batched = newton_schulz(stack, dtype=dtype)
    for one, matrix in zip(batched, stack, strict=True):
        torch.testing.assert_close(one, newton_schulz(matrix, dtype=dtype), rtol=2e-2, atol=2e-3)
    torch.testing.assert_close(newton_schulz(stack.mT, dtype=dtype), batched.mT, rtol=2e-2, atol=2e-3)


def test_scale_does_not_matter_and_zero_stays_zero() -> None:
    matrix = random(8, 16)
    torch.testing.assert_close(newton_schulz(matrix * 1e-4), newton_schulz(matrix), rtol=2e-2, atol=1e-2)
    assert not newton_schulz(torch.zeros(3, 8, 8)).any()


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 40),
    extra=st.integers(0, 30),
    rank=st.integers(1, 40),
    decay=st.floats(0.05, 1.0),
    name=st.sampled_from(sorted(COEFFICIENTS)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    gram_ratio=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 1000),
)
def test_the_bounds_on_the_rms_hold_for_every_matrix(
    n: int, extra: int, rank: int, decay: float, name: str, dtype: torch.dtype, gram_ratio: float | None, seed: int
) -> None:
    """Any rank, any spectrum: an honest Newton-Schulz is never taken for a broken one."""
    m = n + extra
    spectrum = decay ** torch.arange(min(rank, n), dtype=torch.float32)
    matrix = random(1, n, len(spectrum), seed=seed) * spectrum @ random(1, len(spectrum), m, seed=seed + 1)
    update, _, rank_G = newton_schulz_wide(matrix, COEFFICIENTS[name], dtype, gram_ratio)
    low_G, high = rms_bounds(n, rank_G, COEFFICIENTS[name])
    rms = float(update.float().square().mean().sqrt()) * 0.2 * m**0.5
    assert 0.9 <= float(rank_G) <= min(rank, n) * 1.1
    assert float(low_G) <= rms <= high


def test_the_bounds_catch_a_newton_schulz_that_did_not_run() -> None:
    matrix = random(1, 64, 96)
    _, norm_G, rank_G = newton_schulz_wide(matrix, COEFFICIENTS["quintic"], torch.bfloat16)
    low_G, high = rms_bounds(64, rank_G, COEFFICIENTS["quintic"])
    for wrong in (matrix, matrix / norm_G, matrix * 1e-4):
        rms = float(wrong.square().mean().sqrt()) * 0.2 * 96**0.5
        assert not float(low_G) <= rms <= high
    assert float(low_G) > 0.08  # a full-rank gradient leaves little room below 0.2
