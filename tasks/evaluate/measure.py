"""What is measured on one model: held-out loss, pass rates, tool-call fidelity, and text to look at.

Every function gives the same answers for the same model, inputs and seed, whatever was measured before.

Shapes: B windows, S tokens.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import torch

from model.chat import Chat, user
from model.generate import Generator, Request
from model.transformer import Transformer
from tasks.artifact import Artifact
from tasks.evaluate.config import EvaluateConfig
from training.draw import seeded
from training.fidelity import GREEDY, Turn
from training.loader import Loader
from training.rl.config import RewardConfig
from training.rl.environments import Problem
from training.rl.rollout import roll_out
from training.shards import TokenShards

log = logging.getLogger(__name__)

BATCH = 8  # windows of one forward of the held-out loss
REPLIES = pa.schema(
    [
        ("problem", pa.string()),
        ("environment", pa.string()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("greedy_reply", pa.string()),
        ("greedy", pa.float64()),  # 1 where the likeliest reply is right
        ("sampled", pa.float64()),  # share of right samples
    ]
)
DTYPE = "float32"  # of the products: the checkpoints' own rounding is what is compared, not that of the arithmetic


@torch.no_grad()
def heldout_loss(model: Transformer, tokens: Artifact, config: EvaluateConfig) -> dict[str, dict[str, float]]:
    """Mean next-token loss of the held-out split by domain: {"nats", "bits_per_byte", "tokens"}.

    Windows of `sequence_length` (at most the model's), attention kept within documents, as in pretraining. Bits per
    byte, which do not depend on the tokenizer, go by the domain's bytes per token. A domain with no whole window is
    left out.
    """
    length = min(config.sequence_length, model.config.max_position_embeddings)
    entries = tokens.statistics["heldout"]
    found = {}
    for domain in sorted(entries):
        if not TokenShards(tokens.uri).windows("heldout", length).get(domain):
            continue
        loader = Loader(tokens.uri, "heldout", {domain: 1.0}, config.seed, length)
        windows = min(loader.windows[domain], max(1, config.heldout_tokens // length))
        total, count = 0.0, 0
        for first in range(0, windows, BATCH):
            batch = loader.batch(first, min(BATCH, windows - first))
            hidden_BSD = model(batch.tokens_BS, document_ids_BS=batch.document_ids_BS).hidden_BSD
            total += float(model.loss(hidden_BSD, batch.targets_BS, reduction="sum"))
            count += batch.targets_BS.numel()
        nats = total / count
        bits = nats / math.log(2) / entries[domain]["bytes_per_token"]
        found[domain] = {"nats": round(nats, 5), "bits_per_byte": round(bits, 5), "tokens": count}
    return found


def answer(model: Transformer, chat: Chat, problems: Sequence[Problem], config: EvaluateConfig) -> list[dict[str, Any]]:
    """The model's greedy and sampled replies, judged by each problem's own verifier: a row of REPLIES for each.

    The noise of a sample is named by (seed, problem, sample) and so the same for every model.
    """
    rewards = RewardConfig(budget=config.max_new_tokens)
    seed = f"evaluation/{config.seed}"
    likeliest = roll_out(model, chat, problems, 1, GREEDY, seed, rewards, DTYPE)
    drawn = roll_out(model, chat, problems, config.samples, config.temperature, seed, rewards, DTYPE)
    return [
        {
            "problem": problem.id,
            "environment": problem.environment,
            "prompt": problem.messages[-1]["content"],
            "answer": json.dumps(problem.answer, ensure_ascii=False),
            "greedy_reply": chat.decode(one.responses[0].ids),
            "greedy": one.scores[0],
            "sampled": math.fsum(many.scores) / len(many.scores),
        }
        for problem, one, many in zip(problems, likeliest, drawn, strict=True)
    ]


def even(problems: Sequence[Problem], count: int) -> list[Problem]:
    """At most `count` problems, as even over the environments as they allow, in the order of environments and rows."""
    by_environment: dict[str, list[Problem]] = {}
    for problem in problems:
        by_environment.setdefault(problem.environment, []).append(problem)
    taken = dict.fromkeys(sorted(by_environment), 0)
    while sum(taken.values()) < min(count, len(problems)):
        open_ones = [name for name in taken if taken[name] < len(by_environment[name])]
        for name in sorted(open_ones, key=lambda name: taken[name])[: count - sum(taken.values())]:
            taken[name] += 1
    return [problem for name in taken for problem in by_environment[name][: taken[name]]]


def show(model: Transformer, chat: Chat, turns: Sequence[Turn], config: EvaluateConfig) -> list[dict[str, str]]:
    """Text to look at, as it comes: plain continuations, chat replies, one tool call; greedy and one sample of each. A
    prompt that leaves the window no room for `max_new_tokens` is left out, and said."""
    end, room = model.config.eos_token_id, model.config.max_position_embeddings - config.max_new_tokens
    bos = model.config.bos_token_id
    jobs = [("continuation", prompt, chat.beginning(prompt, bos), end) for prompt in config.continuation_prompts]
    jobs += [("chat", prompt, chat.prompt([user(prompt)]), chat.stop) for prompt in config.chat_prompts]
    for kind, prompt, ids, _ in jobs:
        if len(ids) > room:
            log.warning("not shown: the %s of %r, whose %d tokens exceed the window", kind, prompt[:40], len(ids))
    jobs = [job for job in jobs if len(job[2]) <= room]
    due = ((turn, chat.prompt(turn.messages, turn.tools)) for turn in turns if turn.calls)
    for turn, ids in due:
        if len(ids) <= room:
            jobs.append(("tool call", turn.messages[-1]["content"], ids, chat.stop))
            break
    styles = (("greedy", GREEDY), ("sampled", config.temperature))
    requests = [
        Request(
            tuple(ids),
            config.max_new_tokens,
            temperature,
            stop_ids=(stop,),
            seed=seeded("show", config.seed, kind, prompt),
        )
        for kind, prompt, ids, stop in jobs
        for _, temperature in styles
    ]
    texts = iter(Generator(model).generate(requests))
    shown = []
    for kind, prompt, _, stop in jobs:
        record = {"kind": kind, "prompt": prompt}
        for style, _ in styles:
            record[style] = chat.decode([token for token in next(texts).tokens if token != stop])
        shown.append(record)
    return shown
