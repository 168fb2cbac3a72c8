"""Weights through checkpoint-engine: what each rank sends, in which order servers hear of it, how it fails; and the
library itself, where it is installed (`pip install checkpoint-engine`), with memory of the CPU in a GPU's place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from model.chat import Chat
from model.convert import from_hf_state, save_hf, to_hf_state
from model.engines.reply import KEY_VARIABLE
from model.serve.app import application
from model.serve.server import in_background
from model.transformer import Transformer, routers
from tests.posttraining import byte_tokenizer
from tests.training.ranks import run_ranks
from tests.training.rl.test_endpoint import KEY, tiny
from training.parallel import World
from training.rl.checkpoint_engine import ColocatedEndpoint, part_of
from training.rl.config import RlConfig, RolloutsConfig
from training.rl.endpoint import EndpointError

needs_library = pytest.mark.skipif(
    find_spec("checkpoint_engine") is None, reason="checkpoint-engine is missing: `pip install checkpoint-engine`"
)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def policy(seed: int) -> Transformer:
    model = tiny(seed)
    for router in routers(model):
        router.e_score_correction_bias.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(seed))
    return model


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_each_tensor_of_the_checkpoint_is_sent_by_one_rank_as_it_is_written(tmp_path, ranks):
    model = policy(1)
    save_hf(model, tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    parts = [part_of(to_hf_state(model), rank, ranks) for rank in range(ranks)]
    assert sum(len(part) for part in parts) == len(written)
    sent = {name: tensor for part in parts for name, tensor in part.items()}
    assert sent.keys() == written.keys()
    for name, tensor in written.items():
        assert sent[name].dtype == tensor.dtype
        assert torch.equal(sent[name], tensor)
    sizes = [sum(tensor.nbytes for tensor in part.values()) for part in parts]
    assert max(sizes) - min(sizes) <= max(tensor.nbytes for tensor in written.values())


def test_what_cannot_be_is_refused_and_where_weights_go_is_no_part_of_a_run():
    given = {"url": "http://a:1/v1, http://b:1/v1", "model": "policy", "sync": "checkpoint_engine"}
    with pytest.raises(ValueError, match="leave folder out"):
        RolloutsConfig(**given, folder="/somewhere")
    with pytest.raises(ValueError, match="give 2"):
        RolloutsConfig(**given, slots=1)
    with pytest.raises(ValueError, match="'files' or 'checkpoint_engine'"):
        RolloutsConfig(**given | {"sync": "nccl"})
    runs = [RolloutsConfig(**given, sleep=True), RolloutsConfig(url="http://c:1/v1", model="policy", folder="/there")]
    one, other = (RlConfig(rollouts=each).literals() for each in runs)
    assert one == other
    assert one["rollouts"] == {"model": "policy"}
    for each in runs:  # a job is told everything
        assert RolloutsConfig(**json.loads(each.model_dump_json())) == each


class Server:
    """`openk2 serve` as vLLM is: workers on `gpus` take weights, each in a thread, and the model has them then."""

    def __init__(self, gpus: int = 0, status: int = 200, failing: bool = False) -> None:
        self.model, self.gpus, self.status, self.failing = policy(2), gpus, status, failing
        chat = Chat(byte_tokenizer())
        self.app = application(self.model, chat, "policy", KEY, ["127.0.0.1"], rows=8, waiting=512)
        self.heard: list[str] = []
        self.taken: list[dict[str, torch.Tensor]] = []
        self.busy = 0
        """How often it does not drop its prefix cache."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path not in ("/wake_up", "/sleep", "/collective_rpc", "/reset_prefix_cache"):
            await self.app(scope, receive, send)
            return
        self.heard.append(path)
        status, said = 200, b"{}"
        if path == "/collective_rpc":
            body = b""
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            asked = json.loads(body)
            assert asked["method"] == "update_weights_from_ipc"
            (addresses,) = asked["args"]
            status = self.status
            if status == 200 and self.gpus:
                await asyncio.to_thread(self._take, addresses)
        elif path == "/reset_prefix_cache":
            self.busy -= 1
            said = json.dumps({"success": self.busy < 0}).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": said})

    def _take(self, addresses: dict[str, str]) -> None:
        import zmq
        from checkpoint_engine.worker import update_weights_from_ipc

        self.taken = [{} for _ in range(self.gpus)]

        def work(gpu: int) -> None:
            def load(weights: list[tuple[str, torch.Tensor]]) -> None:
                if self.failing and gpu == self.gpus - 1:
                    raise ValueError("no such parameter")
                assert not {name for name, _ in weights} & self.taken[gpu].keys()
                self.taken[gpu].update({name: tensor.clone() for name, tensor in weights})

            with contextlib.suppress(Exception):  # the ranks tell of it
                update_weights_from_ipc(zmq.Context(), addresses[f"GPU-of-test-{gpu}"], None, run=load)

        workers = [threading.Thread(target=work, args=(gpu,), daemon=True) for gpu in range(self.gpus)]
        for each in workers:
            each.start()
        for each in workers:
            each.join(10)
        if not self.failing:
            from_hf_state(self.model, self.taken[0])


def configured(*urls: str, **changes: Any) -> RolloutsConfig:
    given = {
        "url": ",".join(f"{url}/v1" for url in urls),
        "model": "policy",
        "slots": 6,
        "attempts": 2,
        "answer_seconds": 60.0,
    }
    return RolloutsConfig(**given | {"sync": "checkpoint_engine"} | changes)


# ------------------------------------------------------------------------------------------- a library of the tests'


class Recorder:
    """In the library's place: it says what it is asked, in the order of the real one, and shares nothing."""

    def __init__(self, heard: list[str], **given: Any) -> None:
        self.heard, self.given, self._device_uuid = heard, given, "GPU-of-test-0"
        self.names: set[str] = set()

    def register_checkpoint(self, name: str, *, named_tensors: dict[str, Any], use_shared_memory_pool: bool) -> None:
        assert use_shared_memory_pool
        self.heard.append("register")
        self.names = set(named_tensors)

    def gather_metas(self, name: str) -> None:
        self.heard.append("gather")

    def update(self, name: str, req_func: Any, *, timeout: Any) -> None:
        self.heard.append("update")
        thread = threading.Thread(target=req_func, args=([(self._device_uuid, "ipc:///nowhere")],))
        thread.start()
        thread.join()

    def unregister_checkpoint(self, name: str) -> None:
        self.heard.append("unregister")


@pytest.fixture
def recorded(monkeypatch) -> Iterator[list[str]]:
    """The calls that reach a library of this name."""
    heard: list[str] = []
    library, server = ModuleType("checkpoint_engine"), ModuleType("checkpoint_engine.ps")
    server.ParameterServer = type("ParameterServer", (Recorder,), {"__init__": _recording(heard)})  # type: ignore[attr-defined]
    zmq = ModuleType("zmq")
    zmq.__dict__.update(vars(SimpleNamespace(REP=4, REQ=3, Again=TimeoutError)))
    for module in (library, server, zmq):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("training.rl.checkpoint_engine.REFUSAL_SECONDS", 0.01)
    return heard


def _recording(heard: list[str]) -> Any:
    return lambda self, **given: Recorder.__init__(self, heard, **given)


def test_servers_wake_take_the_weights_and_forget_in_this_order(recorded):
    servers = [Server(), Server()]
    for server in servers:
        from_hf_state(server.model, part_of(to_hf_state(policy(1)), 0, 1))
        server.heard = recorded
    servers[1].busy = 1
    with in_background(servers[0]) as one, in_background(servers[1]) as other:
        config = configured(one, other, sleep=True)
        with ColocatedEndpoint(config, World()) as endpoint:
            endpoint.sync(policy(1), "float32", most=0.05)
            assert endpoint._server.names == to_hf_state(policy(1)).keys()
            endpoint.sleep()
    update = ["register", "gather", "update", "/collective_rpc", "/collective_rpc", "unregister"]
    assert recorded == ["/wake_up"] * 2 + update + ["/reset_prefix_cache"] * 3 + ["/sleep"] * 2


def test_a_server_that_keeps_its_prefix_cache_is_named(recorded):
    server = Server()
    server.busy = 5
    with in_background(server) as url, ColocatedEndpoint(configured(url), World()) as endpoint:
        with pytest.raises(EndpointError, match="does not drop its prefix cache"):
            endpoint.sync(policy(1), "float32", most=0.05)


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "checkpoint_engine", None)
    with pytest.raises(EndpointError, match=r"pip install 'openk2\[colocate\]'"):
        ColocatedEndpoint(configured("http://127.0.0.1:9"), World())


# ------------------------------------------------------------------------------------------------- the library itself


def synced(world: World, url: str, missing: int | None = None, **changes: Any) -> str:
    os.environ["LOCAL_WORLD_SIZE"] = str(world.size)
    if world.rank == missing:
        sys.modules["checkpoint_engine.ps"] = None  # type: ignore[assignment]
    else:
        import tests.training.rl.engine_on_cpu  # noqa: F401
    with ColocatedEndpoint(configured(url, **changes), world) as endpoint:
        for seed in (3, 1):
            endpoint.sync(policy(seed), "float32", most=0.05)
    return "synced"


@needs_library
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_library_brings_all_weights_to_every_worker(ranks):
    """Twice, into the same pinned memory; the server's log-probabilities are the policy's each time."""
    import tests.training.rl.engine_on_cpu  # noqa: F401

    server = Server(gpus=ranks)
    with in_background(server) as url:
        assert run_ranks(ranks, lambda world: synced(world, url)) == ["synced"] * ranks
    wanted = part_of(to_hf_state(policy(1)), 0, 1)
    for taken in server.taken:
        assert taken.keys() == wanted.keys()
        assert all(torch.equal(taken[name], tensor) for name, tensor in wanted.items())
        assert all(taken[name].dtype == tensor.dtype for name, tensor in wanted.items())


@needs_library
def test_no_rank_of_the_library_waits_for_what_does_not_come():
    import tests.training.rl.engine_on_cpu  # noqa: F401

    began = time.monotonic()
    with in_background(Server(status=500)) as url:
        first, second = run_ranks(2, lambda world: synced(world, url, answer_seconds=600.0))
    assert "status 500" in first
    assert "--worker-extension-cls" in first
    assert "rank 1" in second
    with in_background(Server(gpus=2, failing=True)) as url:
        for rank, said in enumerate(run_ranks(2, lambda world: synced(world, url, answer_seconds=600.0))):
            assert f"rank {rank}: a worker of vLLM on its GPU did not take the weights" in said
    with in_background(Server(gpus=2)) as url:
        for said in run_ranks(2, lambda world: synced(world, url, answer_seconds=600.0, missing=1)):
            assert "is not there on rank 1" in said
    assert time.monotonic() - began < 400  # and not the ten minutes of an answer
    with in_background(Server(gpus=1)) as url:
        for said in run_ranks(2, lambda world: synced(world, url, answer_seconds=3.0)):
            assert said.startswith("EndpointError: ")
