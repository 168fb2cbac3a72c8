"""One side of benchmarks/model.py in a process of its own: `model_side.py KIND SETTINGS`, a turn for each line read."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model.convert import load_hf
from model.generate import Generator, Request


def tokens(turn: int, rows: int, length: int, vocabulary: int) -> Tensor:
    """A turn's own tokens, the same on every side."""
    return torch.randint(0, vocabulary, (rows, length), generator=torch.Generator().manual_seed(turn))


def measured(step: Callable[[], float]) -> dict[str, Any]:
    """The loss of a step and the CPU-seconds of all its threads."""
    began = time.process_time()
    loss = step()
    return {"cpu": time.process_time() - began, "loss": loss}


def ours(settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """A step of our network: its loss, the balance loss, and the maxima where asked."""
    model = load_hf(settings["folder"], torch.bfloat16)

    def step(tokens_BS: Tensor) -> float:
        out = model(tokens_BS, max_logits=settings.get("maxima", True))
        loss = model.loss(out.hidden_BSD[:, :-1], tokens_BS[:, 1:])
        (loss + out.aux_loss).backward()
        model.zero_grad(set_to_none=True)
        return loss.item()

    def turn(number: int) -> dict[str, Any]:
        tokens_BS = tokens(number, settings["rows"], settings["length"], model.config.vocab_size)
        return measured(lambda: step(tokens_BS))

    return turn


def transformers(settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """A step of transformers' network from the same folder."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    attention, experts, form = settings["peer"].split(",")
    written = json.loads(open(f"{settings['folder']}/config.json").read())  # noqa: SIM115, PTH123
    config = DeepseekV3Config(
        **written | {"pad_token_id": None, "use_cache": False},
        attn_implementation=attention,
        experts_implementation=experts,
    )
    model: Any = DeepseekV3ForCausalLM.from_pretrained(settings["folder"], config=config, dtype=torch.bfloat16)
    model.train()
    run = torch.compile(model) if form == "compiled" else model

    def step(tokens_BS: Tensor) -> float:
        loss = run(input_ids=tokens_BS, labels=tokens_BS).loss
        loss.backward()
        model.zero_grad(set_to_none=True)
        return loss.item()

    def turn(number: int) -> dict[str, Any]:
        tokens_BS = tokens(number, settings["rows"], settings["length"], config.vocab_size)
        return measured(lambda: step(tokens_BS))

    return turn


class _Products(TorchDispatchMode):
    """Counts the matrix products that run, by their operands' shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            a, b = args[-2:]
            self.seen[tuple(a.shape), tuple(b.shape)] += 1
        return func(*args, **(kwargs or {}))


def products(settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """The products of one step, by shape, and a square's."""
    step = ours(settings)
    with _Products() as found:
        step(0)
    work = [
        (torch.randn(a, dtype=torch.bfloat16), torch.randn(b, dtype=torch.bfloat16), times)
        for (a, b), times in found.seen.items()
    ]
    flops = sum(2 * a.numel() * b.shape[-1] * times for a, b, times in work)
    left, right = torch.randn(2, 2048, 2048).bfloat16().unbind()

    @torch.no_grad()
    def turn(number: int) -> dict[str, Any]:
        began = time.process_time()
        for a, b, times in work:
            for _ in range(times):
                a @ b
        cpu = time.process_time() - began
        began = time.process_time()
        for _ in range(8):
            left @ right
        return {"cpu": cpu, "flops": flops, "square": 8 * 2 * 2048**3 / (time.process_time() - began)}

    return turn


def generate(settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Greedy continuations over the cache of latents."""
    model = load_hf(settings["folder"], getattr(torch, settings["dtype"]))
    generator = Generator(model, max_rows=settings["rows"])

    def turn(number: int) -> dict[str, Any]:
        asked = [Request(prompt, settings["new"], temperature=0) for prompt in prompts(settings, number)]
        began = time.process_time()
        done = generator.generate(asked)
        cpu = time.process_time() - began
        return {"cpu": cpu, "tokens": sum(len(one.tokens) for one in done), "rows": [list(one.tokens) for one in done]}

    return turn


def prompts(settings: dict[str, Any], turn: int) -> list[list[int]]:
    """A turn's prompts, never seen before, so that no prefix cache helps."""
    draw = random.Random(turn)
    return [[draw.randrange(3, 8000) for _ in range(settings["prompt"])] for _ in range(settings["rows"])]


def main() -> None:
    kind, settings = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    torch.set_num_threads(settings["threads"])
    sides = {"ours": ours, "transformers": transformers, "products": products, "generate": generate}
    turn = sides[kind](settings)
    for line in sys.stdin:
        print(json.dumps(turn(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
