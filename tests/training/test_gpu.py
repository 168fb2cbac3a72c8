"""The paths that only a GPU takes: on one, and as far as a CPU can tell on a pretended one (tests/pretend)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from model.kernels.grouped_linear import grouped_mm
from model.moe import grouped_linear
from tests.posttraining import World
from tests.pretend import checks

HOUSE = Path(__file__).resolve().parents[2]
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_pretended_gpu_does_what_the_cpu_does():
    """In a process of its own, because what it loads has to be there before torch."""
    environment = os.environ | {"PYTHONPATH": str(HOUSE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.pretend"]
    done = subprocess.run(command, cwd=HOUSE, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.gpu
@on_a_gpu
def test_steps_equal_the_cpus():
    checks.check_steps(nullcontext())


@pytest.mark.gpu
@on_a_gpu
def test_sampling_equals_the_cpus():
    checks.check_sampling(nullcontext())


@pytest.mark.gpu
@on_a_gpu
def test_a_run_resumes_to_the_same_bits(tmp_path):
    checks.check_a_run(nullcontext(), World(tmp_path))


@pytest.mark.gpu
@on_a_gpu
def test_reinforcement_through_int4_experts(tmp_path):
    checks.check_rl(nullcontext(), World(tmp_path))


@pytest.mark.gpu
@on_a_gpu
def test_grouped_products_of_experts_without_rows():
    """torch's kernel and the plain form, where some groups are empty: their gradients are zero, not memory's."""
    draw = torch.Generator("cuda").manual_seed(0)
    counts_E = torch.tensor([0, 5, 0, 27, 0], device="cuda")
    x_NI, w_EOI = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=draw).requires_grad_()
        for shape in ((32, 64), (5, 48, 64))
    )
    y_NO = grouped_mm(x_NI, w_EOI, counts_E)
    dy_NO = torch.randn(y_NO.shape, device="cuda", dtype=torch.bfloat16, generator=draw)
    ours = torch.autograd.grad(y_NO, (x_NI, w_EOI), dy_NO)
    plain = grouped_linear.__wrapped__(x_NI, w_EOI, counts_E)
    for one, other in zip((y_NO, *ours), (plain, *torch.autograd.grad(plain, (x_NI, w_EOI), dy_NO)), strict=True):
        torch.testing.assert_close(one.float(), other.float(), atol=0.02, rtol=0.02)
    assert not ours[1][counts_E == 0].any()
