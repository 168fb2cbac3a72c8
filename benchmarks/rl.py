"""Reinforcement learning, how fast: rollouts against the bare generator, idle time, weights into the generator, two
ranks, and TRL's GRPO beside an iteration.

    python -m benchmarks.rl [--only rollout,idle,sync,ranks] [--prompts 16] [--responses 8] [--budget 32] [--rounds 3]
    python -m benchmarks.rl --peer /path/to/a/python/with/trl

- Rollout: episodes of several turns (the attacks of `safety`) and of one (`instructions`), in tokens drawn per
  CPU-second, beside the very same requests given to `Generator` at once, with no environment between them. Goal: 0.8.
- Idle: the share of the iterations of a run for which nothing could be sampled because a verdict was awaited, with
  `code` and `math` in it, whose verdicts come from other processes: `timing.idle_seconds` of its metrics. By the clock,
  which other work on the machine stretches alike. Goal: below 0.05.
- Sync: the trainer's weights as the generator reads them, made anew for every rollout, beside `clone()` of the same
  bytes; with and without INT4. More of them than a cache holds. Goal: 1, which is the memory's bandwidth.
- Ranks: runs as processes of one thread under gloo: one rank, two that share its prompts, two with twice as many.
  Each iteration takes the rollouts of the slower rank and the update of the slower rank, in CPU-seconds, so that other
  work on the machine does not count; nor does waiting for the network. Beside it the clock. Goal: 0.9 of twice one.
- Peer: samples per CPU-second of whole iterations (rollout, verdict, one update; no PTX) of ours and of TRL's GRPO, the
  same weights (TRL reads them as DeepSeek-V3), prompts, K, budget and verifier. Goal: 3.

The network has random weights: what it says is noise, which is all that speed needs. One thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import ONE_THREAD, PEERS, cpu, in_turns, module, ratio, told
from benchmarks.pretrain import timed
from model.attention import document_mask
from model.chat import Chat
from model.config import ModelConfig
from model.convert import save_hf
from model.decode import Decoder, decoder
from model.generate import Generator, Request
from model.transformer import Transformer
from tests.posttraining import VOCABULARY, World, byte_tokenizer, model_artifact, writes_letters
from tests.training.ranks import launch
from training.config import PosttrainMuonClipConfig
from training.job import Job
from training.mesh import Mesh
from training.metrics import read_metrics
from training.muonclip import MuonClip
from training.rl.config import MAX_ROWS, RewardConfig, RlConfig
from training.rl.environments import Problem, Services
from training.rl.environments.table import SETS
from training.rl.episodes import Episode
from training.rl.rollout import Group, Player, opened
from training.rl.train import Reinforcement
from training.rl.update import practised, rows_of
from training.trainer import Trainer

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "intermediate_size": 512,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,
    "num_attention_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "max_position_embeddings": 2048,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": VOCABULARY - 1,
}
LARGE = SHAPE | {"hidden_size": 384, "num_hidden_layers": 6, "n_routed_experts": 32, "moe_intermediate_size": 192}
"""Of 150 MB."""


def network(chat: Chat) -> Transformer:
    """Random weights that write letters and end a turn about every twentieth token."""
    made = Transformer(ModelConfig(**SHAPE), seed=1).eval()
    writes_letters(made, chat, 0.1)
    return made


def player(model: Transformer, chat: Chat, budget: int, services: Services) -> Player:
    rewards = RewardConfig(budget=budget)
    return Player(model, chat, temperature=1.0, rewards=rewards, dtype="float32", services=services)


def segments(episodes: Sequence[Episode]) -> list[Request]:
    """What the generator was asked for in these episodes: each turn behind what stood before it."""
    found = []
    for episode in episodes:
        start = 0
        for turn in episode.turns():
            while episode.versions[start] < 0:
                start += 1
            found.append(Request([*episode.prompt, *episode.ids[:start]], len(turn), 1.0))
            start += len(turn)
    return found


def rollout_rate(model: Transformer, chat: Chat, prompts: int, responses: int, budget: int, rounds: int) -> None:
    attacks = [one for one in SETS["safety"](4 * prompts, "rate") if len(one.answer["turns"]) > 1][:prompts]
    for name, problems in (("several turns", attacks), ("one turn", SETS["instructions"](prompts, "rate"))):
        rates, bare = [], []
        for number in range(rounds):
            began = cpu()
            groups, _ = player(model, chat, budget, Services()).roll_out(opened(problems, responses, str(number)))
            spent = cpu() - began
            episodes = [one for group in groups for one in group.responses]
            requests, tokens = segments(episodes), sum(one.written for one in episodes)
            began = cpu()
            Generator(model, max_rows=MAX_ROWS).generate(requests)
            rates.append(tokens / spent)
            bare.append(tokens / (cpu() - began))
        turns = sum(len(one.turns()) for one in episodes) / len(episodes)
        print(
            f"rollout, {name} ({turns:.1f} turns): {median(rates):,.0f} tokens per CPU-second, "
            f"{ratio(rates, bare):.2f} of bare"
        )


class Timed(Reinforcement):
    """A run that also writes its rank's CPU-seconds: of each iteration those of the rollouts and of the update."""

    def begin(self) -> None:
        super().begin()
        self.spent: list[tuple[float, float]] = []

    def step(self, number: int) -> str:
        began = time.process_time()
        said = super().step(number)
        self.spent.append((self.drawn - began, time.process_time() - self.drawn))
        file = self.trainer.work / f"spent-{self.trainer.world.rank}.json"
        file.write_text(json.dumps(self.spent))
        return said

    def _update(self, *given: Any) -> dict[str, float]:
        self.drawn = time.process_time()
        return super()._update(*given)


class Runs:
    """Jobs of RL on one model."""

    def __init__(self, root: Path, model: Transformer) -> None:
        self.world, self.start = World(root), model_artifact(root, model, "start")

    def job(self, name: str, **changes: Any) -> Path:
        """Its file."""
        shared = {
            **{"ptx_sequence_length": 128, "evaluate_prompts": 1, "evaluate_samples": 1},
            **{"learning_rate": 1e-7, "final_learning_rate": 1e-7},  # a policy that learns would soon say less
            "optimizer": {"newton_schulz_dtype": "float32"},
        }
        return self.world.rl(name, self.start, **shared | changes)

    def run(self, name: str, ranks: int, **changes: Any) -> Path:
        """Its folder, once a run on so many ranks has ended."""
        job = self.job(name, **changes)
        codes = [rank.wait(1800) for rank in launch(Timed, job, ranks)]
        if any(codes):
            logs = "".join(path.read_text() for path in sorted(job.parent.glob("rank*.log")))
            raise SystemExit(f"a run failed:\n{logs[-3000:]}")
        return job.parent


def updates(work: Path) -> list[dict[str, Any]]:
    """What a run wrote of its iterations, but for the first, in which modules are loaded and workers begin."""
    return read_metrics(work / "metrics.jsonl", "update")[1:]


def idle_share(runs: Runs, prompts: int, responses: int, budget: int, rounds: int) -> None:
    each = max(1, prompts // 4)
    environments = {"instructions": 1.0, "safety": 1.0, "code": 1.0, "math": 1.0}
    changes = {"prompts": 4 * each, "responses": responses, "rewards": {"budget": budget}, "iterations": rounds + 1}
    work = runs.run("idle", 1, environments=environments, sets=dict.fromkeys(environments, 40), **changes)
    timings = [line["timing"] for line in updates(work)]
    idle, whole = (sum(timing[name] for timing in timings) for name in ("idle_seconds", "seconds"))
    print(f"idle for verdicts: {idle:.2f} of {whole:.2f} s of {rounds} iterations, {idle / whole:.1%}")


def sync(runs: Runs, rounds: int) -> None:
    for int4 in (False, True):
        job = Job.read(runs.job(f"sync {int4}", int4=int4))
        trainer = Trainer(Reinforcement, job.configured(RlConfig), job, Mesh(), torch.device("cpu"))
        size = sum(tensor.nbytes for tensor in trainer.model.state_dict().values())
        sides = {
            "clone": timed(partial(cloned, trainer.model)),
            "sync": timed(partial(synced, trainer)),
        }
        with torch.inference_mode():
            found = in_turns(sides, 5 * rounds, warm=2)
        rates = {name: size / median(took) / 1e9 for name, took in found.items()}
        print(
            f"sync{' with INT4' if int4 else ''}: {size / 1e6:.0f} MB at {rates['sync']:.1f} GB per CPU-second, "
            f"{ratio(found['clone'], found['sync']):.2f} of clone()'s {rates['clone']:.1f}"
        )


def cloned(model: Transformer) -> list[Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def synced(trainer: Trainer) -> Decoder:
    return decoder(trainer.whole(trainer.model).eval())


def ranks(runs: Runs, prompts: int, responses: int, budget: int, rounds: int) -> None:
    found: dict[str, tuple[float, float]] = {}
    for name, size, asked in (("one rank", 1, prompts), ("the same shared", 2, prompts), ("twice", 2, 2 * prompts)):
        changes = {"prompts": asked, "responses": responses, "rewards": {"budget": budget}, "iterations": rounds + 1}
        work = runs.run(name, size, **changes)
        spent = [json.loads((work / f"spent-{rank}.json").read_text())[1:] for rank in range(size)]
        slower = [[max(parts) for parts in zip(*both, strict=True)] for both in zip(*spent, strict=True)]
        drawing, updating = (median(parts) for parts in zip(*slower, strict=True))
        seconds = median(line["timing"]["seconds"] for line in updates(work))
        samples = asked * responses
        found[name] = samples / (drawing + updating), samples / seconds
        print(
            f"ranks, {name}: {found[name][0]:.1f} samples per CPU-second of a rank ({asked} prompts: rollouts "
            f"{drawing:.2f}, update {updating:.2f} s), {found[name][1]:.1f} per second"
        )
    for name in ("the same shared", "twice"):
        told = [found[name][clock] / 2 / found["one rank"][clock] for clock in (0, 1)]
        print(f"ranks, {name}: {told[0]:.2f} of twice one rank, by the clock {told[1]:.2f}")


def questions(count: int) -> list[tuple[str, str]]:
    return [
        (f"Which is larger, {n % 10} or {(n * 7 + 1) % 10}?", str(max(n % 10, (n * 7 + 1) % 10))) for n in range(count)
    ]


def iterations(model: Transformer, chat: Chat, prompts: int, responses: int, budget: int, rounds: int) -> float:
    """Samples per CPU-second of ours."""
    config = RlConfig(dtype="float32", prompts=prompts, responses=responses)
    optimizer = MuonClip.for_model(model, PosttrainMuonClipConfig(newton_schulz_dtype="float32"))
    problems = [
        Problem(str(n), "larger", "exact", ({"role": "user", "content": asked},), answer)
        for n, (asked, answer) in enumerate(questions(prompts))
    ]
    began = 0.0
    for number in range(rounds + 1):  # the first one, in which modules are loaded, is not counted; nor is TRL's
        groups, _ = player(model.eval(), chat, budget, Services()).roll_out(opened(problems, responses, str(number)))
        update(model.train(), optimizer, groups, config)
        began = began or cpu()
    return prompts * responses * rounds / (cpu() - began)


def update(model: Transformer, optimizer: MuonClip, groups: Sequence[Group], config: RlConfig) -> None:
    """All groups in one batch; none is left out, so that there is work whatever the verdicts."""
    rows = rows_of(groups, model.config.max_position_embeddings)
    part = practised(rows, sum(len(group.responses) for group in groups), 1.0, config, 0)
    assert part.document_ids_BS is not None
    mask = document_mask(part.document_ids_BS, shared_prompt=True)
    output = model(part.tokens_BS, positions_BS=part.positions_BS, mask=mask, max_logits=True)
    loss, _ = part.loss(model, output.hidden_BSD)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for group in optimizer.param_groups:
        group["lr"] = 1e-4
    optimizer.step(max_logits_LH=output.max_logits_LH)


def beside_peer(
    python: str, model: Transformer, chat: Chat, prompts: int, responses: int, budget: int, rounds: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        save_hf(model, work / "model", torch.float32)
        chat.tokenizer.save(str(work / "tokenizer.json"))
        texts = [
            {"prompt": chat.decode(chat.prompt([{"role": "user", "content": asked}])), "answer": answer}
            for asked, answer in questions(prompts)
        ]
        (work / "job.json").write_text(
            json.dumps({"rows": texts, "responses": responses, "budget": budget, "rounds": rounds, "stop": chat.stop})
        )
        found = told([python, str(PEERS / "trl_peer.py"), folder], {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
    theirs = found["samples_per_cpu_second"]
    ours = iterations(model, chat, prompts, responses, budget, rounds)
    print(f"iterations: {ours:.2f} samples per CPU-second, TRL's GRPO {theirs:.2f}: {ours / theirs:.1f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="rollout,idle,sync,ranks")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--responses", type=int, default=8)
    parser.add_argument("--budget", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python that has TRL")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.here:  # what CPUs need in the environment has to stand before a process starts
        print(
            f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, load {os.getloadavg()[0]:.0f}",
            flush=True,
        )
        for part in ["peer"] if arguments.peer else arguments.only.split(","):
            given = [
                f"--{name}={value}" for name, value in vars(arguments).items() if name not in ("only", "here") and value
            ]
            subprocess.run(module("rl", "--only", part, *given, "--here"), env=os.environ | ONE_THREAD, check=True)
        return
    torch.set_num_threads(1)
    chat = Chat(byte_tokenizer())
    model = network(chat)
    sizes = (arguments.prompts, arguments.responses, arguments.budget, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        parts = {
            "peer": lambda: beside_peer(arguments.peer, model, chat, *sizes),
            "rollout": lambda: rollout_rate(model, chat, *sizes),
            "idle": lambda: idle_share(Runs(Path(folder), model), *sizes),
            "sync": lambda: sync(Runs(Path(folder), Transformer(ModelConfig(**LARGE), seed=1)), arguments.rounds),
            "ranks": lambda: ranks(Runs(Path(folder), model), *sizes),
        }
        parts[arguments.only]()


if __name__ == "__main__":
    main()
