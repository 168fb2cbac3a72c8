"""Newton-Schulz: the orthogonal factor of a batch of matrices, by matrix products alone, and what to expect of it.

A step is X <- (a + b A + c A^2) X with A = X X^T. The plain form multiplies N x N by N x M matrices in every step. The
Gram form ("Gram Newton-Schulz": the steps are polynomials in A and commute) iterates on A and on the product Q of the
polynomials, N x N both, and multiplies Q by X at the end: fewer operations where M is well above N.

Shapes: G matrices in a stack, each N x M with N <= M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

RMS_MATCH = 0.2  # Moonlight: AdamW's updates have an RMS of 0.2 to 0.4
NORM_FLOOR = 1e-7  # Jordan's epsilon: a matrix with a smaller Frobenius norm has no direction worth a step
NOISE_GROWTH = 150.0  # the Gram form starts afresh before a rounding of 2^-9 has grown to about 0.3
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

    @property
    def runs(self) -> list[tuple[tuple[float, float, float], ...]]:
        """The steps, cut where the Gram form takes A from X again.

        A zero singular value is an eigenvalue of A that rounding makes slightly negative, and a step multiplies it by
        about a^2 where X itself would keep it a square. Before it lifts off, Q is applied to X and begun anew.
        """
        runs, growth = [self.steps[:1]], 1.0
        for previous, step in pairwise(self.steps):
            growth *= previous[0] ** 2
            if growth > NOISE_GROWTH:
                runs.append(())
                growth = 1.0
            runs[-1] += (step,)
        return runs


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
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
)

COEFFICIENTS: Mapping[str, Coefficients] = {
    "quintic": Coefficients(
        ((3.4445, -4.7750, 2.0315),) * 5, 0.002, 0.68, 1.21, "Jordan 2024; what Moonlight's public code runs"
    ),
    "quintic_varied": Coefficients(
        (
            (4.0848, -6.8946, 2.9270),
            (3.9505, -6.3029, 2.6377),
            (3.7418, -5.5913, 2.3037),
            (2.8769, -3.1427, 1.2046),
            (2.8366, -3.0525, 1.2012),
        ),
        *(0.002, 0.85, 1.15, "Jiacheng You 2025; what the speed runs on NanoGPT then ran"),
    ),
    "polar_express_5": Coefficients(_POLAR[:5], 0.002, 0.87, 1.13, "Amsel et al., arXiv 2505.16932, Algorithm 1"),
    "polar_express_6": Coefficients(_POLAR[:6], 0.002, 0.997, 1.002, "Amsel et al., arXiv 2505.16932, Algorithm 1"),
    "polar_express_8": Coefficients(
        (*_POLAR, (1.875, -1.25, 0.375)), 0.001, 0.9999, 1.0001, "Amsel et al., arXiv 2505.16932, Algorithm 1"
    ),
}


def newton_schulz(
    matrices: Tensor,
    coefficients: Coefficients = COEFFICIENTS["quintic"],
    dtype: torch.dtype = torch.bfloat16,
    gram_ratio: float | None = None,
) -> Tensor:
    """Every matrix of `matrices` [..., n, m] with its singular values moved to about 1 (the polar factor, roughly).

    Returns a tensor of the same shape in `dtype`. Matrices are normalised in float32 before the cast, so the result
    does not depend on their scale down to a norm of 1e-7; a zero matrix stays zero.
    """
    *batch, n, m = matrices.shape
    stack_GNM = matrices.float().reshape(-1, n, m)
    if n > m:
        return newton_schulz_wide(stack_GNM.mT, coefficients, dtype, gram_ratio)[0].mT.reshape(*batch, n, m)
    return newton_schulz_wide(stack_GNM, coefficients, dtype, gram_ratio)[0].reshape(*batch, n, m)


def newton_schulz_wide(
    stack_GNM: Tensor, coefficients: Coefficients, dtype: torch.dtype, gram_ratio: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(orthogonalised [G, N, M], Frobenius norms before [G], effective ranks [G] in 1..N) of wide matrices.

    In the Gram form where M / N is at least `gram_ratio`. The effective rank is (sum s^2)^2 / sum s^4 over the singular
    values s; the first Gram matrix gives it for nothing.
    """
    norm_G = torch.linalg.vector_norm(stack_GNM, dim=(1, 2), dtype=torch.float32)
    x_GNM = (stack_GNM / norm_G.clamp(min=NORM_FLOOR)[:, None, None]).to(dtype)
    rank_G = torch.zeros_like(norm_G)
    in_gram_form = _in_gram_form(x_GNM.shape[1], x_GNM.shape[2], gram_ratio)
    for number, run in enumerate(coefficients.runs if in_gram_form else [(step,) for step in coefficients.steps]):
        gram_GNN = x_GNM @ x_GNM.mT
        if number == 0:
            rank_G = 1 / torch.linalg.vector_norm(gram_GNN, dim=(1, 2), dtype=torch.float32).square().clamp(min=1e-30)
        x_GNM = _product(gram_GNN, run) @ x_GNM
    return x_GNM, norm_G, rank_G


def _product(gram_GNN: Tensor, run: Sequence[tuple[float, float, float]]) -> Tensor:
    """The product Q of the polynomials a I + b A + c A^2 of `run`, which starts from X with X X^T = `gram_GNN`."""
    q_GNN: Tensor | None = None
    for left, (a, b, c) in zip(range(len(run) - 1, -1, -1), run, strict=True):
        poly_GNN = torch.baddbmm(gram_GNN, gram_GNN, gram_GNN, beta=b, alpha=c)
        poly_GNN.diagonal(dim1=1, dim2=2).add_(a)
        if left:
            gram_GNN = poly_GNN @ gram_GNN @ poly_GNN
        q_GNN = poly_GNN if q_GNN is None else poly_GNN @ q_GNN
    assert q_GNN is not None
    return q_GNN


def _in_gram_form(n: int, m: int, gram_ratio: float | None) -> bool:
    return gram_ratio is not None and m >= gram_ratio * n


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


def newton_schulz_cost(n: int, m: int, coefficients: Coefficients, gram_ratio: float | None) -> int:
    """Multiplications and additions to orthogonalise an n x m matrix: the unit in which ranks share the work."""
    n, m = min(n, m), max(n, m)
    if not _in_gram_form(n, m, gram_ratio):
        return len(coefficients.steps) * (4 * n * n * m + 2 * n**3)
    # every run: A from X, Q X, and per step A^2, Q and, if another follows, A in two products; the first Q is free
    products = sum(4 * len(run) - 3 for run in coefficients.runs)
    return 4 * n * n * m * len(coefficients.runs) + 2 * n**3 * products
