"""Experts on several ranks, among real gloo processes: one layer, whole runs by every layout, and a lost rank."""

import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from model.config import ModelConfig
from model.footprint import MemoryConfig
from model.memory import Keep
from model.moe import MixtureOfExperts
from model.transformer import Transformer
from tests.training.ranks import among, free_ports, start
from tests.training.runs import MODEL, job, lines, trainer_of
from training import checkpoint
from training.engine import filled_up
from training.expert_parallel import ParallelExperts, network, pieces
from training.job import JobError
from training.layout import Layout, LayoutError
from training.loader import Batch
from training.mesh import Mesh, arrange
from training.parallel import RankError, World
from training.pretrain import next_token
from training.trainer import Trainer
from training.watchdog import Watchdog

SPARSE = {**MODEL, "first_k_dense_replace": 0}
"""Both layers with experts."""
STAGES = [
    {"name": "constant", "updates": 8, "sequence_length": 32, "batch": 5, "rate": {"start": 0.005, "end": 0.005}},
    {"name": "longer", "updates": 2, "sequence_length": 64, "batch": 2, "yarn_factor": 2},
]
"""Batches that no world divides; of the last two, half of four ranks have no sample at all."""
RUNS: dict[str, dict[str, Any]] = {
    "data": {},
    "expert": {"layout": {"expert": 2}, "memory": {"recompute": ["norms", "swiglu", "moe_down", "dispatch"]}},
    "data x expert": {"layout": {"expert": 2}, "memory": {"recompute": ["layers"]}},
}
LOST = {"layout": {"expert": 2}, "checkpoint_every": 2, "checkpoint_in_background": False}


def run_of(shards: Path, work: Path, mesh: Mesh, run: dict[str, Any], watchdog: Watchdog | None = None) -> Trainer:
    exact = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}}
    values = job(shards, work, {"micro_batch": 1, **run}, model=SPARSE, stages=STAGES, **exact)
    return trainer_of(values, mesh, watchdog)


# ----------------------------------------------------------------------------------------------------------- one rank


def test_a_torch_that_loses_gradients_of_bfloat16_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(nn.Parameter):
        grad_dtype = None  # a plain attribute, which nobody heeds

    config = ModelConfig.model_validate(MODEL)
    made = network(config, 0, World(), torch.device("cpu"), weights=torch.bfloat16)
    assert {parameter.grad_dtype for parameter in made.parameters()} == {torch.float32}
    monkeypatch.setattr(nn, "Parameter", Old)
    network(config, 0, World(), torch.device("cpu"))
    with pytest.raises(JobError, match=r"sums gradients of torch\.bfloat16 in torch\.bfloat16: install torch 2\.13"):
        network(config, 0, World(), torch.device("cpu"), weights=torch.bfloat16)


class Death(Watchdog):
    """Ends the process in the middle of its third update, as a machine that is lost."""

    def __init__(self) -> None:
        super().__init__(None)
        self.updates = 0

    def beat(self, what: str) -> None:
        self.updates += what.startswith("update")
        if self.updates == 3 and what == "a micro-batch":
            os.kill(os.getpid(), signal.SIGKILL)


def layers_agree(mesh: Mesh) -> None:
    """Outputs, counts and all gradients are those of a layer with all experts, also where a rank gets no row."""
    config = ModelConfig.model_validate(SPARSE)
    whole = Transformer(config, seed=5).blocks()[1].mlp
    part = network(config, 5, mesh.expert, torch.device("cpu")).blocks()[1].mlp
    assert isinstance(whole, MixtureOfExperts)
    assert isinstance(part, MixtureOfExperts)
    assert isinstance(part.experts, ParallelExperts)
    held = slice(part.experts.held.start, part.experts.held.stop)
    recomputed = MemoryConfig(recompute=("moe_down", "dispatch", "swiglu"))
    for nobody, memory in (
        (False, MemoryConfig()),
        (True, recomputed),
        (False, MemoryConfig(fp8=("expert_inputs",))),  # rounds row by row: the same rows, wherever they are
    ):
        for layer in (whole, part):
            layer.zero_grad()
            layer.gate.e_score_correction_bias.zero_()
            if nobody:  # every token to the experts of the first ranks
                layer.gate.e_score_correction_bias[2:] = -10
        draw = torch.Generator().manual_seed(7)
        everyones = [torch.randn(2, 3 + rank, 32, generator=draw) for rank in range(mesh.expert.size)]
        mine = everyones[mesh.expert.rank]

        def through(layer: MixtureOfExperts, x: Tensor, memory: MemoryConfig) -> tuple[Tensor, Tensor, Tensor]:
            x_BSD = x.clone().requires_grad_()
            with Keep(memory) as keep:
                y_BSD, balance, counts_E = layer(x_BSD, keep=keep)
            (y_BSD.sin().sum() + balance).backward()
            assert x_BSD.grad is not None
            return y_BSD.detach(), counts_E, x_BSD.grad

        y_BSD, counts_E, dx_BSD = through(part, mine, memory)
        for rank, x in enumerate(everyones):
            expected = through(whole, x, memory)
            if rank == mesh.expert.rank:
                torch.testing.assert_close((y_BSD, dx_BSD), (expected[0], expected[2]), rtol=1e-5, atol=1e-6)
                assert torch.equal(counts_E, expected[1])
        for name, parameter in part.experts.named_parameters():
            reference = whole.experts.get_parameter(name)
            assert torch.equal(parameter, reference[held])
            assert reference.grad is not None
            torch.testing.assert_close(parameter.grad, reference.grad[held], rtol=1e-5, atol=1e-6)
        assert not nobody or mesh.expert.rank < 2 or all(not p.grad.any() for p in part.experts.parameters())


def trained(name: str, shards: Path, folder: Path, world: World) -> Trainer:
    mesh = arrange(world, Layout(**RUNS[name].get("layout", {})))
    trainer = run_of(shards, folder / name, mesh, RUNS[name])
    trainer.run()
    save_file(trainer.model.state_dict(), folder / f"{name}-{world.rank}.safetensors")
    return trainer


def goes_on_bit_for_bit(first: Trainer, shards: Path) -> None:
    """From the checkpoint of update 6, in the same layout."""
    work, mesh = first.work, first.mesh
    if mesh.world.rank == 0:
        shutil.rmtree(work / "final")
        for directory in checkpoint.checkpoints(work / "checkpoints"):
            if checkpoint.number(directory) > 6:
                shutil.rmtree(directory)
    mesh.world.barrier()
    again = run_of(shards, work, mesh, RUNS["data x expert"])
    assert again.run() == 0
    for one, other in ((first.model, again.model), (first.optimizer, again.optimizer)):
        expected, got = one.state_dict(), other.state_dict()
        assert expected.keys() == got.keys()
        assert all(torch.equal(tensor, got[name]) for name, tensor in expected.items())


def rank_work(rank: int, ports: list[int], shards: Path, folder: Path) -> None:
    with among(rank, 4, ports[0]) as world:
        layers_agree(arrange(world, Layout(expert=4)))
        goes_on_bit_for_bit(trained("data x expert", shards, folder, world), shards)
    with among(rank % 2, 2, ports[1 + rank // 2]) as world:
        with pytest.raises(LayoutError, match="2 ranks do not hold whole copies"):
            arrange(world, Layout(expert=4))
        trained("expert" if rank // 2 else "data", shards, folder, world)
    with among(rank, 4, ports[3]) as world:
        mesh = arrange(world, Layout(expert=2))
        lost = run_of(shards, folder / "lost", mesh, LOST, Death() if rank == 3 else None)
        with pytest.raises(RankError, match="another rank has ended"):
            lost.run()
        os._exit(0)  # the process group of a lost rank cannot be taken down in order


# ---------------------------------------------------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def ranks(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four processes left; the fourth was killed at last."""
    folder = tmp_path_factory.mktemp("ranks")
    ports = free_ports(4)
    processes, _ = start(4, lambda rank: rank_work(rank, ports, shards, folder))
    for process in processes:
        process.join(500)
    assert [process.exitcode for process in processes] == [0, 0, 0, -signal.SIGKILL]
    return folder


@pytest.fixture(scope="module")
def alone(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    """The run of one rank that all others are compared with."""
    work = tmp_path_factory.mktemp("alone")
    trainer = run_of(shards, work, Mesh(), {"micro_batch": 4})
    assert trainer.run() == 0
    return trainer, work


@pytest.mark.parametrize("name", RUNS)
def test_every_layout_trains_as_one_rank_does(ranks: Path, alone: tuple[Trainer, Path], name: str) -> None:
    trainer, work = alone
    for mine, other in zip(lines(ranks / name), lines(work), strict=True):
        assert mine.keys() == other.keys()
        for key in (
            "loss",
            "aux_loss",
            "gradient_norm",
            "max_logit_by_layer",
            "update_rms",
            "expert_load_max_by_layer",
        ):
            if key in other:
                assert mine[key] == pytest.approx(other[key], rel=1e-5), (mine["step"], key)
        if "losses" in other:
            assert mine["losses"] == pytest.approx(other["losses"], rel=1e-5)
    size = 4 if name == "data x expert" else 2
    states = [load_file(ranks / f"{name}-{rank}.safetensors") for rank in range(size)]
    cut = pieces(network(trainer.config.model, 0, World(0, 2), torch.device("meta"))) if name != "data" else {}
    final = checkpoint.load_model(ranks / name / "final").state_dict()
    for key, expected in trainer.model.state_dict().items():
        if key in cut:
            held = [states[rank][key] for rank in range(size)]
            assert all(torch.equal(held[rank], held[rank % 2]) for rank in range(size))
            got = torch.cat(held[:2])
        else:
            got = states[0][key]
            assert all(torch.equal(state[key], got) for state in states)
        assert torch.equal(got, final[key])
        if key.endswith("e_score_correction_bias"):  # the counts of all tokens, ten times
            assert torch.equal(got, expected)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_the_first_counts_are_those_of_one_rank(ranks: Path, alone: tuple[Trainer, Path]) -> None:
    for name in RUNS:
        first, other = lines(ranks / name)[0], lines(alone[1])[0]
        assert first["expert_load_max_by_layer"] == other["expert_load_max_by_layer"]
        assert math.isclose(first["loss"], other["loss"], rel_tol=1e-6)


def test_one_rank_finishes_what_four_began_until_one_was_lost(
    shards: Path, ranks: Path, alone: tuple[Trainer, Path]
) -> None:
    assert [path.name for path in checkpoint.checkpoints(ranks / "lost" / "checkpoints")] == ["update-00000002"]
    finished = run_of(shards, ranks / "lost", Mesh(), {"micro_batch": 4})
    assert finished.run() == 0
    for name, expected in alone[0].model.state_dict().items():
        torch.testing.assert_close(finished.model.state_dict()[name], expected, rtol=0, atol=1e-5)


@given(samples=st.integers(1, 20), size=st.integers(1, 4), world=st.integers(1, 6))
def test_every_rank_makes_as_many_forwards(samples: int, size: int, world: int) -> None:
    most = math.ceil(math.ceil(samples / world) / size)
    tokens_BS = torch.arange(samples)[:, None].repeat(1, 3)
    real = []
    for rank in range(world):
        share = World(rank, world).share(samples)
        mine_BS = tokens_BS[share.start : share.stop]
        batch = Batch(mine_BS, mine_BS, mine_BS[:, 0], mine_BS[:, 0], end_of_document=-1)
        found = filled_up(next_token(batch, 1.0, samples, size, separate_documents=False), most)
        assert len(found) == most
        for part in found:
            assert 1 <= len(part.tokens_BS) <= size
            if part.document_ids_BS is None:
                real += part.tokens_BS[:, 0].tolist()
            else:  # padding
                assert bool((part.document_ids_BS < 0).all())
                hidden_BSD = torch.ones(*part.tokens_BS.shape, 8)
                assert part.loss(Transformer(ModelConfig.model_validate(SPARSE)), hidden_BSD) == (0, {})
    assert real == list(range(samples))


def test_pieces_name_what_a_rank_holds_a_part_of() -> None:
    config = ModelConfig.model_validate(SPARSE)
    whole = Transformer(config, seed=3)
    parts = [network(config, 3, World(rank, 2), torch.device("cpu")) for rank in range(2)]
    assert pieces(whole) == pieces(network(config, 3, World(), torch.device("cpu"))) == {}
    assert len(pieces(parts[1])) == 6
    for name, expected in whole.state_dict().items():
        if name in pieces(parts[1]):
            assert [pieces(part)[name] for part in parts] == [(0, 4), (2, 4)]
            assert torch.equal(torch.cat([part.state_dict()[name] for part in parts]), expected)
        else:
            assert all(torch.equal(part.state_dict()[name], expected) for part in parts)
