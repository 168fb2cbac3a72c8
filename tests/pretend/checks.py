"""What is held against the CPU on a GPU, real or pretended: one step under every switch, a run of the trainer that is
cut and resumed, sampling, and post-training through INT4 experts."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor

from model.footprint import K2_MEMORY, MemoryConfig
from model.generate import Generator, Request
from model.sizes import model_preset
from model.transformer import Transformer
from tests.posttraining import RL, World, go, model_artifact, tiny_config, write_job
from tests.pretend.device import Pretended, pretended
from training import checkpoint
from training.expert_parallel import network
from training.metrics import read_metrics
from training.objective import Objective
from training.parallel import World as Ranks
from training.pretrain import NextToken
from training.rl.train import Reinforcement
from training.trainer import DONE

SWITCHES = (MemoryConfig(), MemoryConfig(recompute=("layers",)), K2_MEMORY)
WINDOW = 32


def step(device: str, precision: torch.dtype, memory: MemoryConfig, packed: bool, maxima: bool) -> dict[str, Tensor]:
    """Maxima and gradients of one step."""
    model = network(model_preset("tiny"), 0, Ranks(), torch.device(device))
    model.memory = memory
    tokens_BS = torch.randint(0, 512, (2, 129), generator=torch.Generator().manual_seed(1)).to(device)
    ids_BS = torch.tensor([[0] * 100 + [1] * 20 + [-1] * 8, [0] * 128]).to(device) if packed else None
    with torch.autocast(device, precision, enabled=precision != torch.float32):
        out = model(tokens_BS[:, :-1], max_logits=maxima, document_ids_BS=ids_BS)
        loss = model.loss(out.hidden_BSD, tokens_BS[:, 1:])
    (loss + out.aux_loss).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found if out.max_logits_LH is None else found | {"maxima": out.max_logits_LH}


def check_steps(gpu: AbstractContextManager[Pretended | None]) -> None:
    """In float32 tensor by tensor; in bfloat16, where rounding sends a token to another expert, all of them together,
    under every switch; over single documents and packed ones, with maxima and without."""
    cases = [(packed, maxima) for packed in (False, True) for maxima in (False, True)]
    asked = [(torch.float32, MemoryConfig(), case) for case in cases[::3]]
    asked += [(torch.bfloat16, memory, case) for memory, case in zip(SWITCHES, cases[1:], strict=True)]
    with gpu as pretending:
        for precision, memory, case in asked:
            want = step("cpu", precision, MemoryConfig(), *case)
            if pretending is not None:
                pretending.waits.clear()
            got = step("cuda", precision, memory, *case)
            if pretending is not None and precision == torch.bfloat16 and not memory.offload:
                assert not pretending.waits, pretending.waits
            assert got.keys() == want.keys()
            pairs = [(got[name].cpu().double().flatten(), want[name].double().flatten()) for name in want]
            if precision == torch.bfloat16:
                pairs = [tuple(map(torch.cat, zip(*pairs, strict=True)))]
            most = 1e-3 if precision == torch.float32 else 0.1 if memory.fp8 else 0.05
            for one, other in pairs:
                assert float((one - other).norm()) <= most * float(other.norm()), (precision, memory, case)


def check_a_run(gpu: AbstractContextManager[object], world: World) -> None:
    """Weights in bfloat16 with masters, a window stretched on the way; resumed, the same bits."""
    stage = {"sequence_length": WINDOW, "batch": 4, "rate": {"start": 0.01, "end": 0.01}}
    config = {
        "model": tiny_config(max_position_embeddings=WINDOW).model_dump(mode="json"),
        "stages": [
            {"name": "short", "updates": 1, **stage},
            {"name": "long", "updates": 1, **stage, "sequence_length": 2 * WINDOW, "batch": 2, "yarn_factor": 2},
        ],
        **{"evaluation_samples": 2, "dtype": "bfloat16", "weights": "bfloat16"},
        "optimizer": {"newton_schulz_dtype": "bfloat16"},
        "run": {"micro_batch": 2, "checkpoint_every": 1},
    }
    job = on(write_job(world.root / "run", config, {"tokens": world.tokens}), "cuda")
    with gpu:
        finish(NextToken, job)
        first = checkpoint.load_model(job.parent / "final").state_dict()
        (job.parent / "summary.json").unlink()
        for folder in ("final", "checkpoints/update-00000002"):
            shutil.rmtree(job.parent / folder)
        finish(NextToken, job)
        again = checkpoint.load_model(job.parent / "final").state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def check_sampling(gpu: AbstractContextManager[object]) -> None:
    """The CPU's tokens in float32, while torch is to be deterministic as it is in a run."""
    requests = [
        Request([256, 5, 6, 7], 8, 1.0, 0.9, (257,), 3),
        Request([256, 9], 6, 0.0, 1.0, (257,), 3),
        Request([256, 9, 4, 5, 5, 5], 12, 0.7, 1.0, (257,), 5, top_k=7, likeliest=3),
    ]
    want = Generator(Transformer(tiny_config(), seed=0).eval(), max_rows=2).generate(requests)
    torch.use_deterministic_algorithms(True)
    try:
        with gpu:
            model = network(tiny_config(), 0, Ranks(), torch.device("cuda")).eval()
            got = Generator(model, max_rows=2).generate(requests)
    finally:
        torch.use_deterministic_algorithms(False)
    assert [one.tokens for one in got] == [one.tokens for one in want]


def check_rl(gpu: AbstractContextManager[object], world: World) -> None:
    """An iteration of RL through INT4 experts: rollouts, evaluations, update."""
    base = model_artifact(world.root, Transformer(tiny_config(moe_intermediate_size=32), seed=0), "wide")
    little = {"iterations": 1, "prompts": 2, "responses": 2, "evaluate_prompts": 2, "evaluate_samples": 1}
    job = on(world.rl("rl", base, **RL | little | {"int4": True, "dtype": "bfloat16", "float32_head": True}), "cuda")
    with gpu:
        finish(Reinforcement, job)
    (told,) = read_metrics(job.parent / "metrics.jsonl", "update")
    assert told["disagreement"] < 0.05


def on(job: Path, device: str) -> Path:
    """A job for a device."""
    job.write_text(json.dumps(json.loads(job.read_text()) | {"device": device}))
    return job


def finish(kind: type[Objective], job: Path) -> None:
    """Run a job to its end."""
    try:
        assert go(kind, job) == DONE
    finally:
        torch.use_deterministic_algorithms(False)


def main() -> None:
    """All of it on a pretended GPU."""
    check_steps(pretended())
    check_sampling(pretended())
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        check_a_run(pretended(), world)
        check_rl(pretended(), world)
