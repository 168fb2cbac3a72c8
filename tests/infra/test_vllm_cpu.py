"""The command that serves the packaged model with vLLM on a CPU, as far as it goes without vLLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from model.precision import speed

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "vllm_cpu.py"


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60)


def prepared(folder: Path, answer: str) -> None:
    """An environment that is there already, whose interpreter only says what it was asked."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(answer)
    python.chmod(0o755)
    wanted = (SCRIPT.parent / "vllm-cpu.txt").read_text() + (SCRIPT.parent / "models.txt").read_text()
    (folder / "venv" / "installed").write_text(wanted)


def test_what_is_there_is_served_at_once_with_what_the_flow_needs(tmp_path: Path) -> None:
    prepared(tmp_path, '#!/bin/sh\necho "$HF_HUB_OFFLINE $VLLM_CPU_KVCACHE_SPACE $@"\n')
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "config.json").write_text("{}")
    done = start("--folder", str(tmp_path), "--port", "8123", "--", "--max-model-len", "4096")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 2 -m vllm.entrypoints.openai.api_server")
    for part in (
        f"--model {tmp_path / 'smollm2'}",
        "--served-model-name smollm2",
        "--host 127.0.0.1 --port 8123",
        f"--dtype {speed('cpu').fast}",
        "--no-enable-chunked-prefill",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--max-model-len 4096",
    ):
        assert part in done.stdout
    assert "custom_ops" not in done.stdout
    assert "installing" not in done.stderr
    assert "converting" not in done.stderr


def test_requests_need_a_key_that_only_its_owner_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENK2_ENGINE_KEY", raising=False)
    prepared(tmp_path, '#!/bin/sh\necho "$VLLM_API_KEY"; echo "$@" >&2\n')
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "key").write_text("an older one, open to all")
    given = []
    for _ in range(2):
        done = start("--folder", str(tmp_path), "--model", str(tmp_path))
        given.append(done.stdout.strip())
        assert (tmp_path / "key").read_text() == done.stdout
        assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
        assert given[-1] not in done.stderr
    assert len(set(given)) == 2
    assert min(map(len, given)) > 40
    monkeypatch.setenv("OPENK2_ENGINE_KEY", "mine")
    assert start("--folder", str(tmp_path), "--model", str(tmp_path)).stdout == "mine\n"


def test_latent_attention_does_without_the_kernel_that_turns_one_head_alone(tmp_path: Path) -> None:
    prepared(tmp_path, '#!/bin/sh\necho "$@"\n')
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "config.json").write_text('{"model_type": "deepseek_v3", "kv_lora_rank": 512}')
    done = start("--folder", str(tmp_path), "--model", str(ours), "--name", "ours", "--", "--dtype", "float32")
    assert done.returncode == 0, done.stderr
    assert '-cc.custom_ops=["-rotary_embedding"] --dtype float32' in done.stdout
    assert f"--model {ours} --served-model-name ours" in done.stdout


def test_a_conversion_that_fails_leaves_no_model_behind(tmp_path: Path) -> None:
    prepared(tmp_path, '#!/bin/sh\nmkdir -p "$3"; echo "no chat template" >&2; exit 1\n')
    done = start("--folder", str(tmp_path), "--prepare")
    assert done.returncode == 1
    assert "--convert" in done.stderr
    assert "failed: its own words stand above" in done.stderr
    assert not (tmp_path / "smollm2").exists()


def test_an_interpreter_without_our_libraries_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-S", str(SCRIPT), "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/nowhere"})
    assert done.returncode == 2
    assert "use openk2's own, `.venv/bin/python infra/vllm_cpu.py`" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["nothing-here", "."])
def test_a_model_without_configuration_is_refused(tmp_path: Path, folder: str) -> None:
    done = start("--folder", str(tmp_path), "--model", str(tmp_path / folder))
    assert done.returncode == 2
    assert "has no config.json" in done.stderr
    assert not (tmp_path / "venv").exists()
