"""What people deploy with: every deployment names a flow that exists and parameters that validate."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from flows.request import Request

HOUSE = Path(__file__).resolve().parents[2]
DEPLOYMENTS = yaml.safe_load((HOUSE / "prefect.yaml").read_text())["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def test_a_deployment_names_a_flow_and_a_request_that_validate(deployment):
    file, _, name = deployment["entrypoint"].partition(":")
    flow = getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)
    assert flow.name == name
    flow.validate_parameters({"request": deployment["parameters"]["request"]})
    Request.model_validate(deployment["parameters"]["request"])
    assert deployment["work_pool"]["name"] in {"{{ $OPENK2_CPU_POOL }}", "{{ $OPENK2_GPU_POOL }}"}
    assert deployment["description"]


def test_every_stage_is_deployed():
    from flows.stages import STAGES

    assert {deployment["entrypoint"].split(":")[1] for deployment in DEPLOYMENTS} == set(STAGES)


@pytest.mark.parametrize("file", ["constraints.txt", "models.txt", "vllm-cpu.txt"])
def test_pins_are_requirements(file):
    lines = (HOUSE / "infra" / file).read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(pin.specifier for pin in pins)


def test_infra_stays_small():
    assert len([path for path in (HOUSE / "infra").rglob("*") if path.is_file()]) <= 20
