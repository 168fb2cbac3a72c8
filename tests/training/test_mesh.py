"""The groups of a mesh among eight real gloo processes."""

import pytest
import torch

from tests.training.ranks import run_ranks
from training.layout import Layout, LayoutError
from training.mesh import Mesh, arrange
from training.parallel import World

GROUPS = ("data", "expert", "expert_data", "pipeline")


def rank_work(world: World) -> dict[str, list[str]]:
    mesh = arrange(world, Layout(pipeline=2, expert=2))
    members = {name: getattr(mesh, name).gather(str(world.rank)) for name in GROUPS}
    assert all(members[name][getattr(mesh, name).rank] == str(world.rank) for name in GROUPS)
    # rows for rank r of the group: r + 1 of them from everybody, and none from the last
    ranks = mesh.data
    sends = [0 if ranks.rank == 3 else other + 1 for other in range(4)]
    arrivals = [0 if other == 3 else ranks.rank + 1 for other in range(4)]
    arrived = ranks.all_to_all(torch.full((sum(sends), 2), float(ranks.rank)), sends, arrivals)
    assert arrived[:, 0].tolist() == [float(other) for other in range(3) for _ in range(ranks.rank + 1)]
    # partitions that are the same share their communicators
    plain = arrange(world, Layout(pipeline=4))
    assert plain.data is plain.expert_data
    assert (plain.data.size, plain.expert.size, plain.pipeline.size) == (2, 1, 4)
    assert arrange(world, Layout()).data is world
    with pytest.raises(LayoutError, match=r"pipeline x expert = 3; use a multiple, such as 9"):
        arrange(world, Layout(pipeline=3))
    return members


def test_eight_ranks_know_their_groups() -> None:
    found = run_ranks(8, rank_work)
    assert found[0] == {"data": [*"0123"], "expert": [*"01"], "expert_data": [*"02"], "pipeline": [*"04"]}
    assert found[7] == {"data": [*"4567"], "expert": [*"67"], "expert_data": [*"57"], "pipeline": [*"37"]}
    for rank, members in enumerate(found):
        assert all(found[int(other)][name] == members[name] for name in GROUPS for other in members[name]), rank


def test_one_rank_is_a_mesh() -> None:
    assert arrange(World(), Layout()) == Mesh()
