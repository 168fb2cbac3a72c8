"""MuonClip against a float64 reference, torch's own Muon, and the laws of Newton-Schulz and QK-Clip."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from model.config import ModelConfig
from model.transformer import Transformer
from tests.training.runs import MODEL
from training.config import MuonClipConfig
from training.mesh import Mesh
from training.muonclip import MuonClip, MuonClipError
from training.newton_schulz import newton_schulz_wide
from training.parallel import World
from training.plan import muon_shapes
from training.qk_clip import Clip, by_row, mla_factors, qk_gamma


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------------------------ Algorithm 1


def reference_step(
    w: np.ndarray, m: np.ndarray, g: np.ndarray, lr: float, mu: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1's weight and momentum for one matrix, written from the report in float64."""
    m = mu * m + g
    x = g + mu * m
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    o = (x.T if turned else x) * 0.2 * np.sqrt(max(w.shape))
    return w - lr * (o + 0.1 * w), m


def muonclip(parameters: dict[str, nn.Parameter], **config: object) -> MuonClip:
    return MuonClip(parameters, {}, MuonClipConfig.model_validate({"newton_schulz_dtype": "float32", **config}))


def test_three_steps_equal_the_float64_reference() -> None:
    shapes = {"wide": (8, 20), "tall": (20, 8), "square": (12, 12), "experts": (3, 8, 20), "experts_down": (3, 20, 8)}
    parameters = {name: nn.Parameter(random(*shape, seed=at)) for at, (name, shape) in enumerate(shapes.items())}
    optimizer = muonclip(parameters)
    expected = {name: p.detach().double().numpy().reshape(-1, *p.shape[-2:]) for name, p in parameters.items()}
    momentum = {name: np.zeros_like(w) for name, w in expected.items()}
    for step, lr in enumerate((0.1, 0.03, 0.05)):
        optimizer.param_groups[0]["lr"] = lr
        for at, (name, parameter) in enumerate(parameters.items()):
            gradient = random(*parameter.shape, seed=100 * step + at)
            parameter.grad = gradient
            pairs = [
                reference_step(w, m, g, lr)
                for w, m, g in zip(
                    expected[name], momentum[name], gradient.double().numpy().reshape(expected[name].shape), strict=True
                )
            ]
            expected[name] = np.stack([w for w, _ in pairs])
            momentum[name] = np.stack([m for _, m in pairs])
        optimizer.step()
    for name, parameter in parameters.items():
        ours = parameter.detach().double().numpy().reshape(expected[name].shape)
        np.testing.assert_allclose(ours, expected[name], rtol=1e-4, atol=1e-5)
    assert optimizer.last_report is not None
    assert optimizer.last_report.matrices == optimizer.matrices == 9
    assert 0.15 < optimizer.last_report.update_rms < 0.24


def test_torchs_muon_takes_the_same_steps() -> None:
    """torch.optim.Muon with `match_rms_adamw` is Moonlight's; its momentum is an average, which the norm takes out."""
    ours = {name: nn.Parameter(random(*shape)) for name, shape in {"a": (16, 40), "b": (40, 16), "c": (16, 40)}.items()}
    theirs = [nn.Parameter(p.detach().clone()) for p in ours.values()]
    optimizer = MuonClip(ours, {}, lr=0.05)
    oracle = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        for at, (mine, other) in enumerate(zip(ours.values(), theirs, strict=True)):
            mine.grad = random(*mine.shape, seed=10 * step + at)
            other.grad = mine.grad.clone()
        optimizer.step()
        oracle.step()
    for mine, other in zip(ours.values(), theirs, strict=True):
        # both iterate in bfloat16 and round differently: 2^-8 of an update of RMS 0.2 * lr, over four steps
        assert float((mine - other).detach().square().mean().sqrt()) < 4 * 0.05 * 0.2 * 2**-5
        assert float((mine - other).detach().abs().max()) < 0.01


def test_adamw_takes_the_rest_as_torch_does() -> None:
    ours = {"embedding": nn.Parameter(random(10, 4)), "norm": nn.Parameter(torch.ones(4))}
    theirs = [nn.Parameter(p.detach().clone()) for p in ours.values()]
    optimizer = MuonClip({}, ours, lr=0.01)
    oracle = torch.optim.AdamW(
        [{"params": theirs[:1], "weight_decay": 0.1}, {"params": theirs[1:], "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.95),
    )
    for step in range(5):
        for at, (mine, other) in enumerate(zip(ours.values(), theirs, strict=True)):
            mine.grad = random(*mine.shape, seed=10 * step + at)
            other.grad = mine.grad.clone()
        optimizer.step()
        oracle.step()
    for mine, other in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_adamw_can_have_the_matrices_too_and_heads_are_still_clipped() -> None:
    model = Transformer(ModelConfig.model_validate(MODEL))
    twin = copy.deepcopy(model)
    optimizer = MuonClip.for_model(model, MuonClipConfig(matrices="adamw", tau=5.0))
    wide = [p for p in twin.parameters() if p.ndim >= 2]
    narrow = [p for p in twin.parameters() if p.ndim < 2]
    oracle = torch.optim.AdamW(
        [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}], lr=0.01, betas=(0.9, 0.95)
    )
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    heads = torch.full((2, 2), 4.0)
    for step in range(3):
        for at, (mine, other) in enumerate(zip(model.parameters(), twin.parameters(), strict=True)):
            mine.grad = random(*mine.shape, seed=100 * step + at)
            other.grad = mine.grad.clone()
        optimizer.step(max_logits_LH=heads)
        oracle.step()
    assert optimizer.matrices == 0
    assert optimizer.state_dict().keys() >= {f"mean/{name}/0" for name, _ in model.named_parameters()}
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    queries = model.blocks()[1].self_attn.q_b_proj.weight
    before = queries.detach().clone()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    heads[1, 0] = 20.0
    optimizer.step(max_logits_LH=heads)
    rows = MODEL["qk_nope_head_dim"]  # of the first head, without position
    torch.testing.assert_close(queries.detach()[:rows], before[:rows] * 0.5)
    assert torch.equal(queries.detach()[len(before) // 2 :], before[len(before) // 2 :])


@pytest.mark.parametrize("per_head", [False, True])
def test_queries_without_a_latent_are_one_matrix_that_is_clipped(per_head: bool) -> None:
    model = Transformer(ModelConfig.model_validate({**MODEL, "q_lora_rank": None}))
    optimizer = MuonClip.for_model(model, MuonClipConfig(tau=5.0, per_head=per_head))
    assert optimizer.matrices == sum(count for count, _, _ in muon_shapes(model.config)) + per_head * 2 * (1 + 3)
    for at, parameter in enumerate(model.parameters()):
        parameter.grad = random(*parameter.shape, seed=at)
    queries = model.blocks()[1].self_attn.q_proj.weight
    before = queries.detach().clone()
    optimizer.step(max_logits_LH=torch.tensor([[4.0, 4.0], [20.0, 4.0]]))  # a learning rate of 0: only clips
    nope, half = MODEL["qk_nope_head_dim"], len(before) // 2
    torch.testing.assert_close(queries.detach()[:nope], before[:nope] * 0.5)
    torch.testing.assert_close(queries.detach()[nope:half], before[nope:half] * 0.25)
    assert torch.equal(queries.detach()[half:], before[half:])


def test_bfloat16_weights_follow_float32_masters_through_clips() -> None:
    """The same steps as float32 weights take, which started from the same values; weights are the masters, rounded."""
    working = Transformer(ModelConfig.model_validate(MODEL)).bfloat16()
    exact = copy.deepcopy(working).float()
    config = MuonClipConfig(tau=5.0)
    optimizer, twin = MuonClip.for_model(working, config), MuonClip.for_model(exact, config)
    for group in (*optimizer.param_groups, *twin.param_groups):
        group["lr"] = 1e-4  # most of it below a weight's resolution in bfloat16
    heads = torch.tensor([[4.0, 20.0], [6.0, 4.0]])
    for step in range(3):
        for at, (mine, other) in enumerate(zip(working.parameters(), exact.parameters(), strict=True)):
            mine.grad_dtype = torch.float32
            mine.grad = random(*mine.shape, seed=100 * step + at)
            other.grad = mine.grad.clone()
        optimizer.step(max_logits_LH=heads)
        twin.step(max_logits_LH=heads)
    state = optimizer.state_dict()
    for (name, weight), other in zip(working.named_parameters(), exact.parameters(), strict=True):
        master = state[f"master/{name}/0"].view_as(weight)
        assert torch.equal(weight, master.bfloat16())
        torch.testing.assert_close(master, other.detach(), rtol=1e-6, atol=1e-7)
    queries = exact.blocks()[0].self_attn.q_b_proj.weight
    assert optimizer.clips_LH.tolist() == [[0, 3], [3, 0]]
    assert queries[len(queries) // 2 :].norm() < 0.2 * queries[: len(queries) // 2].norm()  # by 1/4, three times
    # what the state holds is enough to go on, from weights that were stored rounded
    again = MuonClip.for_model(working, config)
    again.load_state_dict({key: value.clone() for key, value in state.items()})
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in state.items())


def test_gradients_of_bfloat16_weights_add_up_in_float32() -> None:
    """What `grad_dtype` is for: after a gradient of 256 bfloat16 would lose every one of 1."""
    weight = nn.Parameter(torch.zeros(4, 8, dtype=torch.bfloat16))
    weight.grad_dtype = torch.float32
    for scale in (256.0, *[1.0] * 64):
        (torch.full((1, 8), scale, dtype=torch.bfloat16) @ weight.T).float().sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((4, 8), 320.0))
    MuonClip({"w": weight}, {}, lr=0.1).step()
    with pytest.raises(MuonClipError, match=r"w is torch\.float16"):
        MuonClip({"w": nn.Parameter(torch.zeros(4, 8, dtype=torch.float16))}, {})


def test_heads_can_be_orthogonalised_apart() -> None:
    """As if every head's part were a parameter of its own."""
    heads, nope, value, latent = 3, 4, 6, 10
    fused = nn.Parameter(random(heads * (nope + value), latent))
    apart: dict[str, nn.Parameter] = {}
    for at, block in enumerate(fused.detach().split(nope + value)):
        apart |= {f"k{at}": nn.Parameter(block[:nope].clone()), f"v{at}": nn.Parameter(block[nope:].clone())}
    config = MuonClipConfig(newton_schulz_dtype="float32")
    optimizer = MuonClip({"kv_b": fused}, {}, config, lr=0.1, heads={"kv_b": [nope, value]})
    reference = MuonClip(apart, {}, config, lr=0.1)
    assert optimizer.matrices == reference.matrices == 2 * heads
    for step in range(2):
        fused.grad = random(*fused.shape, seed=step)
        for at, block in enumerate(fused.grad.split(nope + value)):
            apart[f"k{at}"].grad, apart[f"v{at}"].grad = block[:nope], block[nope:]
        optimizer.step()
        reference.step()
    joined = torch.cat([apart[f"{kind}{at}"].detach() for at in range(heads) for kind in "kv"])
    torch.testing.assert_close(fused.detach(), joined, rtol=1e-5, atol=1e-6)
    state = optimizer.state_dict()
    assert state["momentum/kv_b:0/0"].shape == (heads, nope, latent)
    assert state["momentum/kv_b:1/0"].shape == (heads, value, latent)
    model = Transformer(ModelConfig.model_validate(MODEL))
    whole, split = (MuonClip.for_model(model, MuonClipConfig(per_head=on)).matrices for on in (False, True))
    assert split - whole == 2 * (2 - 1) + 2 * (4 - 1)  # two layers; of 2 heads the queries, and keys and values


def test_an_expert_without_tokens_is_decayed_and_counted_as_idle() -> None:
    experts = nn.Parameter(random(3, 8, 16))
    before = experts.detach().clone()
    optimizer = muonclip({"experts": experts})
    optimizer.param_groups[0]["lr"] = 0.1
    experts.grad = random(3, 8, 16, seed=1)
    experts.grad[1] = 0
    optimizer.step()
    assert optimizer.last_report is not None
    assert (optimizer.last_report.matrices, optimizer.last_report.idle) == (3, 1)
    torch.testing.assert_close(experts.detach()[1], before[1] * (1 - 0.1 * 0.1))
    assert optimizer.last_report.update_rms_lowest > 0.1


def test_a_step_that_would_do_harm_leaves_the_weights_alone() -> None:
    parameters = {"good": nn.Parameter(random(4, 8)), "bad": nn.Parameter(random(2, 4, 8))}
    norm = nn.Parameter(torch.ones(8))
    optimizer = MuonClip(parameters, {"norm": norm})
    norm.grad = torch.ones(8)
    optimizer.param_groups[0]["lr"] = 0.1
    before = {name: p.detach().clone() for name, p in parameters.items()}
    parameters["good"].grad = random(4, 8)
    with pytest.raises(MuonClipError, match="bad has no gradient"):
        optimizer.step()
    parameters["bad"].grad = random(2, 4, 8)
    parameters["bad"].grad[1, 2, 3] = float("nan")
    with pytest.raises(MuonClipError, match=r"bad\[1\] has a gradient that is NaN"):
        optimizer.step()
    parameters["bad"].grad[1, 2, 3] = 1.0
    norm.grad[2] = float("inf")
    with pytest.raises(MuonClipError, match="norm has a gradient that is NaN or infinite"):
        optimizer.step()
    assert not any(bool(tensor.any()) for tensor in optimizer.state_dict().values())  # nor has the state changed
    for name, parameter in parameters.items():
        assert torch.equal(parameter, before[name])


def test_a_newton_schulz_that_did_not_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What DeepSpeed once did in silence."""
    parameter = nn.Parameter(random(16, 32))
    optimizer = muonclip({"w": parameter})
    parameter.grad = random(16, 32, seed=3)
    iterate = newton_schulz_wide
    monkeypatch.setattr("training.muonclip.newton_schulz_wide", lambda g, *how: (g.bfloat16(), *iterate(g, *how)[1:]))
    with pytest.raises(MuonClipError, match="w has an update of RMS"):
        optimizer.step()
    assert not any(bool(tensor.any()) for tensor in optimizer.state_dict().values())


def test_state_goes_to_other_ranks_and_back() -> None:
    """The state of one rank, loaded by three: their shares joined hold the same, and the next step is the same."""

    def fresh(world: World = World()) -> tuple[dict[str, nn.Parameter], MuonClip]:  # noqa: B008 (frozen)
        muon = {
            "a": nn.Parameter(random(6, 10)),
            "experts": nn.Parameter(random(5, 10, 6)),
            "b": nn.Parameter(random(9, 9)),
        }
        adamw = {"norm": nn.Parameter(torch.ones(6)), "embedding": nn.Parameter(random(5, 7))}
        return {**muon, **adamw}, MuonClip(muon, adamw, lr=0.1, mesh=Mesh(world=world, data=world, expert_data=world))

    parameters, optimizer = fresh()
    for step in range(3):
        for parameter in parameters.values():
            parameter.grad = random(*parameter.shape, seed=step)
        optimizer.step()
    state = {key: value.clone() for key, value in optimizer.state_dict().items()}
    joined: dict[str, Tensor] = {}
    for rank in range(3):
        _, other = fresh(World(rank, 3))
        other.load_state_dict(state)
        share = other.state_dict()
        assert not joined.keys() & share.keys()
        joined |= share
    assert {key for key in joined if key.startswith("momentum/experts/")} > {"momentum/experts/0"}  # cut between ranks
    assert {"mean/embedding/0", "mean/embedding/7", "mean/embedding/21"} <= joined.keys()  # 41 elements, cut in three
    copies, again = fresh()
    again.load_state_dict(joined)
    for name, parameter in copies.items():
        parameter.data.copy_(parameters[name].data)
        parameter.grad = parameters[name].grad = random(*parameter.shape, seed=9)
    optimizer.step()
    again.step()
    for name, parameter in copies.items():
        assert torch.equal(parameter, parameters[name])
    for lost, told in (
        ("momentum/experts/0", "no momentum for all of experts"),
        ("square/norm/0", "no square for"),
    ):
        with pytest.raises(MuonClipError, match=told):
            again.load_state_dict({key: value for key, value in joined.items() if key != lost})


# ---------------------------------------------------------------------------------------------------------- QK-Clip


def test_gamma_touches_only_what_is_over_tau() -> None:
    gamma = qk_gamma(torch.tensor([[-5.0, 0.0, 99.9], [100.0, 200.0, 1e30]]), 100.0)
    assert torch.equal(gamma[0], torch.ones(3))
    torch.testing.assert_close(gamma[1], torch.tensor([1.0, 0.5, 1e-28]))
    for bad in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(MuonClipError, match="layer 1 head 2"):
            qk_gamma(torch.tensor([[1.0, 1, 1], [1, 1, bad]]), 100.0)


@settings(max_examples=30, deadline=None)
@given(heads=st.integers(1, 4), nope=st.integers(1, 6), rope=st.integers(1, 4), value=st.integers(1, 5))
def test_mla_logits_scale_by_gamma_and_nothing_else_does(heads: int, nope: int, rope: int, value: int) -> None:
    latent, kv_latent, tokens = 7, 5, 6
    q_b, kv_b = random(heads * (nope + rope), latent), random(heads * (nope + value), kv_latent, seed=1)
    c_q, c_kv, k_rope = random(tokens, latent, seed=2), random(tokens, kv_latent, seed=3), random(tokens, rope, seed=4)

    def forward() -> tuple[Tensor, Tensor]:
        q = (c_q @ q_b.T).view(tokens, heads, nope + rope)
        kv = (c_kv @ kv_b.T).view(tokens, heads, nope + value)
        logits = torch.einsum("thd,shd->hts", q[..., :nope], kv[..., :nope]) + q[..., nope:].transpose(0, 1) @ k_rope.T
        return logits, kv[..., nope:]

    logits, values = forward()
    gamma = torch.linspace(0.25, 1, heads)
    for weight, factor in zip((q_b, kv_b), mla_factors(gamma, nope, rope, value), strict=True):
        weight.mul_(by_row(factor, weight))
    clipped, same_values = forward()
    torch.testing.assert_close(clipped, logits * gamma[:, None, None], rtol=1e-4, atol=1e-4)
    assert torch.equal(values, same_values)


def heads_of(weight: nn.Parameter) -> Clip:
    """A made-up rule: one row of `weight` for each head, scaled by its gamma."""
    return lambda gamma_H: [(weight, gamma_H)]


def test_a_step_clips_after_the_update_and_reports_it() -> None:
    first, second = nn.Parameter(random(2, 8)), nn.Parameter(random(2, 8, seed=2))
    plain = [nn.Parameter(weight.detach().clone()) for weight in (first, second)]
    config = MuonClipConfig(tau=2.0)
    optimizer = MuonClip({"a": first, "b": second}, {}, config, {0: heads_of(first), 1: heads_of(second)}, lr=0.1)
    without = MuonClip({"a": plain[0], "b": plain[1]}, {}, config, lr=0.1)
    for weight, other in zip((first, second), plain, strict=True):
        weight.grad = other.grad = random(2, 8, seed=1)
    optimizer.step(max_logits_LH=torch.tensor([[1.0, 4.0], [2.0, -9.0]]))
    without.step()
    report = optimizer.last_report
    assert report is not None
    assert report.clipped_heads == 1
    torch.testing.assert_close(report.gamma_LH, torch.tensor([[1.0, 0.5], [1.0, 1.0]]))
    assert torch.equal(first, plain[0] * torch.tensor([[1.0], [0.5]]))
    assert torch.equal(second, plain[1])
    optimizer.step(max_logits_LH=torch.ones(2, 2))
    without.step()
    assert torch.equal(second, plain[1])  # nothing over tau: nothing touched
    assert optimizer.clips_LH.tolist() == [[0, 1], [0, 0]]
    for layers in (1, 3):
        with pytest.raises(MuonClipError, match=f"{layers} layers of logits for 2"):
            optimizer.step(max_logits_LH=torch.ones(layers, 2))
    with pytest.raises(MuonClipError, match="layer 0 head 1"):
        optimizer.step(max_logits_LH=torch.tensor([[1.0, float("nan")], [1.0, 1.0]]))
