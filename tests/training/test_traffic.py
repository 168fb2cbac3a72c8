"""Shares, padding, micro-batches under way and bytes sent: against torch's own schedules, and by the laws they keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B, _ComputationType

from model.sizes import model_preset
from training.layout import Layout
from training.schedule import Rate, Stage
from training.traffic import batch, in_flight, sent


def stage(batch_: int) -> Stage:
    return Stage(name="a", updates=1, sequence_length=64, batch=batch_, rate=Rate(start=0, end=1e-3))


def torchs(layout: Layout, rank: int, micro_batches: int) -> Iterator[tuple[int, ...]]:
    """Forwards minus backwards of each piece after every forward, by the order that torch computes."""
    schedule = ScheduleInterleaved1F1B.__new__(ScheduleInterleaved1F1B)
    schedule.pp_group_size, schedule.n_local_stages = layout.pipeline, layout.virtual
    schedule._n_microbatches = micro_batches
    schedule.number_of_rounds = max(1, micro_batches // layout.pipeline)
    schedule.microbatches_per_round = micro_batches // schedule.number_of_rounds
    held = [0] * layout.virtual
    for action in schedule._calculate_single_rank_operations(rank):
        if action is not None:
            forward = action.computation_type == _ComputationType.FORWARD
            held[action.stage_index // layout.pipeline] += 1 if forward else -1
            if forward:
                yield tuple(held)
    assert not any(held)


@given(pipeline=st.integers(2, 5), virtual=st.integers(2, 4), wanted=st.integers(1, 24), rank=st.integers(0, 4))
def test_what_is_under_way_is_what_torchs_interleaved_schedule_has(
    pipeline: int, virtual: int, wanted: int, rank: int
) -> None:
    layout = Layout(pipeline=pipeline, virtual=virtual)
    count = layout.micro_batches(wanted)
    assert list(in_flight(layout, rank % pipeline, count)) == list(torchs(layout, rank % pipeline, count))


@given(pipeline=st.integers(1, 9), wanted=st.integers(1, 40))
def test_under_1f1b_a_rank_holds_one_micro_batch_for_each_rank_from_it_on(pipeline: int, wanted: int) -> None:
    layout = Layout(pipeline=pipeline)
    count = layout.micro_batches(wanted)
    for rank in range(pipeline):
        assert max(held for (held,) in in_flight(layout, rank, count)) == pipeline - rank


@given(
    size=st.integers(1, 500),
    pipeline=st.integers(1, 4),
    expert=st.sampled_from([1, 2, 4]),
    data=st.integers(1, 5),
    micro_batch=st.integers(1, 6),
)
def test_every_sample_is_computed_and_the_rest_is_padding(
    size: int, pipeline: int, expert: int, data: int, micro_batch: int
) -> None:
    layout = Layout(pipeline=pipeline, expert=expert)
    found = batch(size, layout, layout.copy_ranks * data, micro_batch)
    assert found.ranks == data * expert
    assert found.fewest * found.ranks <= size <= found.most * found.ranks
    assert found.most - found.fewest <= 1
    assert found.micro_batches * micro_batch >= found.most
    assert found.padding >= 0
    if layout.copy_ranks == 1:
        assert found.padding == 0
    if pipeline > 1:
        assert round((1 + found.padding) * size) == found.micro_batches * micro_batch * found.ranks
    assert found.bubble == pytest.approx((pipeline - 1) / found.micro_batches)


def test_k2_on_96_nodes_has_uneven_shares_and_hardly_any_padding() -> None:
    layout = Layout(pipeline=16, virtual=2, expert=16)
    found = batch(16_384, layout, 768, 1)
    # 342 micro-batches are no equal rounds over 16 ranks, 22 rounds of 16 are
    assert (found.ranks, found.most, found.fewest, found.micro_batches) == (48, 342, 341, 352)
    assert found.padding == pytest.approx(352 * 48 / 16_384 - 1)
    assert found.bubble == pytest.approx(15 / (2 * 352))


def test_virtual_stages_halve_the_bubble() -> None:
    once, twice = (batch(256, Layout(pipeline=4, virtual=v), 16, 1) for v in (1, 2))
    assert once.bubble == 2 * twice.bubble == 3 / 64


def test_what_a_rank_sends() -> None:
    tiny = model_preset("tiny")  # 3 layers, the first dense, 2 experts a token, 64 wide
    alone = sent(tiny, Layout(), 1, [range(3)], 0, 100, 1000, 500)
    assert (alone.tokens, alone.stream, alone.gradients, alone.weights) == (0, 0, 0, 0)
    experts = sent(tiny, Layout(expert=2), 4, [range(3)], 0, 100, 1000, 500)
    # half of the pairs stay; out and back, forward and backward, in bfloat16, in two layers
    assert experts.tokens == 100 * 2 * 2 * 64 * 4 * 2 // 2
    again = sent(tiny, Layout(expert=2), 4, [range(3)], 0, 100, 1000, 500, passes=5)
    assert again.tokens == experts.tokens * 5 // 4
    # rings: 4 ranks hold the dense part, 2 the experts
    assert experts.gradients == 2 * 4 * (1000 * 3 // 4 + 500 // 2)
    assert experts.weights == 2 * (1000 * 3 // 4 + 500 // 2)
    pieces = [range(1), range(1, 2), range(2, 3)]
    layout = Layout(pipeline=3)
    rows = [sent(tiny, layout, 3, pieces, rank, 100, 0, 0).stream for rank in range(3)]
    assert rows == [100 * 64 * 2, 2 * 100 * 64 * 2, 100 * 64 * 2]


def test_all_ranks_together_add_up_and_gather_everything_once() -> None:
    """A ring over n ranks moves 2 (n - 1) times the bytes for a sum, n - 1 times for a gathering."""
    tiny, layout = model_preset("tiny"), Layout(expert=4)
    found = sent(tiny, layout, 8, [range(3)], 0, 1, 8000, 800)
    assert 8 * found.weights == 2 * (7 * 8000 + 8 * (800 // 2))
    assert found.gradients == 4 * found.weights
