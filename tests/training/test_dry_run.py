"""The dry run: parts of real networks on the meta device, held against the whole, the closed form and a real run."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import flops_per_token, parameter_count
from model.decode import LatentCache
from model.footprint import MemoryConfig, activation_bytes
from model.sizes import model_preset
from model.transformer import Transformer
from tests.training.runs import MODEL, STAGES
from training.config import PretrainConfig
from training.dry_run import DryRun, dry_runs, part, stand_in
from training.dry_run import dry_run as of_stage
from training.expert_parallel import outline
from training.layout import Layout, LayoutError
from training.mesh import Mesh
from training.muonclip import MuonClip
from training.parallel import World
from training.plan import Hardware, plan
from training.rl.config import RlConfig
from training.sft_config import SftConfig
from training.workload import Workload, chain, of_pretraining, of_rl, of_sft


def first(ranks: World) -> World:
    return World(0, ranks.size)


H800 = Hardware(name="H800", peak_flops=989e12, memory_bytes=80e9, mfu=0.3)


def config(layers: int = 5, experts: int = 8, **run: object) -> PretrainConfig:
    model = MODEL | {"num_hidden_layers": layers, "n_routed_experts": experts}
    return PretrainConfig.model_validate({"model": model, "stages": STAGES[:3], "run": run})


def dry_run(config: PretrainConfig, ranks: int, hardware: Hardware) -> DryRun:
    """Of the base."""
    return of_stage(of_pretraining(config), ranks, hardware)


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
        (16, {}, "the batch of 'warm-up' in pretrain.stages is 8 for 16 data-parallel ranks .*raise it"),
        (4, {"layout": {"pipeline": 2}, "micro_batch": 64}, "31.0 samples of padding for each; lower pretrain.run.mic"),
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


def post_training(layout: dict[str, int]) -> tuple[Workload, ...]:
    run = {"layout": layout, "micro_batch": 2}
    base = PretrainConfig.model_validate({"model": MODEL, "stages": STAGES[:3]})
    return chain(
        base.model_copy(update={"run": config(layout=layout, micro_batch=2).run}),
        SftConfig.model_validate({"sequence_length": 32, "rows": 16, "run": run, "dtype": "bfloat16", "budget": 8}),
        RlConfig.model_validate(
            {"prompts": 16, "responses": 2, "rewards": {"budget": 5}, "ptx_samples": 8, "run": run, "dtype": "float32"}
        ),
        dialogue_tokens=20,
        environments=2,
    )


def test_every_stage_is_weighed_by_its_own_shape() -> None:
    """Two ranks that share the experts: what lies on them in each stage, and what samples replies."""
    works = post_training({"expert": 2})
    base, sft, rl = (of_stage(work, 2, H800) for work in works)
    assert [each.stage for each in (base, sft, rl)] == ["base", "sft", "rl"]
    assert not base.problems + sft.problems + rl.problems
    (held,) = base.positions
    for found in (sft, rl):
        (position,) = found.positions
        assert (position.weights, position.gradients) == (held.weights, held.gradients)
    assert base.positions[0].sampling == 0
    # RL's row: 20 tokens of prompt, and of 2 replies all but the last token
    assert works[2].phases[0].sequence_length == 20 + 2 * 4
    activations = activation_bytes(works[2].model, MemoryConfig(), 28, 2, "float32", experts=4)
    # micro_tokens 4,096 hold 8 rows of an update's share, 16 / 2
    assert rl.positions[0].loads[0].activations > activations.device
    assert [load.phase for load in rl.positions[0].loads] == ["replies", "pretraining tokens"]


def test_problems_that_rl_makes_are_sampled_too() -> None:
    """Of 50 to practise on 10 are held out for test, with 4 samples and the likeliest reply, and 5 for development."""
    plain = RlConfig.model_validate({"dtype": "bfloat16"})
    model = post_training({})[2].model
    made = plain.model_copy(update={"sets": {"math": 50}})
    (_, measured, shown), (_, before, seen) = (of_rl(each, model, 20, 2).sampling for each in (made, plain))
    assert (measured.replies - before.replies, shown.replies - seen.replies) == (10 * 5, 5)


def test_each_step_of_an_iteration_has_text_and_dialogues_of_its_own() -> None:
    work = post_training({})[2]
    config = {"iterations": 5, "prompts": 12, "ptx_samples": 2, "ptx_sequence_length": 8, "dialogue_rows": 1}
    once, thrice = (RlConfig.model_validate({"dtype": "float32", "updates": updates, **config}) for updates in (1, 3))
    (replies, *beside), (same, *more) = (of_rl(each, work.model, 20, 2).phases for each in (once, thrice))
    assert replies == same
    assert [phase.tokens for phase in beside] == [5 * 2 * 8, 5 * 512]
    assert [phase.tokens for phase in more] == [15 * 2 * 8, 15 * 512]


def test_every_stage_of_sft_is_weighed_by_its_own_rows() -> None:
    """16 rows of the first stage, 2 and 1 of the others, for two ranks."""
    work = post_training({"expert": 2})[1]
    then = [{"updates": 1, "sequence_length": 64, "rows": rows, "learning_rate": 1} for rows in (2, 1)]
    sft = SftConfig.model_validate({"sequence_length": 32, "rows": 16, "then": then, "run": work.run.model_dump()})
    found = of_stage(of_sft(sft.model_copy(update={"dtype": "bfloat16"}), work.model, 20, 2), 2, H800)
    assert [batch.most for batch in found.batches.values()] == [8, 1, 1]
    (told,) = found.problems
    assert told.startswith("sft.then[1].rows is 1 for 2 data-parallel ranks")


@pytest.mark.parametrize("layout", [{}, {"expert": 2}])
def test_sampling_takes_what_the_generator_takes(layout: dict[str, int]) -> None:
    """The gathered model, the decoder's weights and the cache of a real generator, by their tensors."""
    sft = post_training(layout)[1]
    model = Transformer(sft.model)
    gathered = sum(tensor.numel() * tensor.itemsize for tensor in model.state_dict().values())
    assert gathered == 4 * parameter_count(sft.model).total
    (sampling,) = sft.sampling
    assert sampling.replies == 64 * 2 * 3
    assert sampling.rows(2) == 192
    with torch.autocast("cpu", torch.bfloat16):
        cache = LatentCache(model, sampling.rows(2))
        cache.add([20 + 8] * 192)
    cached = sum(tensor.numel() * tensor.itemsize for tensor in cache.keys_LNTK) * 28 // cache.keys_LNTK[0].shape[1]
    expected = gathered // 2 + cached + 192 * 16 * sft.model.vocab_size
    assert sft.sampling_bytes(2) == expected + (gathered if layout else 0)
    # INT4 samples with a rounded copy of the experts, before they are gathered where they lie apart
    experts = 4 * parameter_count(sft.model).components["routed_experts"] // (2 if layout else 1)
    rounded = dataclasses.replace(sft, int4=True)
    assert rounded.sampling_bytes(2) == sft.sampling_bytes(2) + experts


def test_a_model_that_no_rank_can_hold_whole_is_refused_where_replies_are_sampled() -> None:
    works = post_training({"expert": 2})
    sft = of_stage(works[1], 2, H800)
    (position,) = sft.positions
    small = H800.model_copy(update={"memory_bytes": position.training + 1})
    assert position.peak == position.state + position.sampling > small.memory_bytes
    (told,) = of_stage(works[1], 2, small).problems
    assert told.startswith("every rank samples replies from the whole model")
    assert not of_stage(works[0], 2, small).problems


def test_what_was_checked_of_a_cut_is_not_checked_again() -> None:
    works = post_training({"expert": 2})
    assert [found.problems for found in dry_runs(works, 2, H800)] == [[]] * 3


def test_a_stage_takes_the_time_of_its_products_and_of_reading_the_weights() -> None:
    _, sft, _ = post_training({})
    one, two = (sft.seconds(ranks, H800) for ranks in (1, 2))
    # 500 updates of 16 rows of 32 tokens; 25 evaluations and that of the end, 2 x 192 replies of 8 tokens in turns of
    # at most 256
    flops = 500 * 16 * 32 * flops_per_token(sft.model, 32)
    read = 26 * 8 * 2 * parameter_count(sft.model).total / H800.memory_bandwidth
    assert one == pytest.approx(flops / H800.achieved_flops + 2 * read)
    assert two == pytest.approx(flops / H800.achieved_flops / 2 + read)
