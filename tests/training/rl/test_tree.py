"""A prompt computed once for its K responses gives the numbers of K separate rows, gradients included."""

from __future__ import annotations

import pytest
import torch

from model.attention import document_mask
from model.generate import Generator, Request
from model.transformer import Transformer
from tests.posttraining import tiny_config
from training.rl.tree import Tree, TreeBatch, pack_trees, tree_log_probs

TREES = [
    Tree([5, 6, 7], [[1, 2, 3], [4], [9, 9]]),
    Tree([8], [[1], [2, 3, 4, 5]]),
    Tree([3, 1, 4, 1, 5], [[2, 6]]),
]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(tiny_config(initializer_range=0.2), seed=1)


def log_probs(model: Transformer, batch: TreeBatch, temperature: float = 1.0) -> torch.Tensor:
    """As an engine goes about it: the hidden states under the trees' mask, then the head."""
    mask = document_mask(batch.branch_BS, shared_prompt=True)
    hidden_BSD = model(batch.tokens_BS, positions_BS=batch.positions_BS, mask=mask).hidden_BSD
    return tree_log_probs(model, batch, hidden_BSD, temperature)


def one_by_one(model: Transformer, temperature: float) -> list[torch.Tensor]:
    """Each response behind its own copy of the prompt."""
    found = []
    for tree in TREES:
        for response in tree.responses:
            ids = torch.tensor([[*tree.prompt, *response]])
            logits = model.logits(model(ids).hidden_BSD)[0, len(tree.prompt) - 1 : -1] / temperature
            found.append(logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0])
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_gradients_are_those_of_separate_rows(model, temperature):
    batch = pack_trees(TREES, pad=0)
    shared = log_probs(model, batch, temperature)
    apart = one_by_one(model, temperature)
    for row, expected in enumerate(apart):
        torch.testing.assert_close(shared[row, : len(expected)], expected, atol=1e-5, rtol=1e-5)
        assert (shared[row, len(expected) :] == 0).all()
    weights = torch.randn(len(apart), generator=torch.Generator().manual_seed(0))
    gradients = []
    for values in (
        (shared.sum(1) * weights).sum(),
        sum(value.sum() * weight for value, weight in zip(apart, weights, strict=True)),
    ):
        model.zero_grad()
        values.backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-4, rtol=1e-3)


def test_what_stands_in_other_branches_does_not_matter(model):
    one = pack_trees([Tree([5, 6], [[1, 2, 3], [7, 8]])])
    other = pack_trees([Tree([5, 6], [[1, 2, 3], [9, 4]])])
    torch.testing.assert_close(log_probs(model, one)[0], log_probs(model, other)[0], atol=1e-6, rtol=0)


def test_the_trainer_agrees_with_the_generator(model):
    """Log-probabilities of what was sampled, at the temperature it was sampled with."""
    prompts = [tree.prompt for tree in TREES]
    requests = [
        Request(prompt, most, 0.8, stop_ids=(0,), seed=seed)
        for prompt, most in zip(prompts, (6, 3, 9), strict=True)
        for seed in range(1, 5)
    ]
    rows = Generator(model).generate(requests)
    trees = [
        Tree(prompt, [one.tokens for one in rows[4 * place : 4 * place + 4]]) for place, prompt in enumerate(prompts)
    ]
    batch = pack_trees(trees)
    values = log_probs(model, batch, 0.8)
    for row, response in enumerate(rows):
        expected = torch.tensor(response.tempered_log_probs)
        torch.testing.assert_close(values[row, : len(expected)], expected, atol=1e-4, rtol=1e-4)


def test_empty_prompts_and_responses_are_refused():
    with pytest.raises(ValueError, match="at least one token"):
        pack_trees([Tree([], [[1]])])
    with pytest.raises(ValueError, match="at least one token"):
        pack_trees([Tree([1], [[1], []])])
