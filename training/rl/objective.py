"""The policy objective of Kimi K2 (K2 report 3.2.3, after Kimi K1.5 2.3.2) as a pure function.

For a prompt x with K responses y_1..y_K drawn from the previous policy, minimise the mean over i of

    (r(x, y_i) - mean_j r(x, y_j) - tau log(pi_theta(y_i | x) / pi_old(y_i | x)))^2 / (2 tau)

The log-ratio is that of the whole response (a sum over its tokens); there is no division by the standard deviation, no
clipping and no value network. K2 prints the square alone, whose gradient is 2 tau times K1.5's: the division makes the
learning rate and the weight of the auxiliary loss independent of tau. At pi_theta = pi_old the gradient is
-(r - mean r) grad log pi, whatever tau is; further off, tau pulls back towards pi_old.

Shape suffixes: N responses, T response tokens (padded).
"""

from __future__ import annotations

import torch
from torch import Tensor


def k2_objective(
    log_probs_NT: Tensor,
    old_log_probs_NT: Tensor,
    mask_NT: Tensor,
    advantages_N: Tensor,
    tau: float,
    literal: bool = False,
    weights_N: Tensor | None = None,
) -> Tensor:
    """K2's loss over a batch of responses.

    Args:
        log_probs_NT: log pi_theta of each response token; carries the gradient.
        old_log_probs_NT: log pi_old of the same tokens by the same arithmetic; those of a generator with fewer digits
            would pull the policy towards its rounding (docs/claims/rl.md).
        mask_NT: True at response tokens; the others do not count, whatever they hold.
        advantages_N: r(x, y) less the mean reward of all responses to the same prompt.
        literal: the square as K2 prints it, whose gradient is 2 tau times that of K1.5's form.
        weights_N: factors of the responses' squares, such as `importance`.
    """
    squares_N = (advantages_N - tau * log_ratios(log_probs_NT, old_log_probs_NT.detach(), mask_NT)).square()
    if weights_N is not None:
        squares_N = squares_N * weights_N
    return squares_N.mean() / (1 if literal else 2 * tau)


def log_ratios(log_probs_NT: Tensor, others_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """How much likelier whole responses are by the first than by the others, as a logarithm [N]."""
    return (log_probs_NT - others_NT).where(mask_NT, log_probs_NT.new_zeros(())).sum(1)


def divergence(log_probs_NT: Tensor, drawn_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """An estimate of KL(drew || policy) per response, summed over those that were drawn: of exp(l) - 1 - l for their
    log-ratios l, which is never negative. Without gradient."""
    ratios_N = log_ratios(log_probs_NT.detach(), drawn_NT, mask_NT)
    return (torch.expm1(ratios_N) - ratios_N).sum()


def importance(log_probs_NT: Tensor, drawn_NT: Tensor, mask_NT: Tensor, most: float) -> Tensor:
    """How much likelier the trainer thinks each response than the generator that drew it, `most` at most [N].

    With these as weights, and the trainer's own log-probabilities as the old ones, the gradient is that of responses
    drawn by the trainer's policy, but for what the truncation holds back.
    """
    return log_ratios(log_probs_NT.detach(), drawn_NT, mask_NT).exp().clamp(max=most)
