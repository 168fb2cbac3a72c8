"""Responses from a server of the policy: token ids in, token ids and their log-probabilities out, over OpenAI's
`/v1/completions` with vLLM's `return_token_ids`.

`EndpointBatch` stands where `model.generate.Batch` does, and rows come back whole. The server is handed the policy's
weights before it samples with them: a folder that it reads again, and a text of its own that the trainer scores.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Self

import httpx
import torch

from model.convert import save_hf
from model.engines.engine import EngineError
from model.engines.reply import KEY_VARIABLE, endpoint_key
from model.generate import Request, Row
from model.transformer import Transformer
from training.job import JobError
from training.parallel import World
from training.rl.config import RolloutsConfig
from training.rl.threads import DaemonThreads

TURN_SECONDS = 0.5
"""A step waits so long for an answer: environments may have one meanwhile."""
PROOF_TOKENS = 64
"""Of the text that shows which weights the server has."""
SLEEPS = "; rl.rollouts.sleep needs vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
BUSY = {408, 425, 429, 500, 502, 503, 504}

log = logging.getLogger(__name__)


class EndpointError(JobError):
    """A server that does not answer, or not as the policy would; the text says which and what to do."""


class Endpoint:
    """One or several servers of the policy; use it as `with Endpoint(...) as endpoint`."""

    def __init__(
        self, config: RolloutsConfig, world: World | None = None, beat: Callable[[str], None] = lambda doing: None
    ) -> None:
        """`world`: the ranks that sync together; `beat` hears of every further attempt."""
        self.config, self.world, self.beat = config, world or World(), beat
        self.urls = [url.strip().rstrip("/") for url in config.url.split(",")]
        try:
            key = endpoint_key()
        except EngineError as error:
            raise EndpointError(str(error)) from None
        self.client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(config.answer_seconds, connect=10.0),
            limits=httpx.Limits(max_connections=config.slots),
            trust_env=False,
        )
        self.pool = DaemonThreads(config.slots, "rollouts")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what is in flight: a server drops the request of a client that is gone."""
        self.client.close()
        self.pool.close()

    def sync(self, model: Transformer, dtype: str, most: float) -> None:
        """Hand over the weights of `model`, which computes in `dtype`, and see that they arrived at every server; every
        rank calls it, and the first one speaks with the servers.

        Raises:
            EndpointError: its log-probabilities differ from those of `model` by more than `most` nats a token.
        """
        first = self.world.rank == 0
        if first and self.config.sleep:
            self._each("wake_up", SLEEPS)
        self.hand_over(model)
        if first:
            if self.config.hands_over:
                self._forget()
            for url in self.urls:
                self._prove(model, dtype, url, most)

    def hand_over(self, model: Transformer) -> None:
        """Where servers read files, write them and have them read."""
        if self.config.folder is not None and self.world.rank == 0:
            save_hf(model, Path(self.config.folder))
            for url in self.urls:
                self.post(url, "collective_rpc", {"method": "reload_weights"})

    def sleep(self) -> None:
        """Where they are to sleep, let all servers do so until the next `sync`; nothing may be in flight."""
        if self.config.sleep:
            # level 1 keeps the weights: without new ones nobody would bring them back
            self._each("sleep?level=1", SLEEPS)

    def _each(self, path: str, hint: str) -> None:
        for url in self.urls:
            self.post(url, path, {}, hint)

    def _forget(self) -> None:
        """Drop what servers computed with the old weights and would use for a prompt that begins alike."""
        for url in self.urls:
            for attempt in range(self.config.attempts):
                answer = self.post(url, "reset_prefix_cache", {})
                # vLLM says no, with status 200, while a request holds a block: one that was given up may a moment
                if not isinstance(answer, dict) or answer.get("success", True):
                    break
                _pause(attempt)
            else:
                raise EndpointError(
                    f"{url} does not drop its prefix cache, which was computed with the old weights: a request is "
                    "running there that is none of this run's; give rl.rollouts servers of its own"
                )

    def _prove(self, model: Transformer, dtype: str, url: str, most: float) -> None:
        prompt = [model.config.bos_token_id]
        count = min(PROOF_TOKENS, model.config.max_position_embeddings - 1)
        tokens, log_probs = self.ask(url, Request(prompt, count))
        device = model.embed_tokens.weight.device
        if (largest := max(tokens)) >= model.config.vocab_size:
            raise EndpointError(
                f"{url} has another model than the policy: it drew token {largest}, of {model.config.vocab_size}; see "
                "that rl.rollouts.url and rl.rollouts.model name the policy's server"
            )
        ids_S = torch.tensor([*prompt, *tokens], device=device)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            own_S = model.log_probs(model(ids_S[None, :-1]).hidden_BSD, ids_S[None, 1:])[0].cpu()
        apart = float((own_S - torch.tensor(log_probs)).abs().mean())
        if not apart <= most:
            raise EndpointError(
                f"{url} has other weights than the policy, or tells other log-probabilities: on a text of its own they "
                f"differ by {apart:.3g} nats a token (allowed: rl.agreement = {most}); see that it reads its weights "
                "from rl.rollouts.folder, and that vLLM runs with --logprobs-mode processed_logprobs"
            )

    def ask(self, url: str, request: Request) -> tuple[list[int], list[float]]:
        """The tokens of one row, and their log-probabilities under the distribution they were drawn from."""
        body = {
            "model": self.config.model,
            "prompt": list(request.prompt),
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "stop_token_ids": list(request.stop_ids),
            "ignore_eos": True,
            "return_token_ids": True,
            "logprobs": 0,  # of the drawn token alone
            # said, because a server may take others from the model's folder
            **{"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
        }
        answer = self._send(f"{url}/completions", body)
        try:
            (choice,) = answer["choices"]
            tokens, log_probs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            whole = 0 < len(tokens) == len(log_probs) <= request.max_new_tokens
            if not whole or not all(type(one) is int and one >= 0 for one in tokens):
                raise ValueError
            log_probs = [float(one) for one in log_probs]
            if not all(math.isfinite(one) and one < 0.01 for one in log_probs):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise EndpointError(
                f"{url} gave no token ids with a log-probability each: rollouts need a server that knows "
                "`return_token_ids`, such as vLLM or `openk2 serve`"
            ) from None
        return tokens, log_probs

    def post(self, url: str, path: str, body: dict[str, Any], hint: str = "", attempts: int | None = None) -> Any:
        """What a server answers to a path that is not OpenAI's."""
        return self._send(f"{url.removesuffix('/v1')}/{path}", body, hint, attempts)

    def _send(self, url: str, body: dict[str, Any], hint: str = "", attempts: int | None = None) -> Any:
        """The answer's JSON, {} where it has none. What may pass is tried again; an error ends with `hint`."""
        trouble = ""
        most = attempts or self.config.attempts
        for attempt in range(most):
            if attempt:
                log.warning("%s does not answer (%s): attempt %d of %d follows", url, trouble, attempt + 1, most)
                _pause(attempt)
                self.beat(f"an answer of {url}")
            try:
                answer = self.client.post(url, json=body)
            except (httpx.HTTPError, httpx.StreamError) as error:
                trouble = f"{type(error).__name__} {error}".strip()
                continue
            if answer.is_success:
                try:
                    return answer.json() if answer.content else {}
                except ValueError:
                    return {}
            trouble = f"status {answer.status_code}: {answer.text[:300]}"
            if answer.status_code not in BUSY:
                break
        raise EndpointError(
            f"{url} does not answer ({trouble}): see that the server of rl.rollouts runs, that it calls the model "
            f"'{self.config.model}', and that ${KEY_VARIABLE} holds its key{hint}"
        )


def _pause(attempt: int) -> None:
    """Wait the longer the more attempts there were, and not as long as others do."""
    time.sleep(min(30.0, 2.0**attempt) * random.random())


class EndpointBatch:
    """Rows under way at an endpoint: others may join between two steps."""

    def __init__(self, endpoint: Endpoint, vocabulary: int) -> None:
        """`vocabulary`: token ids that the policy knows."""
        self.endpoint, self.vocabulary = endpoint, vocabulary
        self._asked: dict[Future[tuple[list[int], list[float]]], tuple[int, Request]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def room(self) -> int:
        """How many rows may join."""
        return self.endpoint.config.slots - len(self)

    def add(self, index: int, request: Request) -> None:
        """Let a request join under the name `index`."""
        urls = self.endpoint.urls
        url = urls[index % len(urls)]
        self._asked[self.endpoint.pool.submit(self.endpoint.ask, url, request)] = (index, request)

    def step(self) -> list[Row]:
        """The rows that have come back, all of them finished; none where half a second brought none."""
        done, _ = wait(self._asked, timeout=TURN_SECONDS, return_when=FIRST_COMPLETED)
        return [self._row(future) for future in list(self._asked) if future in done]

    def _row(self, future: Future[tuple[list[int], list[float]]]) -> Row:
        index, request = self._asked.pop(future)
        tokens, log_probs = future.result()
        row = Row(index, request, [], tokens, log_probs)
        row.tempered = log_probs if request.temperature else [0.0] * len(tokens)
        row.finish = "stop" if tokens[-1] in request.stop_ids else "length"
        if max(tokens) >= self.vocabulary:
            row.fault = ValueError(f"the endpoint drew token {max(tokens)}, of {self.vocabulary}")
        return row
