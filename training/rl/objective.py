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

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """Everything the objective reads. Positions with a False mask do not count, whatever they hold."""

    log_probs_NT: Tensor
    """log pi_theta of each response token; carries the gradient."""
    old_log_probs_NT: Tensor
    """log pi_old of the same tokens, from the policy that drew them."""
    mask_NT: Tensor
    """True at response tokens."""
    rewards_N: Tensor
    """r(x, y)."""
    baselines_N: Tensor
    """The mean reward of all responses to the same prompt."""
    weights_N: Tensor | None = None
    """Factors of the responses' squares, such as `importance`; 1 without them."""


@dataclass(frozen=True)
class LossOutputs:
    """The loss and what is worth watching; all but `loss` are detached."""

    loss: Tensor
    """The scalar to minimise."""
    advantages_N: Tensor
    """r - mean r of the group."""
    log_ratios_N: Tensor
    """log pi_theta - log pi_old of whole responses."""
    kl: float
    """Estimate of KL(pi_old || pi_theta) per response: the mean of exp(l) - 1 - l, which is never negative."""


def k2_objective(inputs: LossInputs, tau: float, literal: bool = False) -> LossOutputs:
    """K2's loss over a batch of whole groups.

    Args:
        literal: the square as K2 prints it, whose gradient is 2 tau times that of K1.5's form.

    Raises:
        ValueError: tau is not positive, or shapes do not fit.
    """
    if not tau > 0:
        raise ValueError(f"tau = {tau}: the objective divides by it; K1.5 and K2 leave its value open, 0.1 is a start")
    if inputs.log_probs_NT.shape != inputs.old_log_probs_NT.shape or inputs.mask_NT.shape != inputs.log_probs_NT.shape:
        raise ValueError(
            f"log-probabilities {tuple(inputs.log_probs_NT.shape)}, old ones {tuple(inputs.old_log_probs_NT.shape)} "
            f"and mask {tuple(inputs.mask_NT.shape)} must have one shape"
        )
    advantages_N = inputs.rewards_N - inputs.baselines_N
    difference_NT = (inputs.log_probs_NT - inputs.old_log_probs_NT.detach()).where(
        inputs.mask_NT, inputs.log_probs_NT.new_zeros(())
    )
    log_ratios_N = difference_NT.sum(1)
    squares_N = (advantages_N - tau * log_ratios_N).square()
    if inputs.weights_N is not None:
        squares_N = squares_N * inputs.weights_N
    loss = squares_N.mean() if literal else squares_N.mean() / (2 * tau)
    kept_N = log_ratios_N.detach()
    kl = float((torch.expm1(kept_N) - kept_N).mean()) if len(kept_N) else 0.0
    return LossOutputs(loss, advantages_N, kept_N, kl)


def importance(log_probs_NT: Tensor, drawn_NT: Tensor, mask_NT: Tensor, most: float) -> Tensor:
    """How much likelier the trainer thinks each response than the generator that drew it, `most` at most [N].

    With these as weights, and the trainer's own log-probabilities as the old ones, the gradient is that of responses
    drawn by the trainer's policy, but for what the truncation holds back.
    """
    difference_NT = (log_probs_NT.detach() - drawn_NT).where(mask_NT, log_probs_NT.new_zeros(()))
    return difference_NT.sum(1).exp().clamp(max=most)
