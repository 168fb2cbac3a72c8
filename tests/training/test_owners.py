"""Matrices shared out over ranks: the cut, and steps of 2 and 4 gloo ranks beside one rank alone."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.training.ranks import run_ranks
from training import adamw
from training.config import MuonClipConfig
from training.dry_run import stand_in
from training.layout import Layout
from training.mesh import Mesh, arrange
from training.muonclip import MuonClip, MuonClipError, StepReport
from training.newton_schulz import newton_schulz_wide
from training.owners import Pieces
from training.parallel import World

# ------------------------------------------------------------------------------------------------------------- the cut


shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(dense=shapes, experts=st.one_of(st.just([]), shapes), data=st.integers(1, 4), expert=st.integers(1, 3))
def test_ranks_share_the_matrices_evenly(
    dense: list[tuple[int, int, int]], experts: list[tuple[int, int, int]], data: int, expert: int
) -> None:
    """Every matrix has one owner, and no rank's work exceeds an even share by more than one matrix."""
    muon = {f"d{at}": nn.Parameter(torch.zeros(shape)) for at, shape in enumerate(dense)}
    muon |= {f"e{at}": nn.Parameter(torch.zeros(shape)) for at, shape in enumerate(experts)}
    owned: list[str] = []
    costs, largest = [], 0
    for rank in range(data * expert):
        mesh = stand_in(Layout(expert=expert), rank, data * expert)
        first = {f"e{at}": mesh.expert.rank * count for at, (count, _, _) in enumerate(experts)}
        optimizer = MuonClip(muon, {}, mesh=mesh, experts=first)
        for stack in optimizer._stacks:
            owned += [stack.name(slot) for slot in stack.own]
            largest = max(largest, stack.cost)
        costs.append(sum(len(stack.own) * stack.cost for stack in optimizer._stacks))
    expected = [f"d{at}[{slot}]" for at, (count, _, _) in enumerate(dense) for slot in range(count)]
    expected += [f"e{at}[{slot}]" for at, (count, _, _) in enumerate(experts) for slot in range(count * expert)]
    assert sorted(owned) == sorted(expected)
    assert max(costs) <= sum(costs) / len(costs) + largest + 1e-6


def test_dense_matrices_fill_up_what_the_experts_left_uneven() -> None:
    """One expert matrix for two ranks that hold it: the other rank takes the dense ones."""
    muon = {
        "experts": nn.Parameter(torch.zeros(1, 8, 8)),
        **{f"d{at}": nn.Parameter(torch.zeros(4, 4)) for at in "abcd"},
    }
    loads = []
    for rank in range(4):
        optimizer = MuonClip(muon, {}, mesh=stand_in(Layout(expert=2), rank, 4), experts={"experts": rank % 2})
        loads.append({stack.sharded: len(stack.own) for stack in optimizer._stacks})
    assert sorted(load[True] for load in loads) == [0, 0, 1, 1]
    assert [load[False] for load in loads if load[True]] == [0, 0]
    assert [load[False] for load in loads if not load[True]] == [2, 2]


def test_results_leave_before_the_next_stack_computes_and_an_owner_that_did_not_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 0 of 2, whose peer never sends anything."""
    events: list[str] = []

    def compute(stack_GNM: Tensor, *how: Any) -> tuple[Tensor, Tensor, Tensor]:
        events.append(f"compute {len(stack_GNM)}")
        return newton_schulz_wide(stack_GNM, *how)

    def broadcast(world: World, tensor: Tensor, source: int) -> Callable[[], None]:
        events.append(f"{len(tensor)} from {source}")
        return lambda: events.append("arrived")

    monkeypatch.setattr("training.muonclip.newton_schulz_wide", compute)
    monkeypatch.setattr(World, "broadcast", broadcast)
    monkeypatch.setattr(World, "all_reduce", lambda world, tensor, operation="sum": tensor)
    monkeypatch.setattr(World, "gather", lambda world, text: [text])
    muon = {"many": nn.Parameter(torch.ones(20, 8, 8)), "few": nn.Parameter(torch.ones(4, 16, 16))}
    for parameter in muon.values():
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    optimizer = MuonClip(muon, {}, mesh=stand_in(Layout(), 0, 2))
    with pytest.raises(MuonClipError, match=r"few\[1\] was orthogonalised 0 times in one step"):
        optimizer.step()
    assert events[:5] == ["compute 20", "20 from 0", "compute 1", "1 from 0", "3 from 1"]
    assert events[5:] == ["arrived"] * 3
    assert all(bool((parameter == 1).all()) for parameter in muon.values())


@settings(max_examples=40, deadline=None)
@given(cuts=st.sets(st.integers(1, 19)), first=st.integers(0, 19), count=st.integers(1, 20))
def test_a_piece_is_read_out_of_pieces_and_no_others_are_looked_at(cuts: set[int], first: int, count: int) -> None:
    values = torch.arange(40.0).view(20, 2)
    bounds = [0, *sorted(cuts), 20]
    looked: list[str] = []

    class Lazy(dict[str, Tensor]):
        def __getitem__(self, key: str) -> Tensor:
            looked.append(key)
            return super().__getitem__(key)

    state = Lazy({f"mean/a/b/{at}": values[at:end] for at, end in pairwise(bounds)})
    target = torch.zeros(min(count, 20 - first), 2)
    Pieces(state).read("mean/a/b", first, target)
    assert torch.equal(target, values[first : first + len(target)])
    needed = [at for at, end in pairwise(bounds) if at < first + len(target) and end > first]
    assert looked == [f"mean/a/b/{at}" for at in needed]
    del state[f"mean/a/b/{needed[0]}"]
    with pytest.raises(MuonClipError, match="no mean for all of a/b"):
        Pieces(state).read("mean/a/b", first, target)


# -------------------------------------------------------------------------------------------------------- the processes

LAYERS, EXPERTS, STEPS = 2, 4, 3
SHAPES = {"q": (6, 9), "k": (6, 9), "tall": (10, 5), "router": (4, 8), "experts.up": (EXPERTS, 9, 6)}
SHAPES |= {"experts.down": (EXPERTS, 6, 9), "experts.bias": (EXPERTS, 3), "norm": (7,)}
TAU = 1.5


def drawn(name: str, shape: tuple[int, ...], step: int) -> Tensor:
    """The weight (step 0) or gradient of a parameter of the whole model."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(hash_of(f"{name}/{step}")))


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode(), "little") % (1 << 31)


class Part:
    """What a rank of a mesh holds of the model, and its optimizer."""

    def __init__(self, mesh: Mesh, dtype: torch.dtype = torch.float32) -> None:
        place, pipeline = mesh.place, mesh.layout.pipeline
        each = EXPERTS // mesh.layout.expert
        self.slices: dict[str, slice] = {}
        muon, rest, experts = {}, {}, {}
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(LAYERS):
            if layer % pipeline == place.pipeline:
                shapes |= {f"{layer}.{name}": shape for name, shape in SHAPES.items()}
        if place.pipeline == 0:
            shapes["embedding"] = (11, 7)
        for name, shape in shapes.items():
            here = slice(place.expert * each, (place.expert + 1) * each) if ".experts." in name else slice(None)
            if ".experts." in name:
                experts[name] = here.start
            parameter = nn.Parameter(drawn(name, shape, 0)[here].to(dtype))
            parameter.grad_dtype = torch.float32
            (rest if name.endswith(("norm", "bias", "embedding")) else muon)[name] = parameter
            self.slices[name] = here
        self.shapes, self.named = shapes, {**muon, **rest}
        attention = {
            layer: lambda gamma_H, layer=layer: [(self.named[f"{layer}.{kind}"], self.rows(gamma_H)) for kind in "qk"]
            for layer in range(LAYERS)
            if f"{layer}.q" in muon
        }
        config = MuonClipConfig(newton_schulz_dtype="float32", tau=TAU)
        self.optimizer = MuonClip(muon, rest, config, attention, 0.1, mesh, experts)

    @staticmethod
    def rows(gamma_H: Tensor) -> Tensor:
        return gamma_H.sqrt().repeat_interleave(3)

    def step(self, number: int) -> StepReport:
        for name, parameter in self.named.items():
            parameter.grad = drawn(name, self.shapes[name], number)[self.slices[name]].clone()
        maxima_LH = drawn("maxima", (LAYERS, 2), number).abs() * 2
        self.optimizer.step(max_logits_LH=maxima_LH)
        assert self.optimizer.last_report is not None
        return self.optimizer.last_report

    def assert_like(self, whole: Mapping[str, Tensor], atol: float) -> None:
        for name, parameter in self.named.items():
            torch.testing.assert_close(parameter.detach(), whole[name][self.slices[name]], rtol=0, atol=atol)


def same_report(one: StepReport, other: StepReport) -> None:
    assert (one.matrices, one.idle, one.clipped_heads) == (other.matrices, other.idle, other.clipped_heads)
    assert one.update_rms == pytest.approx(other.update_rms, rel=1e-4)
    assert one.update_rms_lowest == pytest.approx(other.update_rms_lowest, rel=1e-4)
    assert one.gamma_LH is not None
    assert other.gamma_LH is not None
    assert torch.equal(one.gamma_LH, other.gamma_LH)


def meshes(world: World) -> dict[str, Mesh]:
    """All ways to arrange four ranks, and two beside two others that do the same."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = World(world.rank % 2, 2, group=pairs[world.rank // 2])
    return {
        "data 2": Mesh(world=pair, data=pair, expert_data=pair),
        "expert 2": Mesh(Layout(expert=2), pair, data=pair, expert=pair),
        "data 4": arrange(world, Layout()),
        "data 2 x expert 2": arrange(world, Layout(expert=2)),
        "expert 4": arrange(world, Layout(expert=4)),
        "pipeline 2 x expert 2": arrange(world, Layout(pipeline=2, expert=2)),
        "pipeline 2 x data 2": arrange(world, Layout(pipeline=2)),
    }


def four_ranks(world: World, folder: Path) -> None:
    """Everything that takes processes, one after the other."""
    adamw.PACKED = 8  # so that there are long pieces too
    every = meshes(world)
    for dtype, atol in ((torch.float32, 1e-5), (torch.bfloat16, 2**-6)):
        alone = Part(Mesh(), dtype)
        reports = [alone.step(number) for number in range(1, STEPS + 1)]
        assert sum(report.clipped_heads for report in reports) > 0
        halfway = {name: parameter.detach().clone() for name, parameter in alone.named.items()}
        last = alone.step(STEPS + 1)
        for name, mesh in every.items():
            part = Part(mesh, dtype)
            for number, expected in enumerate(reports, start=1):
                same_report(part.step(number), expected)
            part.assert_like(halfway, atol)
            mesh.expert_data.assert_equal("weights", list(part.named.values()))
            assert torch.equal(part.optimizer.clips_LH, sum((r.gamma_LH < 1).long() for r in reports))
            state = part.optimizer.state_dict()
            save_file(state, folder / f"{name}-{dtype}-{mesh.world.rank}")
            world.barrier()
        # any layout goes on from any other's state, here from the next one's
        for mesh, origin in zip(every.values(), [*list(every)[1:], next(iter(every))], strict=True):
            part = Part(mesh, dtype)
            joined: dict[str, Tensor] = {}
            for path in sorted(folder.glob(f"{origin}-{dtype}-*")):
                share = load_file(path)
                assert not joined.keys() & share.keys(), origin
                joined |= share
            for key, parameter in part.named.items():
                parameter.data.copy_(halfway[key][part.slices[key]])
            part.optimizer.load_state_dict(joined)
            same_report(part.step(STEPS + 1), last)
            part.assert_like({key: value.detach() for key, value in alone.named.items()}, atol)
    refusals(every["pipeline 2 x expert 2"], every["data 2 x expert 2"])


def refusals(cut: Mesh, mixed: Mesh) -> None:
    """What one rank alone can see is the same error on all, nothing has changed, and the next step works."""
    for mesh in (cut, mixed):
        part = Part(mesh)
        before = {name: parameter.detach().clone() for name, parameter in part.named.items()}
        for name, parameter in part.named.items():
            parameter.grad = drawn(name, part.shapes[name], 1)[part.slices[name]].clone()
        if "1.experts.up" in part.named and mesh.place.expert == 1:
            gradient = part.named["1.experts.up"].grad
            assert gradient is not None
            gradient[1, 2, 3] = float("nan")
        with pytest.raises(MuonClipError, match=r"1\.experts\.up\[3\] has a gradient that is NaN"):
            part.optimizer.step()
        if "embedding" in part.named:
            part.named["embedding"].grad = None
        with pytest.raises(MuonClipError, match="embedding has no gradient"):
            part.optimizer.step()
        for name, parameter in part.named.items():
            assert torch.equal(parameter, before[name])
        part.optimizer.param_groups[0]["lr"] = part.optimizer.param_groups[-1]["lr"] = 0.1 + 0.1 * mesh.world.rank
        for parameter in part.named.values():
            parameter.grad = torch.ones_like(parameter)
        with pytest.raises(MuonClipError, match="do not have the same learning rate"):
            part.optimizer.step()
        for group in part.optimizer.param_groups:
            group["lr"] = 0.1
        part.step(1)


def test_ranks_in_every_layout_step_as_one_rank_does(tmp_path: Path) -> None:
    assert run_ranks(4, lambda world: four_ranks(world, tmp_path)) == [None] * 4
