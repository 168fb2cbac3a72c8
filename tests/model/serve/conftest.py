"""A tiny model behind a real socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
import torch

from model.chat import Chat
from model.generate import Completion, Generator, Request
from model.serve import trial
from model.serve.app import application
from model.serve.grammar import Free
from model.serve.server import in_background
from model.transformer import Transformer
from tests.posttraining import byte_tokenizer, tiny_config

KEY = "a key of this test"
ROWS, WAITING = 4, 28


class Running:
    """A server in a thread of this process."""

    def __init__(self, model: Transformer, chat: Chat, url: str) -> None:
        self.model, self.chat, self.url = model, chat, url
        self.port = int(url.rpartition(":")[2])

    def client(self, **more: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, **more)

    def measured(self, name: str) -> float:
        """A figure of /metrics."""
        with self.client() as client:
            lines = client.get("/metrics").raise_for_status().text.splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def until_free(self) -> None:
        """Wait until no row is taken; the test's own timeout ends it."""
        while self.measured("openk2_open"):
            time.sleep(0.02)

    def said(self, prompt: Sequence[int], **how: Any) -> Completion:
        """What our generator makes of a dialogue in which no call can be made."""
        text = torch.ones(self.model.config.vocab_size, dtype=torch.bool)
        text[list(self.chat.specials)] = False
        text[[self.chat.stop, self.model.config.eos_token_id]] = True
        return self.alone(prompt, constraint=Free(text, section=-1), **how)

    def alone(self, prompt: Sequence[int], **how: Any) -> Completion:
        """What our generator makes of the same request."""
        stops = (self.chat.stop, self.model.config.eos_token_id)
        (done,) = Generator(self.model, max_rows=1).generate([Request(prompt, stop_ids=stops, **how)])
        return done


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    model, chat = Transformer(tiny_config(initializer_range=0.15), seed=5).eval(), Chat(byte_tokenizer())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "SECONDS", 0.3)
        app = application(model, chat, "tiny", KEY, ["127.0.0.1", "::1"], ROWS, WAITING)
        with in_background(app) as url:
            yield Running(model, chat, url)


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    with running.client() as client:
        yield client
    running.until_free()  # whatever a test did, no row stays taken


async def together(running: Running, bodies: Sequence[dict[str, Any]], path: str) -> list[httpx.Response]:
    """All at once, each on a connection of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(
        base_url=running.url, headers=headers, limits=limits, timeout=60, trust_env=False
    ) as client:
        return list(await asyncio.gather(*(client.post(path, json=body) for body in bodies)))
