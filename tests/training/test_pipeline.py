"""A network cut over pipeline ranks gives the losses, gradients, maxima and counts of the whole one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B

from model.config import YarnConfig
from model.transformer import Transformer
from tests.training.runs import MODEL, STAGES, VOCABULARY
from training.config import PretrainConfig
from training.engine import Engine
from training.layout import Layout
from training.loader import Batch
from training.mesh import Mesh, arrange
from training.parallel import RankError, World, join
from training.pipeline import PipelineEngine
from training.samples import IGNORED

LAYERS = 6
DEVICE = torch.device("cpu")


def config_of(layout: Layout, **changes: Any) -> PretrainConfig:
    run = {"micro_batch": 2, "layout": layout.model_dump(), **changes.pop("run", {})}
    model = {**MODEL, "num_hidden_layers": LAYERS, "aux_loss_alpha": 0.1, "initializer_range": 0.1}
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


def compare(world: World, layout: Layout, samples: int, length: int, yarn: float | None = None, **changes: Any) -> None:
    """Two rounds of training and an evaluation between them, cut by `layout` and whole."""
    config = config_of(layout, **changes)
    mesh = arrange(world, layout, 60)
    pieces = layout.layers(config.model)[mesh.pipeline.rank :: layout.pipeline]
    cut = Transformer(config.model, seed=3, layers=[layer for piece in pieces for layer in piece])
    whole = Transformer(config.model, seed=3)
    whole.memory = cut.memory = config.run.memory
    engine = PipelineEngine(cut, config, mesh, DEVICE, lambda what: None)
    alone = Engine(whole, config, Mesh(), DEVICE, lambda what: None)
    for model in (cut, whole):
        if yarn:
            model.set_yarn(YarnConfig(factor=yarn, original_max_position_embeddings=32), int(32 * yarn))
    close = {"float32": {"rtol": 1e-4, "atol": 1e-6}, "bfloat16": {"rtol": 0.05, "atol": 2e-3}}[config.dtype]
    dense, held = config.model.first_k_dense_replace, torch.tensor(engine.layers)
    for scale in (1, 2):
        batch, mine = batch_of(samples, length), batch_of(samples, length, mesh.data.share(samples))
        targets = scale * float((batch.targets_BS != IGNORED).sum())
        for model in (cut, whole):
            model.zero_grad()
        sums, want = engine.train(mine, targets, samples), alone.train(batch, targets, samples)
        parameters = dict(cut.named_parameters())
        mesh.data.all_reduce_gradients(list(parameters.values()))
        for name, parameter in whole.named_parameters():
            if name in parameters:
                torch.testing.assert_close(parameters[name].grad, parameter.grad, **close, msg=lambda m, n=name: n + m)
        if config.dtype == "float32":
            for have, expected in ((sums.nll, want.nll), (sums.aux_loss, want.aux_loss)):
                torch.testing.assert_close(world.all_reduce(have.clone()), expected, rtol=1e-5, atol=1e-7)
            maxima_LH = mesh.data.all_reduce(sums.max_logits_LH.clone(), "max")
            torch.testing.assert_close(maxima_LH, want.max_logits_LH[held], rtol=1e-5, atol=1e-6)
            counts_LE = mesh.data.all_reduce(sums.expert_counts_LE.clone())
            assert torch.equal(counts_LE, want.expert_counts_LE[held[held >= dense] - dense])
        nll = world.all_reduce(engine.evaluate(batch_of(3, length, mesh.data.share(3)), 3))
        torch.testing.assert_close(nll, alone.evaluate(batch_of(3, length), 3), rtol=close["rtol"], atol=1e-6)
    names = [name for rank in mesh.pipeline.gather_texts("\n".join(parameters)) for name in rank.split("\n")]
    assert sorted(names) == sorted(dict(whole.named_parameters()))


def rank_of_four(world: World) -> None:
    """Layouts of four ranks. Shares of 7 samples are uneven, so that there are micro-batches without samples."""
    torch.manual_seed(0)
    compare(world, Layout(pipeline=2), 7, 32)
    compare(world, Layout(pipeline=2, virtual=2), 11, 32)
    compare(world, Layout(pipeline=2, virtual=3), 4, 32, separate_documents=False)
    compare(world, Layout(pipeline=4), 9, 48, yarn=2.0, run={"memory": {"recompute": ["layers"]}})
    compare(world, Layout(pipeline=4), 1, 32, dtype="bfloat16", run={"memory": {"recompute": ["norms", "swiglu"]}})


def start(work: Callable[[World], None], ranks: int, timeout: float = 60) -> tuple[list[Any], Any]:
    """`work` on so many gloo processes; they put (rank, outcome) into the queue."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    port = 21_000 + (os.getpid() * 7 + ranks) % 10_000

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        try:
            with join(timeout_seconds=timeout) as world:
                work(world)
            results.put((rank, "done"))
        except BaseException as error:
            results.put((rank, f"{type(error).__name__}: {error}"))
            raise

    processes = [context.Process(target=run, args=(rank,)) for rank in range(ranks)]
    for process in processes:
        process.start()
    return processes, results


def test_cut_networks_equal_the_whole() -> None:
    processes, results = start(rank_of_four, 4)
    outcomes = sorted(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(30)
    assert outcomes == [(rank, "done") for rank in range(4)]
