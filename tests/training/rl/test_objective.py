"""K2's objective against the formula written out, against finite differences, and at its special points."""

from __future__ import annotations

import pytest
import torch

from training.rl.objective import divergence, importance, k2_objective


def example(responses: int = 12, length: int = 5, seed: int = 0):
    stream = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=stream, dtype=torch.float64)  # noqa: E731
    log_probs = -draw(responses, length).abs()
    old = log_probs + 0.3 * draw(responses, length)
    lengths = torch.randint(1, length + 1, (responses,), generator=stream)
    mask = torch.arange(length)[None] < lengths[:, None]
    groups = torch.arange(responses) % 3
    return log_probs, old, mask, draw(responses), groups


def group_means(rewards, groups):
    """For each response the mean reward of its group."""
    return torch.stack([rewards[groups == group].mean() for group in groups])


def objective(log_probs, old, mask, rewards, groups, tau, **more):
    return k2_objective(log_probs, old, mask, rewards - group_means(rewards, groups), tau, **more)


def reference(log_probs, old, mask, rewards, groups, tau):
    """The formula, response by response, in Python floats."""
    total = 0.0
    for i in range(len(rewards)):
        mates = [float(rewards[j]) for j in range(len(rewards)) if groups[j] == groups[i]]
        ratio = sum(float(log_probs[i, t]) - float(old[i, t]) for t in range(log_probs.shape[1]) if bool(mask[i, t]))
        total += (float(rewards[i]) - sum(mates) / len(mates) - tau * ratio) ** 2
    return total / len(rewards) / (2 * tau)


@pytest.mark.parametrize("tau", [0.01, 0.1, 1.0, 7.0])
def test_equals_the_formula(tau):
    log_probs, old, mask, rewards, groups = example()
    loss = objective(log_probs, old, mask, rewards, groups, tau)
    assert float(loss) == pytest.approx(reference(log_probs, old, mask, rewards, groups, tau), rel=1e-12)


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_gradient_equals_finite_differences(tau):
    log_probs, old, mask, rewards, groups = example(6, 3, seed=1)
    log_probs.requires_grad_()
    objective(log_probs, old, mask, rewards, groups, tau).backward()
    step = 1e-5
    for i in range(6):
        for t in range(3):
            up, down = log_probs.detach().clone(), log_probs.detach().clone()
            up[i, t] += step
            down[i, t] -= step
            slope = (
                reference(up, old, mask, rewards, groups, tau) - reference(down, old, mask, rewards, groups, tau)
            ) / (2 * step)
            assert float(log_probs.grad[i, t]) == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("tau", [1e-3, 0.1, 10.0])
def test_at_the_old_policy_the_gradient_does_not_know_tau(tau):
    """There it is -(r - mean r) / N for every token of a response."""
    _, old, mask, rewards, groups = example()
    log_probs = old.clone().requires_grad_()
    objective(log_probs, old, mask, rewards, groups, tau).backward()
    advantages = rewards - group_means(rewards, groups)
    torch.testing.assert_close(log_probs.grad, -advantages[:, None] * mask / len(rewards))


def test_tau_pulls_back_to_the_old_policy():
    """Without any advantage the loss falls towards pi_old, from either side."""
    old = torch.full((2, 3), -1.0, dtype=torch.float64)
    mask, groups = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.long)
    log_probs = (old + torch.tensor([[0.2], [-0.2]])).requires_grad_()
    objective(log_probs, old, mask, torch.ones(2, dtype=torch.float64), groups, 0.5).backward()
    assert (log_probs.grad[0] > 0).all()
    assert (log_probs.grad[1] < 0).all()


def test_padding_counts_nowhere_not_even_infinite():
    log_probs, old, mask, rewards, groups = example()
    before = objective(log_probs, old, mask, rewards, groups, 0.1)
    broken = log_probs.masked_fill(~mask, -torch.inf).requires_grad_()
    after = objective(broken, old, mask, rewards, groups, 0.1)
    assert float(after.detach()) == float(before)
    after.backward()
    assert torch.isfinite(broken.grad).all()
    assert (broken.grad[~mask] == 0).all()


def test_rewards_shifted_by_a_constant_change_nothing():
    log_probs, old, mask, rewards, groups = example()
    one = objective(log_probs, old, mask, rewards, groups, 0.1)
    other = objective(log_probs, old, mask, rewards + 5, groups, 0.1)
    assert float(one) == pytest.approx(float(other), rel=1e-9)


def test_no_standard_deviation_is_divided_out():
    """At the old policy twice the rewards give twice the gradient (GRPO would give the same)."""
    _, old, mask, rewards, groups = example()
    gradients = []
    for factor in (1, 2):
        log_probs = old.clone().requires_grad_()
        objective(log_probs, old, mask, factor * rewards, groups, 0.1).backward()
        gradients.append(log_probs.grad)
    torch.testing.assert_close(gradients[1], 2 * gradients[0])


def test_no_gradient_reaches_the_old_policy():
    log_probs, old, mask, rewards, groups = example()
    old.requires_grad_()
    log_probs.requires_grad_()
    objective(log_probs, old, mask, rewards, groups, 0.1).backward()
    assert old.grad is None


def test_kl_is_zero_at_the_old_policy_and_positive_off_it():
    log_probs, old, mask, _, _ = example()
    assert divergence(old, old, mask) == 0
    assert divergence(log_probs, old, mask) > 0


@pytest.mark.parametrize("tau", [0.05, 3.0])
def test_the_literal_form_has_a_gradient_two_tau_times_as_large(tau):
    _, old, mask, rewards, groups = example()
    gradients = []
    for literal in (False, True):
        log_probs = (old + 0.1).requires_grad_()
        objective(log_probs, old, mask, rewards, groups, tau, literal=literal).backward()
        gradients.append(log_probs.grad)
    torch.testing.assert_close(gradients[1], 2 * tau * gradients[0])


def test_importance_is_the_ratio_of_whole_responses_up_to_its_bound():
    """Weighed so, and seen from the trainer's own policy, the gradient is -(r - mean r) w / N."""
    log_probs, drawn, mask, rewards, groups = example()
    weights = importance(log_probs, drawn.masked_fill(~mask, -torch.inf), mask, 2.0)
    ratios = ((log_probs - drawn) * mask).sum(1).exp()
    torch.testing.assert_close(weights, ratios.clamp(max=2.0))
    assert (weights == 2.0).any()
    assert (weights < 2.0).any()
    moved = log_probs.clone().requires_grad_()
    objective(moved, log_probs, mask, rewards, groups, 0.1, weights_N=weights).backward()
    advantages = (rewards - group_means(rewards, groups)) * weights
    torch.testing.assert_close(moved.grad, -advantages[:, None] * mask / len(rewards))
