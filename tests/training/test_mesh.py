"""The groups of a mesh among eight real gloo processes."""

import multiprocessing
import os
from typing import Any

import pytest
import torch

from training.layout import Layout, LayoutError
from training.mesh import Mesh, arrange
from training.parallel import World, join

GROUPS = ("data", "expert", "expert_data", "pipeline")


def rank_work(rank: int, port: int, results: "multiprocessing.Queue[tuple[int, Any]]") -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        with join(timeout_seconds=60) as world:
            mesh = arrange(world, Layout(pipeline=2, expert=2))
            members = {name: getattr(mesh, name).gather_texts(str(rank)) for name in GROUPS}
            assert all(members[name][getattr(mesh, name).rank] == str(rank) for name in GROUPS)
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
            results.put((rank, members))
    except BaseException as error:
        results.put((rank, repr(error)))
        raise


def test_eight_ranks_know_their_groups() -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    port = 35_000 + os.getpid() % 5_000
    processes = [context.Process(target=rank_work, args=(rank, port, results)) for rank in range(8)]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=90) for _ in processes)
    for process in processes:
        process.join(30)
    assert found[0] == {"data": [*"0123"], "expert": [*"01"], "expert_data": [*"02"], "pipeline": [*"04"]}
    assert found[7] == {"data": [*"4567"], "expert": [*"67"], "expert_data": [*"57"], "pipeline": [*"37"]}
    for rank, members in found.items():
        assert all(found[int(other)][name] == members[name] for name in GROUPS for other in members[name]), rank


def test_one_rank_is_a_mesh() -> None:
    assert arrange(World(), Layout()) == Mesh()
