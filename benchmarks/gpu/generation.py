"""4. Generation by rows under way, beside what the memory's bandwidth allows, vLLM on the same weights where it is
installed, and how far the generator's log-probabilities are from the trainer's.

A step reads the weights once, of the experts those that some row chose, and every row's cache: these bytes over the
bandwidth of a copy are the least time it can take.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.common import HOUSE, Bench
from model.config import cache_values_per_token, parameter_count
from model.convert import save_hf
from model.generate import Generator, Request
from model.transformer import Transformer

PROMPT, NEW = 128, 128
ROWS = (1, 8, 64, 256)


def main() -> int:
    bench = Bench.begin("generation", __doc__)
    model = bench.model(dtype=torch.bfloat16).eval()
    prompt, new, rows = (PROMPT, NEW, ROWS) if not bench.tiny else (4, 3, (1, 2))
    limit = bench.part("limits", lambda: {"bandwidth": bench.bandwidth()})
    for count in rows:
        bench.part(f"{count} rows", partial(tokens, bench, model, count, prompt, new, limit["bandwidth"]))
    bench.part("agreement", lambda: agreement(bench, model, prompt, new))
    bench.part("vLLM", lambda: vllm(model, max(rows), prompt, new))
    return bench.end()


def requests(model: Transformer, rows: int, prompt: int, new: int) -> list[Request]:
    draw = torch.Generator().manual_seed(rows)
    prompts = torch.randint(3, model.config.vocab_size - 600 if model.config.vocab_size > 1000 else 400, (rows, prompt),
                            generator=draw)  # fmt: skip
    return [Request(one, new, 1.0, seed=place) for place, one in enumerate(prompts.tolist())]


def tokens(bench: Bench, model: Transformer, rows: int, prompt: int, new: int, bandwidth: float) -> dict[str, float]:
    """New tokens a second, prompts included, and the share of the bandwidth's limit that a step reaches."""
    asked = requests(model, rows, prompt, new)
    once = [Request(one.prompt, 1, 1.0, seed=one.seed) for one in asked]
    generator = Generator(model, max_rows=rows)
    seconds = bench.seconds(lambda: generator.generate(asked), rounds=2, warm=1)
    before = bench.seconds(lambda: generator.generate(once), rounds=2, warm=1)
    step = (seconds - before) / (new - 1)
    least = step_bytes(model, rows, prompt + new / 2) / bandwidth
    return {
        "tokens_per_second": rows * new / seconds,
        "prompt_seconds": before,
        "step_seconds": step,
        "least_step_seconds": least,
        "share_of_bandwidth": least / step if step > 0 else 0.0,
    }


def step_bytes(model: Transformer, rows: int, length: float) -> float:
    """Bytes that a step must read in bfloat16, the experts' choices taken to be even."""
    config, count = model.config, parameter_count(model.config)
    moe = config.num_moe_layers * 3 * config.hidden_size * config.moe_intermediate_size
    chosen = config.n_routed_experts * (1 - (1 - config.num_experts_per_tok / config.n_routed_experts) ** rows)
    dense = count.total - moe * config.n_routed_experts - config.vocab_size * config.hidden_size
    return 2 * (dense + moe * chosen + rows * length * cache_values_per_token(config))


@torch.no_grad()
def agreement(bench: Bench, model: Transformer, prompt: int, new: int) -> dict[str, float]:
    """Between the log-probabilities that tokens were drawn by and those of the trainer's forward, with the head in
    float32 and without."""
    found: dict[str, float] = {}
    for head in (False, True):
        model.float32_head = head
        asked = requests(model, 4, prompt, new)
        done = Generator(model, max_rows=4).generate(asked)
        rows_BS = torch.tensor([[*one.prompt, *two.tokens] for one, two in zip(asked, done, strict=True)])
        rows_BS = rows_BS.to(bench.device)
        hidden_BSD = model(rows_BS[:, :-1], max_logits=True).hidden_BSD
        ours_BN = model.log_probs(hidden_BSD, rows_BS[:, 1:])[:, prompt - 1 :].cpu()
        apart = (ours_BN - torch.tensor([one.log_probs for one in done])).abs()
        found |= {f"mean, float32 head {head}": float(apart.mean()), f"most, float32 head {head}": float(apart.max())}
    model.float32_head = False
    return found


def vllm(model: Transformer, rows: int, prompt: int, new: int) -> dict[str, Any]:
    """vLLM's side of the same question, where it is installed."""
    if find_spec("vllm") is None:
        return {"skipped": "vLLM is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        save_hf(model, folder)
        settings = {
            "folder": folder,
            "dtype": "bfloat16",
            "form": "compiled",
            "rows": rows,
            "prompt": prompt,
            "new": new,
        }
        peer = Path(HOUSE) / "benchmarks/peers/vllm_peer.py"
        with subprocess.Popen([sys.executable, str(peer), json.dumps(settings)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as side:  # fmt: skip
            assert side.stdin is not None
            assert side.stdout is not None
            seconds = []
            for turn in range(3):
                began = time.perf_counter()
                print(turn, file=side.stdin, flush=True)
                answer = json.loads(side.stdout.readline())
                seconds.append(time.perf_counter() - began)
            side.stdin.close()
        return {"tokens_per_second": answer["tokens"] / min(seconds[1:])}


if __name__ == "__main__":
    sys.exit(main())
