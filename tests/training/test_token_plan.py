"""The arithmetic of a run's tokens is RECIPE section 7's, and what it says of ranks is what training does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.k2 import k2_stages
from training.ranges import BLOCK
from training.schedule import Stage
from training.token_plan import block_lists, corpus_shards, full_shard, reading, shapes, slices, stage_rows


def test_k2s_stages() -> None:
    rows = {row.name: row for row in stage_rows(k2_stages())}
    assert rows["constant"].updates_so_far == 149_012
    assert rows["warm-up"].updates_alone + rows["constant"].updates_alone == 149_012
    assert [rows[name].updates_alone for name in ("decay", "annealing", "long context")] == [81_956, 5_960, 894]
    assert rows["long context"].updates_so_far == 237_823
    assert rows["decay"].samples_so_far == pytest.approx(3.784e9, rel=1e-4)
    assert (rows["decay"].bytes_so_far, rows["decay"].shards_so_far) == (62_000_000_000_000, 57_742)
    last = rows["long context"]
    assert last.tokens_so_far == 15_960_000_000_000
    assert last.bytes_so_far == pytest.approx(63.8e12, rel=1e-3)
    assert last.shards_so_far == 59_456
    assert [(stage.sequence_length, stage.batch) for stage in shapes(k2_stages())] == [(4096, 16_384), (32_768, 2048)]


def test_48_ranks_take_uneven_slices() -> None:
    found = slices(16_384, 48)
    assert {size: len(ranks) for size, ranks in found.items()} == {342: 16, 341: 32}
    assert found[342] == list(range(2, 48, 3))


@given(batch=st.integers(1, 300), ranks=st.integers(1, 100))
def test_slices_are_the_batch_and_differ_by_one(batch: int, ranks: int) -> None:
    found = slices(batch, ranks)
    assert sorted(rank for some in found.values() for rank in some) == list(range(ranks))
    assert sum(size * len(some) for size, some in found.items()) == batch
    assert max(found) - min(found) <= 1


def stage(sequence_length: int, batch: int) -> Stage:
    return Stage(name="one", updates=1, sequence_length=sequence_length, batch=batch)


def test_reading_of_k2_on_96_nodes() -> None:
    found = reading(stage(4096, 16_384), ranks=48, ranks_per_node=8, update_seconds=10, horizon=2, shards=57_742)
    assert found.tokens_per_second == pytest.approx(6_710_886.4)
    assert found.bytes_per_second == pytest.approx(16_384 * 4097 * 4 / 10)
    assert found.rank_bytes_per_second == pytest.approx(342 * 4097 * 4 / 10)
    assert found.slowest == pytest.approx(342 / (16_384 / 48) - 1)
    assert found.node_samples == 2 * 342 * 8
    # nearly every window lies in a shard of its own
    assert 0.95 * found.node_samples < found.node_shards < found.node_samples
    assert found.ahead_fits
    assert not reading(stage(32_768, 16_384), 8, 8, 10, 2, 57_742).ahead_fits


@given(sequence_length=st.integers(1, 70_000))
def test_blocks_of_a_window_are_those_that_it_touches_on_average(sequence_length: int) -> None:
    one = reading(stage(sequence_length, 1), ranks=1, ranks_per_node=1, update_seconds=1, horizon=1, shards=1)
    window = 4 * (sequence_length + 1)
    starts = range(0, BLOCK, 4 * 127)
    touched = [-(-(start + window) // BLOCK) for start in starts]
    assert one.remote_bytes_per_second == pytest.approx(BLOCK * sum(touched) / len(touched), rel=0.02)
    assert one.node_shards == 1


def test_a_shard_is_no_larger_than_what_a_batch_can_fill() -> None:
    assert full_shard(1 << 30, 1 << 30) == 1 << 30
    assert full_shard(1 << 30, 256 << 20) == 768 << 20


def test_a_part_of_a_shard_is_a_shard() -> None:
    assert corpus_shards(1) == 1
    assert corpus_shards(1 << 28) == 1
    assert corpus_shards((1 << 28) + 1) == 2
    assert block_lists(1) == 32
