"""Newton-Schulz: the orthogonal factor of a batch of matrices, by matrix products alone, and what to expect of it.

Shapes: G matrices in a stack, each N x M with N <= M.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

RMS_MATCH = 0.2  # Moonlight: AdamW's updates have an RMS of 0.2 to 0.4
NORM_FLOOR = 1e-7  # Jordan's epsilon: a matrix with a smaller Frobenius norm has no direction worth a step
ROUNDING = 1.05  # room for bfloat16 in the bounds on the update's RMS: six times its resolution of 2^-7


class Coefficients(NamedTuple):
    """An odd polynomial a x + b x^3 + c x^5 per step, and what the steps together do to a singular value.

    A singular value in [`floor`, 1] ends in [`low`, `high`]; smaller ones end anywhere below, zero stays zero.
    """

    steps: tuple[tuple[float, float, float], ...]
    floor: float
    low: float
    high: float
    source: str


def _deflated(*steps: tuple[float, float, float]) -> tuple[tuple[float, float, float], ...]:
    """The safety factor of the Polar Express paper, section 3.4: rounding may not push a value past the interval."""
    return tuple((a / 1.01, b / 1.01**3, c / 1.01**5) for a, b, c in steps)


_POLAR = _deflated(
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
)

COEFFICIENTS: Mapping[str, Coefficients] = {
    "quintic": Coefficients(
        ((3.4445, -4.7750, 2.0315),) * 5, 0.002, 0.68, 1.21, "Jordan 2024; what Moonlight's public code runs"
    ),
    "polar_express_5": Coefficients(_POLAR[:5], 0.002, 0.87, 1.13, "Amsel et al., arXiv 2505.16932, Algorithm 1"),
    "polar_express_6": Coefficients(_POLAR, 0.002, 0.997, 1.002, "Amsel et al., arXiv 2505.16932, Algorithm 1"),
}


def newton_schulz(
    matrices: Tensor, coefficients: Coefficients = COEFFICIENTS["quintic"], dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """Every matrix of `matrices` [..., n, m] with its singular values moved to about 1 (the polar factor, roughly).

    Returns a tensor of the same shape in `dtype`. Matrices are normalised in float32 before the cast, so the result
    does not depend on their scale down to a norm of 1e-7; a zero matrix stays zero.
    """
    *batch, n, m = matrices.shape
    stack_GNM = matrices.float().reshape(-1, n, m)
    if n > m:
        return newton_schulz_wide(stack_GNM.mT, coefficients, dtype)[0].mT.reshape(*batch, n, m)
    return newton_schulz_wide(stack_GNM, coefficients, dtype)[0].reshape(*batch, n, m)


def newton_schulz_wide(
    stack_GNM: Tensor, coefficients: Coefficients, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """(orthogonalised [G, N, M], Frobenius norms before [G], effective ranks [G] in 1..N) of wide matrices.

    The effective rank is (sum s^2)^2 / sum s^4 over the singular values s; the first Gram matrix gives it for nothing.
    """
    norm_G = torch.linalg.vector_norm(stack_GNM, dim=(1, 2), dtype=torch.float32)
    x_GNM = (stack_GNM / norm_G.clamp(min=NORM_FLOOR)[:, None, None]).to(dtype)
    rank_G = torch.zeros_like(norm_G)
    for step, (a, b, c) in enumerate(coefficients.steps):
        gram_GNN = x_GNM @ x_GNM.mT
        if step == 0:
            rank_G = 1 / torch.linalg.vector_norm(gram_GNN, dim=(1, 2), dtype=torch.float32).square().clamp(min=1e-30)
        poly_GNN = torch.baddbmm(gram_GNN, gram_GNN, gram_GNN, beta=b, alpha=c)
        x_GNM = torch.baddbmm(x_GNM, poly_GNN, x_GNM, beta=a)
    return x_GNM, norm_G, rank_G


def rms_bounds(n: int | Tensor, rank_G: Tensor, coefficients: Coefficients) -> tuple[Tensor, float]:
    """The smallest and the largest RMS that updates of N x M matrices can have, after the factor 0.2 sqrt(M).

    All singular values of a well-conditioned gradient come to about 1, and the RMS is 0.2 times their own RMS, hence
    "close to 0.2". A gradient of low rank (an expert that saw t tokens has at most rank t) gives less, and rightly: no
    polynomial without a constant term raises a zero. What holds for every matrix: at most N floor^2 of its (unit)
    energy lies in singular values under `floor`, so by Cauchy-Schwarz at least (1 - N floor^2)^2 rank of them lie
    above, and those end in [low, high]. A Newton-Schulz that did not run, or ran on an unnormalised matrix, falls
    outside.
    """
    energy = (1 - torch.as_tensor(n) * coefficients.floor**2).clamp(min=0)
    low_G = RMS_MATCH * coefficients.low * energy * (rank_G / n).clamp(max=1).sqrt() / ROUNDING
    return low_G, RMS_MATCH * coefficients.high * ROUNDING


def newton_schulz_cost(n: int, m: int) -> int:
    """Multiplications and additions of one step on an n x m matrix: the unit in which ranks share the work."""
    n, m = min(n, m), max(n, m)
    return 4 * n * n * m + 2 * n**3
