"""What a machine multiplies fast: measured, on this one and on this one made to behave like a smaller one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from model.precision import Speed, dtype_of, speed

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""What makes torch and oneDNN behave as on a CPU without AVX-512."""
PROBE = """
import json, torch
from model.kernels import native
from model.precision import speed
threads = torch.get_num_threads()
found = speed("cpu")
assert torch.get_num_threads() == threads
print(json.dumps([found.fast, dict(found.rates), native.kernels(torch.bfloat16) is not None]))
"""
GENERATE = """
import torch
from model.generate import Generator, requests_for
from model.sizes import model_preset
from model.transformer import Transformer
model = Transformer(model_preset("tiny"), seed=0).eval()
prompts = [[3, 4, 5, 6], [7, 8]]
for precision in (torch.float32, torch.bfloat16):
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        done = Generator(model).generate(requests_for(prompts, max_new_tokens=8, temperature=0))
    print([len(one.tokens) for one in done])
"""


def run(code: str, **environment: str) -> str:
    house = str(Path(__file__).resolve().parents[2])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={
            **{name: value for name, value in os.environ.items() if name not in AVX2},
            "PYTHONPATH": house,
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_without_avx512_it_is_float32_and_bfloat16s_kernels_stay_away() -> None:
    fast, rates, native = json.loads(run(PROBE, **AVX2))
    assert fast == "float32"
    assert rates["float32"] > 5 * rates["bfloat16"]
    assert native is False


@pytest.mark.skipif(
    "amx_bf16" not in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""), reason="no AMX"
)
def test_with_amx_it_is_bfloat16_however_busy_the_machine() -> None:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        fast, _, _ = json.loads(run(PROBE))
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert fast == "bfloat16"


def test_generation_needs_no_avx512() -> None:
    assert run(GENERATE, **AVX2).split("\n")[:2] == ["[8, 8]"] * 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_elsewhere_is_taken_for_one_that_has_bfloat16() -> None:
    assert speed("cuda").fast == "bfloat16"
    assert speed("auto").fast == speed("cpu").fast


def test_what_is_said_names_both_rates() -> None:
    slow = Speed("CPU", "float32", {"bfloat16": 1.1e9, "float32": 66e9})
    assert slow.of("bfloat16") == (
        "this CPU multiplies bfloat16 60 times slower than float32 (1.1 against 66 GFLOP/s a core)"
    )
    assert "60 times faster than bfloat16 (66 against 1.1" in slow.of("float32")


def test_auto_is_the_dtype_that_the_device_multiplies_fast() -> None:
    cpu = torch.device("cpu")
    assert dtype_of("auto", cpu) == getattr(torch, speed("cpu").fast)
    assert dtype_of("float32", cpu) == torch.float32
