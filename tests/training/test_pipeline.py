"""A network cut over pipeline ranks gives the losses, gradients, maxima and counts of the whole one."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.nn.utils import get_total_norm
from torch.testing._internal.distributed.fake_pg import FakeStore

from model.config import YarnConfig
from model.transformer import Transformer
from tests.training.ranks import among, free_ports, outcomes, start
from tests.training.runs import MODEL, VOCABULARY, job, lines, trainer_of
from training.checkpoint import load_model
from training.config import PretrainConfig
from training.engine import Engine
from training.expert_parallel import network
from training.layout import Layout
from training.loader import Batch
from training.mesh import Mesh, arrange
from training.parallel import World
from training.pipeline import PipelineEngine
from training.pretrain import next_token
from training.replicas import Replicas
from training.samples import IGNORED
from training.trainer import Trainer

STAGES = [
    {"name": "constant", "updates": 8, "sequence_length": 32, "batch": 7, "rate": {"start": 0.005, "end": 0.005}},
    {"name": "longer", "updates": 2, "sequence_length": 64, "batch": 3, "yarn_factor": 2},
]
LAYERS = 6
DEVICE = torch.device("cpu")


def config_of(layout: Layout, **changes: Any) -> PretrainConfig:
    run = {"micro_batch": 2, "layout": layout.model_dump(), **changes.pop("run", {})}
    model = {**MODEL, "num_hidden_layers": LAYERS, "aux_loss_alpha": 0.1, "initializer_range": 0.1}
    model |= changes.pop("model", {})
    return PretrainConfig.model_validate({"model": model, "stages": STAGES, "dtype": "float32", "run": run, **changes})


def batch_of(samples: int, length: int, rows: range | None = None) -> Batch:
    """A global batch with documents and a padded end, or some rows of it."""
    draw = torch.Generator().manual_seed(samples + length)
    tokens_BS = torch.randint(2, VOCABULARY, (samples, length), generator=draw)
    targets_BS = torch.randint(2, VOCABULARY, (samples, length), generator=draw)
    documents_BS = (torch.arange(length) // 9).repeat(samples, 1).int()
    documents_BS[-1, -5:], targets_BS[-1, -5:] = -1, IGNORED
    part = slice(None) if rows is None else slice(rows.start, rows.stop)
    zeros_B = torch.zeros(samples, dtype=torch.int64)[part]
    return Batch(tokens_BS[part], targets_BS[part], zeros_B, zeros_B, 1, documents_BS[part])


def stages_of(engine: PipelineEngine) -> list[PipelineStage]:
    """The stages of all its schedules."""
    schedules = engine._schedules.values()
    return [stage for each in schedules for stage in (each._stages if hasattr(each, "_stages") else [each._stage])]


def buffers(engine: PipelineEngine) -> int:
    """Tensors that this rank holds to receive into."""
    infos = [
        info
        for stage in stages_of(engine)
        for by in (stage.args_recv_info, stage.grad_recv_info)
        for info in by.values()
    ]
    return sum(each.buffer is not None and not each.buffer.is_meta for info in infos for each in info)


def compare(
    world: World, layout: Layout, samples: int, length: int, rounds: int = 1, yarn: float | None = None, **changes: Any
) -> None:
    """Rounds of training, each with an evaluation after it, cut by `layout` and whole."""
    config = config_of(layout, **changes)
    mesh = arrange(world, layout, 60)
    layers = layout.held(config.model, mesh.pipeline.rank)
    cut = network(config.model, 3, mesh.expert, DEVICE, layers)
    whole, replicas = network(config.model, 3, World(), DEVICE), Replicas(cut, mesh)
    whole.memory = cut.memory = config.run.memory
    received = [0]

    def beat(what: str) -> None:
        received.append(buffers(engine))

    engine = PipelineEngine(cut, mesh, DEVICE, config.dtype, beat)
    alone = Engine(whole, Mesh(), DEVICE, config.dtype, lambda what: None)
    for model in (cut, whole):
        if yarn:
            model.set_yarn(YarnConfig(factor=yarn, original_max_position_embeddings=32), int(32 * yarn))
    close = {"float32": {"rtol": 1e-4, "atol": 1e-6}, "bfloat16": {"rtol": 0.05, "atol": 2e-3}}[config.dtype]
    how = config.run.micro_batch, config.separate_documents
    dense, held = config.model.first_k_dense_replace, torch.tensor(engine.layers)
    for scale in range(1, rounds + 1):
        batch, mine = batch_of(samples, length), batch_of(samples, length, mesh.data.share(samples))
        targets = scale * float((batch.targets_BS != IGNORED).sum())
        for model in (cut, whole):
            model.zero_grad()
        sums = engine.train(next_token(mine, targets, samples, *how))
        want = alone.train(next_token(batch, targets, samples, *how))
        replicas.reduce_gradients()
        expected = {name: parameter.grad for name, parameter in whole.named_parameters()}
        for name, parameter in cut.named_parameters():
            first, _ = replicas.cuts.get(name, (0, 0))
            part = expected[name][first : first + len(parameter)]
            torch.testing.assert_close(parameter.grad, part, **close, msg=lambda text, name=name: f"{name}: {text}")
        norm = get_total_norm(list(expected.values()))
        assert replicas.clip_gradients(1e9) == pytest.approx(
            float(norm), rel=0.02 if config.dtype == "bfloat16" else 1e-5
        )
        if config.dtype == "float32":
            for have, expected in ((sums.loss, want.loss), (sums.aux_loss, want.aux_loss)):
                torch.testing.assert_close(world.all_reduce(have.clone()), expected, rtol=1e-5, atol=1e-7)
            maxima_LH = mesh.data.all_reduce(sums.max_logits_LH.clone(), "max")
            torch.testing.assert_close(maxima_LH, want.max_logits_LH[held], rtol=1e-5, atol=1e-6)
            counts_LE = mesh.data.all_reduce(sums.expert_counts_LE.clone())
            assert torch.equal(counts_LE, want.expert_counts_LE[held[held >= dense] - dense])
        nll = world.all_reduce(engine.evaluate(next_token(batch_of(3, length, mesh.data.share(3)), 1.0, 3, *how)).loss)
        expected = alone.evaluate(next_token(batch_of(3, length), 1.0, 3, *how)).loss
        torch.testing.assert_close(nll, expected, rtol=close["rtol"], atol=1e-6)
    # what is received has memory while it is on its way, however many micro-batches there are
    assert max(received) <= 2 * layout.virtual - 1
    assert buffers(engine) == 0
    assert not any(stage.fwd_cache for stage in stages_of(engine))
    names = [name for rank in mesh.pipeline.gather("\n".join(cut.state_dict())) for name in rank.split("\n")]
    assert sorted(names) == sorted(whole.state_dict())


def single_updates(world: World) -> None:
    """Layouts of four ranks. Shares of 7 samples are uneven, so that there are micro-batches without samples."""
    torch.manual_seed(0)
    compare(world, Layout(pipeline=2), 7, 32, rounds=2)
    compare(world, Layout(pipeline=2, virtual=2), 11, 16, run={"micro_batch": 1})
    compare(world, Layout(pipeline=2, virtual=2, expert=2), 6, 32, rounds=2, run={"memory": {"recompute": ["layers"]}})
    memory = {"recompute": ["mla_up", "norms"]}
    compare(world, Layout(pipeline=2, expert=2), 6, 32, model={"q_lora_rank": None}, run={"memory": memory})
    compare(world, Layout(pipeline=4), 9, 48, yarn=2.0, run={"memory": {"recompute": ["norms", "swiglu"]}})
    compare(world, Layout(pipeline=2, virtual=3), 1, 16, dtype="bfloat16", separate_documents=False)


RUNS = {
    "pipeline": Layout(pipeline=2),
    "virtual": Layout(pipeline=2, virtual=2),
    "expert": Layout(pipeline=2, expert=2),
}


def run_of(shards: Path, work: Path, mesh: Mesh) -> Trainer:
    """Ten updates in two stages, with evaluations; float32 throughout, so that layouts can be compared."""
    exact = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32", "tau": 0.05}}
    model = {**MODEL, "num_hidden_layers": 4}
    run = {"micro_batch": 2, "layout": mesh.layout.model_dump()}
    return trainer_of(job(shards, work, run, model=model, stages=STAGES, **exact), mesh)


def train(world: World, name: str, shards: Path, folder: Path) -> None:
    """A whole run, and its last two updates once more from a checkpoint: the same bytes."""
    ended: list[dict[str, Tensor]] = []
    for again in range(2):
        if again and world.rank == 0:
            for gone in ("final", "checkpoints/update-00000009", "checkpoints/update-00000010"):
                shutil.rmtree(folder / name / gone)
        world.barrier()
        trainer = run_of(shards, folder / name, arrange(world, RUNS[name], 60))
        assert trainer.run() == 0
        ended.append({key: tensor.clone() for key, tensor in trainer.model.state_dict().items()})
    assert all(torch.equal(ended[1][key], tensor) for key, tensor in ended[0].items())


@pytest.fixture(scope="module")
def left(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four processes left of their runs, having compared single updates of many layouts before."""
    folder, ports = tmp_path_factory.mktemp("pipelines"), free_ports(3)

    def work(rank: int) -> None:
        with among(rank, 4, ports[0]) as world:
            single_updates(world)
            train(world, "expert", shards, folder)
        with among(rank % 2, 2, ports[1 + rank // 2]) as world:
            train(world, "virtual" if rank // 2 else "pipeline", shards, folder)

    assert outcomes(*start(4, work)) == dict.fromkeys(range(4))
    return folder


@pytest.fixture(scope="module")
def alone(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    """The run of one rank that all others are compared with."""
    work = tmp_path_factory.mktemp("alone")
    trainer = run_of(shards, work, Mesh())
    assert trainer.run() == 0
    return trainer, work


@pytest.mark.parametrize("name", RUNS)
def test_every_layout_trains_as_one_rank_does(left: Path, alone: tuple[Trainer, Path], name: str) -> None:
    trainer, work = alone
    compared = ("loss", "aux_loss", "gradient_norm", "max_logit_by_layer", "clipped_heads", "update_rms", "losses")
    clipped = 0
    for mine, other in zip(lines(left / name), lines(work), strict=True):
        assert mine.keys() == other.keys()
        clipped += other.get("clipped_heads", 0)
        for key in compared:
            if key in other:
                assert mine[key] == pytest.approx(other[key], rel=2e-3, abs=1e-4), (mine["step"], key)
    assert clipped > 0
    final = load_model(left / name / "final").state_dict()
    for key, expected in trainer.model.state_dict().items():
        torch.testing.assert_close(final[key], expected, rtol=0, atol=2e-3, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("virtual", [1, 2, 3])
def test_padding_fills_what_the_schedule_needs(virtual: int) -> None:
    """torch takes the number of micro-batches that the layout gives, and none between what is asked and that."""

    def schedule(micro_batches: int) -> None:
        stages = [PipelineStage(torch.nn.Identity(), 4 * piece, 4 * virtual, DEVICE) for piece in range(virtual)]
        if virtual == 1:
            Schedule1F1B(stages[0], micro_batches)
        else:
            ScheduleInterleaved1F1B(stages, micro_batches)

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        for count in range(1, 15):
            filled = Layout(pipeline=4, virtual=virtual).micro_batches(count)
            schedule(filled)
            for fewer in range(count, filled):
                with pytest.raises(ValueError, match="umber of microbatches"):
                    schedule(fewer)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("virtual", "count"), [(2, 4), (2, 5), (2, 8), (3, 12)])
def test_ranks_wait_as_little_as_the_schedule_promises(virtual: int, count: int) -> None:
    """torch's order, counted through: (P - 1) / (V M + P - 1) of the time, where a backward takes two forwards."""
    ranks, last = 4, 4 * virtual - 1
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        stages = [PipelineStage(torch.nn.Identity(), ranks * piece, last + 1, DEVICE) for piece in range(virtual)]
        order = ScheduleInterleaved1F1B(stages, count).pipeline_order
    finally:
        dist.destroy_process_group()
    left = {rank: [str(action) for action in actions if action is not None] for rank, actions in order.items()}
    ended: dict[str, int] = {}
    clocks = [0] * ranks
    while any(left.values()):
        ready = []
        for rank, actions in left.items():
            if actions:
                piece, kind, number = re.fullmatch(r"(\d+)([FB])(\d+)", actions[0]).groups()
                before = [f"{int(piece) - 1}F{number}"] if kind == "F" and int(piece) else []
                if kind == "B":
                    before = [f"{last}F{number}" if int(piece) == last else f"{int(piece) + 1}B{number}"]
                if all(each in ended for each in before):
                    ready.append(
                        (rank, 1 if kind == "F" else 2, max([clocks[rank], *(ended[each] for each in before)]))
                    )
        assert ready, "no rank can go on"
        for rank, takes, begins in ready:
            clocks[rank] = ended[left[rank].pop(0)] = begins + takes
    waits = 1 - 3 * virtual * count / max(clocks)
    assert waits == pytest.approx((ranks - 1) / (virtual * count + ranks - 1))


def lose(layout: Layout, number: signal.Signals) -> Callable[[int], None]:
    """Training in which rank 0 gets a signal in the middle of its second update."""
    (port,) = free_ports(1)

    def work(rank: int) -> None:
        # a rank that is killed is noticed at once, one that is silent by the time alone
        with among(rank, 3, port, timeout=6 if number == signal.SIGSTOP else 300) as world:
            train_until_lost(world)

    def train_until_lost(world: World) -> None:
        config, beats = config_of(layout), itertools.count()
        mesh = arrange(world, layout, 3)
        model = Transformer(config.model, layers=layout.held(config.model, world.rank))

        def beat(what: str) -> None:
            if world.rank == 0 and next(beats) == 6 * layout.virtual + 4:
                os.kill(os.getpid(), number)

        engine = PipelineEngine(model, mesh, DEVICE, config.dtype, beat)
        for _ in range(3):
            engine.train(next_token(batch_of(12, 32), 1.0, 12, config.run.micro_batch))

    return work


@pytest.mark.parametrize(
    ("layout", "number"),
    [(Layout(pipeline=3), signal.SIGKILL), (Layout(pipeline=3, virtual=2), signal.SIGSTOP)],
    ids=["killed", "silent"],
)
def test_a_lost_rank_ends_the_others(layout: Layout, number: signal.Signals) -> None:
    processes, results = start(3, lose(layout, number))
    ended = outcomes(processes[1:], results)
    processes[0].kill()
    processes[0].join(120)
    assert [*ended] == [1, 2]
    for outcome in ended.values():
        assert re.match("RankError: another rank has ended or did not answer in time: look for the first", outcome)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 1, 1]


def test_the_error_of_a_piece_is_told_as_it_is() -> None:
    """Rank 1's piece raises: that error, not torch's, is the one that the rank ends with."""
    config, layout, (port,) = config_of(Layout(pipeline=2)), Layout(pipeline=2), free_ports(1)

    def work(rank: int) -> None:
        def beat(what: str) -> None:
            if rank == 1:
                raise MemoryError("no room for the experts")

        with among(rank, 2, port) as world:
            model = Transformer(config.model, layers=layout.held(config.model, rank))
            engine = PipelineEngine(model, arrange(world, layout, 3), DEVICE, config.dtype, beat)
            engine.train(next_token(batch_of(4, 32), 1.0, 4, config.run.micro_batch))

    ended = outcomes(*start(2, work))
    assert ended[1] == "MemoryError: no room for the experts"
    assert ended[0].startswith("RankError: another rank has ended")
