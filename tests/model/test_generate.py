"""Generation: the cache against the full forward, rows of any company, sampling, log-probabilities."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from model.config import ModelConfig
from model.decode import PLACES, LatentCache, PlainDecoder, decoder
from model.generate import Batch, Completion, ConstraintError, Generator, Request, requests_for
from model.sizes import model_preset
from model.transformer import Transformer

pytestmark = pytest.mark.usefixtures("forms")


@pytest.fixture(scope="module", params=["plain", "yarn", "wide values", "no latent of queries"])
def model(request) -> Transformer:
    config: ModelConfig = model_preset("tiny", vocab_size=60, initializer_range=0.15)
    if request.param == "yarn":
        config = config.replace(max_position_embeddings=32).with_yarn(8)
    if request.param == "wide values":
        config = config.replace(v_head_dim=40, first_k_dense_replace=0, num_experts_per_tok=3)
    if request.param == "no latent of queries":
        config = config.replace(q_lora_rank=None)
    return Transformer(config, seed=3)


def prompts(count: int, longest: int = 20) -> list[list[int]]:
    draw = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, longest, (count,), generator=draw).tolist()
    return [torch.randint(0, 60, (length,), generator=draw).tolist() for length in lengths]


def naive_greedy(model: Transformer, prompt: list[int], new: int, stop: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(new):
        with torch.no_grad():
            tokens.append(int(model.logits(model(torch.tensor([tokens])).hidden_BSD)[0, -1].argmax()))
        if tokens[-1] == stop:
            break
    return tokens[len(prompt) :]


def test_greedy_cache_equals_full_forwards_with_rows_coming_and_going(model):
    """13 prompts of mixed lengths through 4 places, some ending early at a stop token."""
    given = prompts(13)
    stop = naive_greedy(model, given[0], 8, -1)[3]
    done = Generator(model, max_rows=4).generate(requests_for(given, max_new_tokens=12, temperature=0, stop_ids=[stop]))
    want = [naive_greedy(model, prompt, 12, stop) for prompt in given]
    assert [list(one.tokens) for one in done] == want
    assert {one.finish for one in done} == {"stop", "length"}
    assert all((one.finish == "stop") == (one.tokens[-1] == stop) for one in done)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
def test_log_probs_equal_the_training_forward(model, temperature):
    given = prompts(6)
    done = Generator(model, max_rows=3).generate(
        requests_for(given, max_new_tokens=9, temperature=temperature, top_p=0.9, seed=1)
    )
    for prompt, one in zip(given, done, strict=True):
        tokens = torch.tensor([[*prompt, *one.tokens]])
        with torch.no_grad():
            hidden = model(tokens[:, :-1]).hidden_BSD
            plain = model.log_probs(hidden, tokens[:, 1:])[0, len(prompt) - 1 :]
            tempered = model.log_probs(hidden, tokens[:, 1:], temperature)[0, len(prompt) - 1 :]
        torch.testing.assert_close(torch.tensor(one.log_probs), plain, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(torch.tensor(one.tempered_log_probs), tempered, atol=2e-5, rtol=1e-4)


def test_in_bfloat16_a_step_is_the_training_forward(model):
    given = prompts(5)
    with torch.autocast("cpu", torch.bfloat16):
        done = Generator(model, max_rows=3).generate(requests_for(given, max_new_tokens=9, seed=1))
        errors = []
        for prompt, one in zip(given, done, strict=True):
            tokens = torch.tensor([[*prompt, *one.tokens]])
            with torch.no_grad():
                wanted = model.log_probs(model(tokens[:, :-1]).hidden_BSD, tokens[:, 1:])[0, len(prompt) - 1 :]
            errors += (torch.tensor(one.log_probs) - wanted).abs().tolist()
    # a rounding may send a token to another expert: the median says what the arithmetic does
    assert sorted(errors)[len(errors) // 2] < 0.1


def test_the_cache_follows_its_longest_row():
    """Rows keep their latents while places are added, rows leave and places are given back."""
    model = Transformer(model_preset("tiny", vocab_size=60, initializer_range=0.15), seed=3)
    cache, made = LatentCache(model, 3), decoder(model)
    width = model.config.kv_lora_rank + model.config.qk_rope_head_dim
    keys_NSK = torch.randn(3, 2 * PLACES, width, generator=torch.Generator().manual_seed(0))
    new = cache.add([2 * PLACES, 3, 5])
    for depth in range(model.config.num_hidden_layers):
        cache.fill(depth, new, keys_NSK)
    alone = LatentCache(model, 1)
    only = alone.add([3])
    for depth in range(model.config.num_hidden_layers):
        alone.fill(depth, only, keys_NSK[1:2, :3])
    tokens = torch.tensor([4, 5, 6])
    with torch.no_grad():
        wanted = made.step(tokens[1:2], alone)
        together = made.step(tokens, cache)  # beyond 2 * PLACES
        assert cache.keys_LNTK[0].shape[1] == 3 * PLACES
        torch.testing.assert_close(together[1:2], wanted, atol=1e-5, rtol=1e-4)
        cache.drop(0)
        assert cache.lengths == [6, 4]
        again = made.step(tokens[[2, 1]], cache)
        assert cache.keys_LNTK[0].shape[1] == PLACES
        torch.testing.assert_close(again[1:2], made.step(tokens[1:2], alone), atol=1e-5, rtol=1e-4)


def test_a_row_samples_alike_in_any_company(model):
    given = requests_for(prompts(9), max_new_tokens=10, seed=4)
    together = Generator(model, max_rows=9).generate(given)
    alone = [Generator(model, max_rows=1).generate([one])[0] for one in given]
    turned = Generator(model, max_rows=4).generate(given[::-1])[::-1]
    tokens = [one.tokens for one in together]
    assert tokens == [one.tokens for one in alone] == [one.tokens for one in turned]
    assert len(set(tokens)) > 1


def test_sampling_follows_the_distribution_and_top_p_cuts_it():
    model = Transformer(model_preset("tiny", vocab_size=8, initializer_range=0.3), seed=1)
    with torch.no_grad():
        p = model.logits(model(torch.tensor([[5]])).hidden_BSD)[0, -1].div(0.7).softmax(-1)
    count = 3000
    generator = Generator(model, max_rows=500)

    def frequencies(top_p: float) -> Counter[int]:
        asked = requests_for([[5]] * count, max_new_tokens=1, temperature=0.7, top_p=top_p, seed=2)
        return Counter(one.tokens[0] for one in generator.generate(asked))

    for token, seen in frequencies(1.0).items():
        spread = math.sqrt(count * p[token] * (1 - p[token]))
        assert abs(seen - count * float(p[token])) < 5 * spread + 1
    order = p.argsort(descending=True).tolist()
    nucleus = next(size for size in range(1, 9) if p[order[:size]].sum() >= 0.6)
    assert set(frequencies(0.6)) == set(order[:nucleus])
    assert set(frequencies(1e-300)) == set(order[:1])  # which float32 has no number for


def test_stream_takes_requests_only_when_a_row_is_free_and_tells_tokens():
    model = Transformer(model_preset("tiny"))
    taken, told = [], []

    def source():
        for place in range(5):
            taken.append(place)
            yield Request([1, 2], max_new_tokens=2 + place, seed=place)

    finished = []
    for index, _ in Generator(model, max_rows=2).stream(source(), on_token=lambda *event: told.append(event)):
        finished.append(index)
        assert len(taken) <= len(finished) + 2
    assert sorted(finished) == [0, 1, 2, 3, 4]
    assert Counter(index for index, _ in told) == {place: 2 + place for place in range(5)}


def test_greedy_log_probs_are_those_of_a_sure_thing():
    model = Transformer(model_preset("tiny"))
    one: Completion = Generator(model).generate([Request([3], 4, temperature=0)])[0]
    assert one.tempered_log_probs == (0, 0, 0, 0)
    assert all(value < 0 for value in one.log_probs)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request([], 3), "empty"),
        (Request([1], 0), "max_new_tokens"),
        (Request([512], 3), "outside"),
        (Request([1] * 250, 10), "260"),
        (Request([1], 3, temperature=-1), "temperature"),
        (Request([1], 3, temperature=1e-40), "temperature"),
        (Request([1], 3, temperature=math.nan), "temperature"),
        (Request([1], 3, top_p=0), "top_p"),
    ],
)
def test_refuses_what_it_cannot_serve_by_name(request_, words):
    with pytest.raises(ValueError, match=rf"request 1: .*{words}"):
        Generator(Transformer(model_preset("tiny"))).generate([Request([1], 1), request_])


def test_broken_weights_are_named_not_sampled():
    model = Transformer(model_preset("tiny"))
    model.norm.weight.data[3] = math.nan
    for temperature in (0, 1):
        with pytest.raises(ValueError, match=r"request 0: .*not finite"):
            Generator(model).generate([Request([1], 2, temperature=temperature)])


class Only:
    """Allows some tokens; after `patience` of them it can say nothing more."""

    def __init__(self, tokens: list[int], patience: int = 99) -> None:
        self.tokens, self.patience = tokens, patience

    def allowed(self) -> torch.Tensor:
        return torch.zeros(60, dtype=torch.bool).index_fill_(0, torch.tensor(self.tokens), True)

    def take(self, token: int) -> None:
        assert token in self.tokens
        self.patience -= 1
        if not self.patience:
            raise ConstraintError("it went on too long")


def test_a_constraint_narrows_its_own_row_and_log_probs_stay_the_models(model):
    given = prompts(4)
    plain = requests_for(given, max_new_tokens=6, seed=2)
    bound = dataclasses.replace(plain[1], constraint=Only([3, 7, 11]), likeliest=2)
    greedy = dataclasses.replace(plain[2], constraint=Only([5]), temperature=0)
    done = Generator(model, max_rows=4).generate([plain[0], bound, greedy, plain[3]])
    want = Generator(model, max_rows=4).generate(plain)
    assert [done[0].tokens, done[3].tokens] == [want[0].tokens, want[3].tokens]
    assert set(done[1].tokens) <= {3, 7, 11}
    assert set(done[2].tokens) == {5}
    tokens = torch.tensor([[*given[1], *done[1].tokens]])
    with torch.no_grad():
        wanted = model.log_probs(model(tokens[:, :-1]).hidden_BSD, tokens[:, 1:])[0, len(given[1]) - 1 :]
    torch.testing.assert_close(torch.tensor(done[1].log_probs), wanted, atol=2e-5, rtol=1e-4)


def test_top_k_cuts(model):
    greedy = Generator(model).generate(requests_for(prompts(3), max_new_tokens=5, temperature=0))
    alone = [dataclasses.replace(one, top_k=1) for one in requests_for(prompts(3), max_new_tokens=5, temperature=2.0)]
    assert [one.tokens for one in Generator(model).generate(alone)] == [one.tokens for one in greedy]


def test_rows_that_fail_or_are_dropped_change_no_other():
    """A prompt that makes NaN, a constraint that gives up, and a row that is dropped; others go on, and who takes their
    places gets no NaN."""
    model = Transformer(model_preset("tiny", vocab_size=60, initializer_range=0.15), seed=3)
    with torch.no_grad():
        model.embed_tokens.weight[59] = math.nan
    good = [
        dataclasses.replace(one, constraint=Only(list(range(59))))
        for one in requests_for([[1, 2, 3], [4, 5], [6, 7, 8]], max_new_tokens=12, seed=5)
    ]
    want = [one.tokens for one in Generator(model).generate(good)]
    batch, found, faults = Batch(model, 4), {}, {}
    batch.add(0, good[0])
    batch.add(10, Request([1] * 40 + [59], 12))
    batch.add(11, Request([9], 12, constraint=Only([1, 2], patience=3)))
    batch.add(12, dataclasses.replace(good[0], seed=1))
    assert not batch.room
    left = [(1, good[1]), (2, good[2])]
    for turn in range(40):
        for row in batch.step() if batch else []:
            if row.fault:
                faults[row.index] = str(row.fault)
            elif row.finish:
                found[row.index] = tuple(row.tokens)
        if turn == 1:
            batch.drop(12)
            batch.drop(99)
        while left and batch.room and turn > 1:
            batch.add(*left.pop())
    assert [found[place] for place in range(3)] == want
    assert set(found) == {0, 1, 2}
    assert set(faults) == {10, 11}
    assert "not finite" in faults[10]
    assert "too long" in faults[11]


def test_a_float32_head_rounds_no_logit_within_autocast():
    """Sampler and trainer read the same float32 logits of what the bfloat16 layers give."""
    model = Transformer(model_preset("tiny", vocab_size=60, initializer_range=0.15), seed=3)
    with torch.no_grad():
        model.lm_head.weight *= 20  # logits where bfloat16 is 0.125 apart and more
    given = prompts(1)
    tokens = torch.tensor(given)
    errors = {}
    for model.float32_head in (False, True):
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            hidden_BSD = model(tokens).hidden_BSD
            logits = model.logits(hidden_BSD)
            log_probs = model.log_probs(hidden_BSD[:, :-1], tokens[:, 1:])
            loss = model.loss(hidden_BSD[:, :-1], tokens[:, 1:])
            (done,) = Generator(model).generate(requests_for(given, max_new_tokens=1, temperature=1.0))
        exact = hidden_BSD.double() @ model.lm_head.weight.detach().double().T
        wanted = exact[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
        drawn = exact[0, -1].log_softmax(-1)[done.tokens[0]]
        found = [(logits - exact).abs().max(), (log_probs - wanted).abs().max(), (loss + wanted.mean()).abs()]
        errors[model.float32_head] = [float(error) for error in (*found, abs(done.log_probs[0] - drawn))]
    assert float(exact.abs().max()) > 32
    assert max(errors[True][:3]) < 1e-4
    assert errors[False][0] > 0.06
    assert errors[False][1] > 0.01
    assert errors[True][3] < 0.2  # the sampler's cache is bfloat16 too, so that its hidden state differs a little


def test_a_float32_head_has_the_gradients_of_float64():
    model = Transformer(model_preset("tiny", vocab_size=60, initializer_range=0.15), seed=3)
    model.float32_head = True
    targets = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    hidden = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    weight = model.lm_head.weight
    with torch.autocast("cpu", torch.bfloat16):
        value = model.loss(hidden, targets) - model.log_probs(hidden, targets, 0.7).mean()
    exact_h, exact_w = (t.detach().double().requires_grad_() for t in (hidden, weight))
    logits = exact_h @ exact_w.T
    picked = [(logits / heat).log_softmax(-1).gather(2, targets[..., None]).mean() for heat in (1.0, 0.7)]
    wanted = -sum(picked)
    torch.testing.assert_close(value.double(), wanted, atol=1e-5, rtol=1e-5)
    ours, theirs = torch.autograd.grad(value, (hidden, weight)), torch.autograd.grad(wanted, (exact_h, exact_w))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), other, atol=1e-6, rtol=1e-4)


class Made(TorchDispatchMode):
    """The most bytes of what operations made that were there at once, what a model holds apart."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.most = 0
        self._held = {tensor.untyped_storage()._cdata for tensor in model.state_dict().values()}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and (storage := made.untyped_storage())._cdata not in self._held:
            self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            self._alive = {at: one for at, one in self._alive.items() if not one[0].expired()}
            self.most = max(self.most, sum(size for _, size in self._alive.values()))
        return made


def test_the_copy_for_decoding_takes_what_the_plan_says(model):
    """Half the bytes of the float32 weights, and never all of them in float32 as well."""
    held = sum(weight.nbytes for weight in model.parameters()) // 2
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), Made(model) as made:
        kept = PlainDecoder(model)
    assert made.most < 1.2 * held
    assert all(weight.dtype == torch.bfloat16 for weight in kept.model.parameters())
    plain = copy.deepcopy(model).to(torch.bfloat16).state_dict()
    assert all(torch.equal(plain[name], tensor) for name, tensor in kept.model.state_dict().items())
    assert all(weight.dtype == torch.float32 for weight in model.parameters())
