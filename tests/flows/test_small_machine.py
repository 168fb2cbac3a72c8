"""The whole chain on a CPU that multiplies bfloat16 slowly: the two variables make a larger one behave like it."""

from __future__ import annotations

import pytest

from tests.flows.chain import finish, plan

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
SMALL = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def test_the_chain_trains_in_float32_where_bfloat16_is_slow(tmp_path):
    told = finish(tmp_path, **SMALL)
    assert "Training in float32: this CPU multiplies bfloat16" in told
    assert (tmp_path / "report.html").exists()
    steps = {step.name: step for step in plan(tmp_path).newest()}
    for name in ("base", "sft", "rl", "qat"):
        config = steps[name].require().manifest["config"]
        assert config["dtype"] == config["optimizer"]["newton_schulz_dtype"] == "float32", name
