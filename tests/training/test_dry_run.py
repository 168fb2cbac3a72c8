"""The dry run: parts of real networks on the meta device, held against the whole, the closed form and a real run."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import parameter_count
from model.footprint import MemoryConfig, activation_bytes
from model.sizes import model_preset
from tests.training.runs import MODEL, STAGES
from training.config import PretrainConfig
from training.dry_run import dry_run, part, stand_in
from training.expert_parallel import outline
from training.layout import Layout, LayoutError
from training.mesh import Mesh
from training.muonclip import MuonClip
from training.parallel import World
from training.plan import Hardware, plan


def first(ranks: World) -> World:
    return World(0, ranks.size)


H800 = Hardware(name="H800", peak_flops=989e12, memory_bytes=80e9, mfu=0.3)


def config(layers: int = 5, experts: int = 8, **run: object) -> PretrainConfig:
    model = MODEL | {"num_hidden_layers": layers, "n_routed_experts": experts}
    return PretrainConfig.model_validate({"model": model, "stages": STAGES[:3], "run": run})


@settings(max_examples=15, deadline=None)
@given(
    pipeline=st.integers(1, 3),
    virtual=st.integers(1, 2),
    expert=st.sampled_from([1, 2, 4]),
    data=st.integers(1, 2),
)
def test_ranks_together_hold_the_network_once_and_what_the_formula_says(
    pipeline: int, virtual: int, expert: int, data: int
) -> None:
    layout = Layout(pipeline=pipeline, virtual=virtual if pipeline > 1 else 1, expert=expert)
    asked = config(layers=7, layout=layout, micro_batch=1)
    ranks = layout.copy_ranks * data
    found = dry_run(asked, ranks, H800)
    count = parameter_count(asked.model)
    assert found.parameters == count.trainable
    assert not [problem for problem in found.problems if "held" in problem or "lies on" in problem]
    # every number of the network on one position, experts on one rank of it
    held = sum(position.parameters for position in found.positions)
    experts = count.components["routed_experts"]
    assert held == count.trainable - experts + experts // expert
    # the formula spreads the layers evenly and counts a gradient of the biases, which have none
    closed = plan(asked.model, asked.stages, layout, ranks, H800, asked.optimizer, weight_bytes=found.weight_bytes)
    biases = count.components["correction_bias"] / pipeline
    written = found.weight_bytes * biases - 4 * biases
    assert found.mean_state == pytest.approx(closed.rank_bytes - 4 * biases - written, rel=1e-12)
    assert sum(p.compute for p in found.positions) == pytest.approx(pipeline)


def test_what_a_rank_owns_is_what_its_optimizer_keeps() -> None:
    """The bytes of all ranks, one by one, from the state that each would write."""
    layout, ranks = Layout(pipeline=2, expert=2), 8
    asked = config(layers=4, layout=layout, micro_batch=1)
    found = dry_run(asked, ranks, H800)
    states: dict[int, list[int]] = {}
    for rank in range(ranks):
        mesh = stand_in(layout, rank, ranks)
        optimizer = MuonClip.for_model(part(asked.model, mesh, torch.float32), asked.optimizer, mesh)
        tensors = {name: value for name, value in optimizer.state_dict().items() if "/" in name}
        size = sum(tensor.numel() * tensor.itemsize for tensor in tensors.values())
        states.setdefault(mesh.place.pipeline, []).append(size)
    for position in found.positions:
        own = states[position.pipeline]
        assert position.optimizer_mean == sum(own) / len(own)
        assert position.optimizer in own


def test_the_stand_in_is_the_mesh_that_ranks_arrange() -> None:
    layout = Layout(pipeline=2, expert=3)
    for rank in range(12):
        mesh = stand_in(layout, rank, 12)
        place = mesh.place
        assert (mesh.data.size, mesh.expert.size, mesh.expert_data.size, mesh.pipeline.size) == (6, 3, 2, 2)
        # ranks are numbered pipeline, data, expert: the last fastest
        assert rank == (place.pipeline * 2 + place.data) * 3 + place.expert
        assert mesh.data.rank == rank % 6
        assert (mesh.expert.rank, mesh.expert_data.rank) == (place.expert, place.data)
    assert stand_in(Layout(), 0, 1) == Mesh()


def test_a_part_that_is_missing_or_held_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(pipeline=2, expert=2)
    asked = config(layers=4, layout=layout, micro_batch=1)
    monkeypatch.setattr(Layout, "layers", lambda *_: [range(2), range(1, 4)])
    told = dry_run(asked, 4, H800).problems
    assert any("layers.1.self_attn.q_a_proj.weight lies on the pipeline positions [0, 1]" in text for text in told)
    monkeypatch.setattr(Layout, "layers", lambda *_: [range(2), range(3, 4)])
    told = dry_run(asked, 4, H800).problems
    assert any("layers.2.self_attn.q_a_proj.weight lies on the pipeline positions none" in text for text in told)
    monkeypatch.undo()
    # every rank takes itself for the first
    monkeypatch.setattr("training.dry_run.outline", lambda model, ranks, *layers: outline(model, first(ranks), *layers))
    told = dry_run(asked, 4, H800).problems
    assert any("layers.1.mlp.experts.gate_EFD is held as" in text for text in told)


@pytest.mark.parametrize(
    ("ranks", "run", "message"),
    [
        (16, {}, "a batch of 8 for 16 data-parallel ranks .*raise the batch"),
        (4, {"layout": {"pipeline": 2}, "micro_batch": 64}, "31.0 samples of padding for each; lower run.micro_batch"),
    ],
)
def test_a_batch_that_no_ranks_can_share_is_refused(ranks: int, run: dict[str, object], message: str) -> None:
    assert re.search(message, " ".join(dry_run(config(**run), ranks, H800).problems))


def test_a_rank_without_room_is_named() -> None:
    small = H800.model_copy(update={"memory_bytes": 1e5})
    (told,) = dry_run(config(layout={"pipeline": 2}, micro_batch=1), 2, small).problems
    assert told.startswith(("rank 0 (pipeline position 0) needs", "rank 1 (pipeline position 1) needs"))
    assert "run.micro_batch" in told


def test_ranks_that_hold_no_whole_copy_are_refused() -> None:
    with pytest.raises(LayoutError, match="such as 4"):
        dry_run(config(layout={"pipeline": 2, "expert": 2}), 3, H800)


def test_activations_are_those_under_way_at_once() -> None:
    """4 pipeline ranks, 8 micro-batches: the first holds 4 of them, the last 1, each of its own layers."""
    asked = config(layers=8, layout={"pipeline": 4}, micro_batch=1)
    found = dry_run(asked, 4, H800)
    pieces = Layout(pipeline=4).layers(asked.model)
    for position, under_way in zip(found.positions, (4, 3, 2, 1), strict=True):
        one = activation_bytes(
            asked.model, MemoryConfig(), 32, 1, "autocast", layers=pieces[position.pipeline], experts=8
        )
        assert position.under_way == under_way
        assert [load.activations for load in position.loads] == [under_way * one.device] * 3


def test_a_stage_may_keep_its_activations_otherwise() -> None:
    plain, saved = (
        dry_run(config(layers=8, micro_batch=2, memory_of=memory), 1, H800).positions[0].loads
        for memory in ({}, {"decay": {"recompute": ["layers"]}})
    )
    assert plain[:2] == saved[:2]
    assert saved[2].activations < plain[2].activations
    assert saved[2].layer > 0 == plain[2].layer


def test_k2_on_its_256_nodes() -> None:
    """RECIPE 7: 6.16 TB for one copy, about 30 GiB a rank at 2,048 accelerators."""
    k2 = model_preset("k2")
    layout = Layout(pipeline=16, virtual=2, expert=16)
    parts = [part(k2, stand_in(layout, rank * 128, 2048), torch.bfloat16) for rank in range(16)]
    dense = sum(p.numel() for each in parts for name, p in each.named_parameters() if ".mlp.experts." not in name)
    experts = sum(p.numel() for each in parts for name, p in each.named_parameters() if ".mlp.experts." in name)
    assert dense + 16 * experts == 1_026_408_209_408
    assert all(p.is_meta for each in parts for p in each.parameters())
