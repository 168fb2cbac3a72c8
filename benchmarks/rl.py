"""Reinforcement learning, how fast: rollouts against the bare generator, idle time, and TRL's GRPO beside an iteration.

    python -m benchmarks.rl [--prompts 16] [--responses 8] [--budget 32] [--rounds 3]
    python -m benchmarks.rl --peer /path/to/a/python/with/trl

- Rollout: episodes of several turns (the attacks of `safety`) and of one (`instructions`), in tokens drawn per
  CPU-second, beside the very same requests given to `Generator` at once, with no environment between them. Goal: 0.8.
- Idle: the share of an iteration (rollout and one update) for which nothing could be sampled because a verdict was
  awaited, with `code` and `math` in it, whose verdicts come from other processes. Goal: below 0.05.
- Peer: samples per CPU-second of whole iterations (rollout, verdict, one update; no PTX) of ours and of TRL's GRPO, the
  same weights (TRL reads them as DeepSeek-V3), prompts, K, budget and verifier. Goal: 3.

The network has random weights: what it says is noise, which is all that speed needs. One thread each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks.common import PEERS, cpu, ratio, told
from model.attention import document_mask
from model.chat import Chat
from model.config import ModelConfig
from model.convert import save_hf
from model.generate import Generator, Request
from model.transformer import Transformer
from tests.posttraining import VOCABULARY, byte_tokenizer
from training.config import PosttrainMuonClipConfig
from training.muonclip import MuonClip
from training.rl.config import MAX_ROWS, RewardConfig, RlConfig
from training.rl.environments import SETS, Problem, Services
from training.rl.episodes import Episode
from training.rl.rollout import Group, Player, opened
from training.rl.update import practised, rows_of

SHAPE = {
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


def network(chat: Chat) -> Transformer:
    """Random weights that write letters and end a turn about every twentieth token."""
    made = Transformer(ModelConfig(**SHAPE), seed=1).eval()
    with torch.no_grad():
        made.embed_tokens.weight[:, 0] = 5  # nearly the same number everywhere: what stands on it is a bias
        for token in range(made.config.vocab_size):
            letter = chat.decode([token])
            made.lm_head.weight[token, 0] = 0 if letter.isascii() and letter.isalpha() else -3
        made.lm_head.weight[chat.stop, 0] = 0.1
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


def idle_share(model: Transformer, chat: Chat, prompts: int, responses: int, budget: int) -> None:
    kinds = ("instructions", "safety", "code", "math")
    problems = [one for kind in kinds for one in SETS[kind](max(1, prompts // len(kinds)), "idle")]
    optimizer = MuonClip.for_model(model, PosttrainMuonClipConfig(newton_schulz_dtype="float32"))
    with Services() as services:
        player(model, chat, 2, services).roll_out(opened(problems, 1, "warm"))  # what is started once is started here
        services.idle_seconds, began = 0.0, time.monotonic()
        groups, _ = player(model, chat, budget, services).roll_out(opened(problems, responses, "idle"))
        update(model, optimizer, groups, RlConfig(dtype="float32", prompts=prompts))
        whole = time.monotonic() - began
    print(f"idle for verdicts: {services.idle_seconds:.2f} of {whole:.2f} s, {services.idle_seconds / whole:.1%}")


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
    rows = [row for group in groups for row in rows_of(group, model.config.max_position_embeddings)]
    part = practised(rows, sum(len(group.responses) for group in groups), 1.0, config, 0)
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
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--responses", type=int, default=8)
    parser.add_argument("--budget", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python that has TRL")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chat = Chat(byte_tokenizer())
    model = network(chat)
    sizes = (arguments.prompts, arguments.responses, arguments.budget)
    if arguments.peer:
        beside_peer(arguments.peer, model, chat, *sizes, arguments.rounds)
        return
    rollout_rate(model, chat, *sizes, arguments.rounds)
    idle_share(model, chat, *sizes)


if __name__ == "__main__":
    main()
