"""Rollouts by a server: `openk2 serve` behind a real socket, asked as vLLM is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from model.chat import Chat
from model.engines.reply import KEY_VARIABLE
from model.generate import Request
from model.serve.app import application
from model.serve.server import in_background
from model.transformer import Transformer
from tests.posttraining import byte_tokenizer, tiny_config
from tests.training.rl.test_episodes import attacks, compared, episodes
from training.rl.config import RewardConfig, RlConfig, RolloutsConfig
from training.rl.endpoint import Endpoint, EndpointError
from training.rl.environments import Services
from training.rl.rollout import Group, Player, opened

KEY = "a key of this test"


def tiny(seed: int) -> Transformer:
    return Transformer(tiny_config(initializer_range=0.2, max_position_embeddings=4096), seed=seed).eval()


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(byte_tokenizer())


@pytest.fixture(scope="module")
def model() -> Transformer:
    return tiny(1)


@pytest.fixture(scope="module")
def config(model: Transformer, chat: Chat) -> Iterator[RolloutsConfig]:
    app = application(model, chat, "policy", KEY, ["127.0.0.1"], rows=8, waiting=512)
    with in_background(app) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, KEY)
        yield RolloutsConfig(url=f"{url}/v1", model="policy", slots=6, attempts=2, answer_seconds=60)


def played(model: Transformer, chat: Chat, config: RolloutsConfig) -> list[Group]:
    with Endpoint(config) as endpoint:
        endpoint.sync(model, "float32", most=1e-3)
        rewards = RewardConfig(budget=24, repeats=0)
        player = Player(model, chat, 1.0, rewards, "float32", Services(), endpoint=endpoint)
        found, left = player.roll_out(opened(attacks()[:3], 3, "seed"))
    assert not left
    return found


def test_rollouts_of_a_server_are_ids_with_the_trainers_log_probabilities(model, chat, config):
    """Over turns, with the token that ends each; the same again from the same seeds."""
    found = played(model, chat, config)
    _, apart = compared(model, found, "float32", temperature=1.0)
    assert apart < 1e-4
    assert all(len(turn) <= 24 for one in episodes(found) for turn in one.turns())
    again = played(model, chat, config)
    assert [one.ids for one in episodes(again)] == [one.ids for one in episodes(found)]


class Sleeper:
    """The application as vLLM is where it may sleep: it hears of weights, and answers nobody while it sleeps."""

    def __init__(self, app: Any) -> None:
        self.app, self.asleep, self.heard = app, False, list[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path not in ("/wake_up", "/sleep", "/collective_rpc", "/reset_prefix_cache") and not self.asleep:
            await self.app(scope, receive, send)
            return
        self.heard.append(path + (f"?{query}" if (query := scope.get("query_string", b"").decode()) else ""))
        status = 409 if self.asleep and path != "/wake_up" else 200
        self.asleep = path == "/sleep" or (self.asleep and path != "/wake_up")
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_servers_sleep_while_the_policy_learns_and_wake_before_they_get_its_weights(model, chat, monkeypatch, tmp_path):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    server = Sleeper(application(model, chat, "policy", KEY, ["127.0.0.1"], rows=8, waiting=512))
    with in_background(server) as url:
        config = RolloutsConfig(url=f"{url}/v1", model="policy", slots=6, attempts=1, folder=str(tmp_path), sleep=True)
        with Endpoint(config) as endpoint:
            rewards = RewardConfig(budget=8, repeats=0)
            player = Player(model, chat, 1.0, rewards, "float32", Services(), endpoint=endpoint)
            for _ in range(2):
                endpoint.sync(model, "float32", most=1e-3)
                player.roll_out(opened(attacks()[:1], 2, "seed"))
                player.rest()
                assert server.asleep
            with pytest.raises(EndpointError, match="409"):
                player.roll_out(opened(attacks()[:1], 2, "seed"))
    once = ["/wake_up", "/collective_rpc", "/reset_prefix_cache", "/sleep?level=1"]
    assert server.heard[: 2 * len(once)] == 2 * once


def test_other_weights_than_the_policys_are_noticed(chat, config):
    with pytest.raises(EndpointError, match="other weights"):
        played(tiny(2), chat, config)


def test_another_model_than_the_policy_is_told_by_its_vocabulary(config):
    """What it says the policy has no embedding for."""
    small = Transformer(tiny_config(vocab_size=2, bos_token_id=0, eos_token_id=1, pad_token_id=1), seed=1).eval()
    with Endpoint(config) as endpoint, pytest.raises(EndpointError, match=r"another model .* of 2;"):
        endpoint.sync(small, "float32", most=1e-3)


def test_a_server_that_cannot_is_named(model, chat, config, tmp_path):
    for changes, said in (
        ({"url": "http://127.0.0.1:9/v1"}, "does not answer"),
        ({"model": "another"}, "calls the model 'another'"),
        ({"folder": str(tmp_path)}, "collective_rpc"),  # `openk2 serve` reads its weights once
        ({"sleep": True}, "--enable-sleep-mode"),
    ):
        with pytest.raises(EndpointError, match=said):
            played(model, chat, config.model_copy(update=changes))
    with pytest.raises(ValueError, match="does not tell its experts"):
        RlConfig(rollouts=config, replay_routing=True)


def test_a_server_that_is_late_is_told_of_before_the_watchdog_ends_the_run(config, caplog):
    RlConfig(rollouts={"url": config.url, "model": "policy"})
    with pytest.raises(ValueError, match=r"run\.stall_seconds = 480 would end the run first"):
        RlConfig(rollouts=config.model_copy(update={"answer_seconds": 600.0}))
    heard: list[str] = []
    nobody = config.model_copy(update={"url": "http://127.0.0.1:9/v1", "attempts": 2})
    with Endpoint(nobody, beat=heard.append) as endpoint, pytest.raises(EndpointError, match="does not answer"):
        endpoint.ask(nobody.url, Request([0], 1))
    assert heard == ["an answer of http://127.0.0.1:9/v1/completions"]
    assert "attempt 2 of 2 follows" in caplog.text


def test_a_key_that_no_header_holds_is_refused_and_not_repeated(config, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "schl\u00fcssel")
    with pytest.raises(EndpointError, match=KEY_VARIABLE) as told:
        Endpoint(config)
    assert "schl" not in str(told.value)
