"""RL's weights and rollouts with vLLM itself, on a CPU: the sync through files, by checkpoint-engine (where that is
installed, with the CPU's memory in a GPU's place), and a run. Runs only where vLLM's environment is:

    python infra/vllm_cpu.py --prepare
    python -m pytest tests/training/rl/test_vllm.py
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
import torch

from model.chat import Chat
from model.convert import save_hf
from model.engines.reply import KEY_VARIABLE
from model.transformer import Transformer
from tests.posttraining import SMALL, World, byte_tokenizer, go, model_artifact, summary, tiny_config
from tests.training.rl.test_checkpoint_engine import needs_library
from tests.training.rl.test_episodes import attacks, compared
from tests.vllm_server import HOUSE, NAME, SHAPE, Server, needs_vllm, served
from training.metrics import read_metrics
from training.parallel import World as Ranks
from training.rl.checkpoint_engine import ColocatedEndpoint
from training.rl.config import RewardConfig, RolloutsConfig
from training.rl.endpoint import Endpoint, EndpointError
from training.rl.environments import Services
from training.rl.rollout import Player, opened
from training.rl.train import Reinforcement
from training.trainer import DONE

pytestmark = [needs_vllm, pytest.mark.timeout(1800)]

CONFIG = tiny_config(**{name: getattr(SHAPE, name) for name in SMALL}, initializer_range=0.1)
"""For a tokenizer of bytes, in the shape that vLLM's kernels for CPUs take."""


def policy(seed: int) -> Transformer:
    """In bfloat16's numbers, which is what a server gets: all that is left between the two is how they add."""
    model = Transformer(CONFIG, seed=seed).to(torch.bfloat16).float()
    return model.eval()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """With the weights of `policy(1)`."""
    folder = tmp_path_factory.mktemp("served")
    save_hf(policy(1), folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    library, extension = find_spec("checkpoint_engine"), "tests.training.rl.vllm_on_cpu.Packing"
    paths = [str(HOUSE)]
    if library is not None and library.origin is not None:
        alone = tmp_path_factory.mktemp("library")  # what lies beside it here is not for vLLM's environment
        (alone / "checkpoint_engine").symlink_to(Path(library.origin).parent)
        paths.append(str(alone))
        extension = "tests.training.rl.engine_on_cpu.OnCpu"
    options = ["--dtype", "float32", "--max-model-len", "1024", "--logprobs-mode", "processed_logprobs"]
    variables = {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": ":".join(paths)}
    with served(folder, *options, "--worker-extension-cls", extension, environment=variables) as started:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(KEY_VARIABLE, started.key)
            yield started


def configured(server: Server, **changes) -> RolloutsConfig:
    given = {"url": f"{server.root}/v1", "model": NAME, "slots": 8, "attempts": 1, "answer_seconds": 300.0}
    return RolloutsConfig(**given | changes)


def has(server: Server, model: Transformer) -> bool:
    """Whether it tells the log-probabilities of `model`, to a thousandth of a nat."""
    with Endpoint(configured(server)) as endpoint:
        try:
            endpoint.sync(model, "float32", most=1e-3)
        except EndpointError as error:
            if "other weights" not in str(error):
                raise
            return False
    return True


def test_vllm_has_the_weights_that_it_was_last_given_as_files(server):
    for new, old in ((policy(2), policy(3)), (policy(3), policy(2))):
        with Endpoint(configured(server, folder=str(server.log.parent))) as endpoint:
            endpoint.sync(new, "float32", most=1e-3)
        assert has(server, new)
        assert not has(server, old)


@needs_library
def test_vllm_has_the_weights_that_checkpoint_engine_brought(server):
    """The library's own rank and worker, vLLM's own loading: only the memory between them is not a GPU's."""
    import tests.training.rl.engine_on_cpu  # noqa: F401

    with ColocatedEndpoint(configured(server, sync="checkpoint_engine"), Ranks()) as endpoint:
        for new, old in ((policy(4), policy(5)), (policy(5), policy(4))):
            endpoint.sync(new, "float32", most=1e-3)
            assert has(server, new)
            assert not has(server, old)


def test_rollouts_of_vllm_are_ids_with_the_trainers_log_probabilities(server):
    model, chat = policy(2), Chat(byte_tokenizer())
    config = configured(
        server, folder=str(server.log.parent), sleep=True
    )  # which vLLM does not do on CPUs, and says so
    with Endpoint(config) as endpoint:
        endpoint.sync(model, "float32", most=1e-3)
        rewards = RewardConfig(budget=24, repeats=0)
        player = Player(model, chat, 0.7, rewards, "float32", Services(), endpoint=endpoint)
        found, left = player.roll_out(opened(attacks()[:2], 3, "seed"))
        player.rest()
    assert not left
    _, apart = compared(model, found, "float32", temperature=0.7)
    assert apart < 1e-3


def test_a_run_of_rl_samples_from_vllm(server, tmp_path):
    """Weights change at each of its iterations, and the trainer agrees with each reply's log-probabilities."""
    world = World(tmp_path)
    start = model_artifact(world.root, policy(6), "sft")
    # the servers of the test before sleep, and would let requests wait
    rollouts = configured(server, folder=str(server.log.parent), sleep=True).model_dump(mode="json")
    few = {"iterations": 3, "prompts": 4, "responses": 4, "evaluate_prompts": 4, "evaluate_samples": 1}
    job = world.rl("rl", start, rollouts=rollouts, learning_rate=0.01, **few)
    assert go(Reinforcement, job) == DONE
    assert summary(job.parent)["iterations"] == 3
    apart = [update["disagreement"] for update in read_metrics(job.parent / "metrics.jsonl", "update")]
    assert len(apart) == 3
    assert max(apart) < 0.02  # weights of float32, of which the server has the bfloat16


def test_vllm_asks_for_its_key_only_where_openai_would(server):
    """What docs/rl.md warns of: whoever reaches its port may have it load weights."""
    assert httpx.post(f"{server.root}/v1/completions", json={}).status_code == 401
    assert httpx.post(f"{server.root}/reset_prefix_cache").json() == {"success": True}
    told = httpx.post(f"{server.root}/collective_rpc", json={"method": "reload_weights"}, timeout=300)
    assert told.status_code == 200
