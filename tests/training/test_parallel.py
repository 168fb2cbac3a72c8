"""Shares of a batch, and the collectives among real gloo processes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training.ranks import run_ranks
from training.checkpoint import CheckpointError
from training.checkpoint_writer import Writer
from training.config import MuonClipConfig
from training.mesh import Mesh
from training.muonclip import MuonClip, MuonClipError
from training.parallel import RankError, World, join


@given(count=st.integers(0, 20_000), size=st.integers(1, 300))
def test_shares_cover_the_batch_and_differ_by_one(count: int, size: int) -> None:
    shares = [World(rank, size).share(count) for rank in range(size)]
    assert [sample for share in shares for sample in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def rank_work(world: World) -> tuple[int, int]:
    """One rank: collectives, an optimizer step shared by the ranks, and the errors that all must see."""
    rank, size = world.rank, world.size
    assert world.all_reduce(torch.tensor([1.0, rank])).tolist() == [size, size * (size - 1) / 2]
    assert world.all_reduce(torch.tensor([float(rank), -float(rank)]), "max").tolist() == [size - 1, 0]
    assert world.from_first(rank + 7) == 7

    def parameters() -> dict[str, nn.Parameter]:
        draw = torch.Generator().manual_seed(3)
        shapes = {"a": (6, 9), "experts": (5, 9, 6), "b": (8, 8), "experts_down": (5, 6, 9)}
        made = {name: nn.Parameter(torch.randn(shape, generator=draw)) for name, shape in shapes.items()}
        for parameter in made.values():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        return made

    # gradients: every rank brings a part; one brings none at all
    summed = parameters()
    for parameter in summed.values():
        parameter.grad = None if rank == 1 else torch.full_like(parameter, float(rank + 1))
    world.all_reduce_gradients(list(summed.values()))
    expected = sum(r + 1 for r in range(size) if r != 1)
    assert all(p.grad is not None and bool((p.grad == expected).all()) for p in summed.values())
    working = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    working.grad_dtype = torch.float32
    working.grad = None if rank == 1 else torch.full((4,), 1 + 2**-12)
    world.all_reduce_gradients([working])
    assert working.grad is not None
    assert working.grad.tolist() == [(size - 1) * (1 + 2**-12)] * 4

    # a step whose matrices are shared out is the step of one rank alone, bit for bit in float32
    config = MuonClipConfig(newton_schulz_dtype="float32")
    alone, shared = parameters(), parameters()
    mesh = Mesh(world=world, data=world, expert_data=world)
    for made, where in ((alone, Mesh()), (shared, mesh)):
        optimizer = MuonClip(made, {}, config, lr=0.1, mesh=where)
        for _ in range(2):
            optimizer.step()
        assert optimizer.last_report is not None
        assert optimizer.last_report.matrices == 12
    for name, parameter in alone.items():
        torch.testing.assert_close(shared[name], parameter, rtol=0, atol=1e-5)
    world.assert_equal("weights", list(shared.values()))

    # what one rank alone can see is an error on all
    broken = parameters()
    gradient = broken["a"].grad
    assert gradient is not None
    gradient[0, 0] = float("nan")
    with pytest.raises(MuonClipError, match="a has a gradient that is NaN"):
        MuonClip(broken, {}, config, lr=0.1, mesh=mesh).step()
    writer = Writer(world)
    writer._error = CheckpointError("the disk of rank 1 is full") if rank == 1 else None
    with pytest.raises(CheckpointError, match="the disk of rank 1 is full"):
        writer.settle()
    writer.settle()
    with pytest.raises(RankError, match="1 of 2 tensors differ"):
        world.assert_equal("weights", [torch.ones(3), torch.full((3,), float(rank))])
    return rank, size


def test_three_ranks_agree() -> None:
    assert run_ranks(3, rank_work) == [(0, 3), (1, 3), (2, 3)]


def test_one_process_is_a_world_of_one() -> None:
    with join() as world:
        tensor = torch.tensor([2.0])
        assert world == World(0, 1, 0)
        assert world.all_reduce(tensor) is tensor
        world.barrier()
