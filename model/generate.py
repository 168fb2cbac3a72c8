"""Text out of a model: batched sampling over a cache of latents, rows coming and going.

Shape suffixes: N rows under way, P different prompts, S prompt length, D hidden, V vocabulary.

`model/decode.py` runs the prompts, then takes a token of every row at once.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from model.decode import Decoder, LatentCache, decoder
from model.transformer import Transformer

COLDEST = 1e-6  # the least temperature but 0: logits over much less overflow
PREFILL_TOKENS = 16_384  # prompt tokens, padding included, that run through the model at once


@dataclass(frozen=True)
class Request:
    """One text to continue.

    Attributes:
        prompt: token ids, at least one.
        max_new_tokens: how many tokens at most, a stop token included.
        temperature: divides the logits, COLDEST at least; 0 takes the likeliest token.
        top_p: samples among the likeliest tokens that together hold this probability (after the temperature).
        stop_ids: tokens that end the row; the one met is the completion's last.
        seed: names the row's own stream of random numbers: a row samples alike alone and in any batch, as far as the
            rounding of the batch's matrix products allows.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: Sequence[int] = ()
    seed: int = 0


@dataclass(frozen=True)
class Completion:
    """What was generated.

    Attributes:
        tokens: the new token ids.
        log_probs: of each token, log softmax(logits): the model's own distribution, whatever the sampling.
        tempered_log_probs: of each token, log softmax(logits / temperature), before top_p; 0 where greedy. It is what
            `Transformer.log_probs(hidden, targets, temperature)` gives in a training forward.
        finish: "stop" after a stop token, "length" after max_new_tokens.
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    tempered_log_probs: tuple[float, ...]
    finish: Literal["stop", "length"]


@dataclass
class _Row:
    index: int
    request: Request
    uniforms: list[float]
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    tempered: list[float] = field(default_factory=list)


def requests_for(
    prompts: Iterable[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    stop_ids: Sequence[int] = (),
    seed: int = 0,
) -> list[Request]:
    """One request per prompt, sampled alike, each with a seed of its own drawn from `seed` and its place."""

    def own(place: int) -> int:
        return int.from_bytes(hashlib.sha256(f"{seed}/{place}".encode()).digest()[:8], "little")

    return [
        Request(prompt, max_new_tokens, temperature, top_p, stop_ids, own(place))
        for place, prompt in enumerate(prompts)
    ]


class Generator:
    """Continuous batching over one model: a finished row's place goes to the next request at once.

    Weights are read anew in every call, so that a trainer may change them between calls. Memory: a copy of the weights
    in the dtype that the layers compute in, and a cache of max_rows x (longest row under way) x layers x (kv_lora_rank
    + qk_rope_head_dim) numbers of it.
    """

    def __init__(self, model: Transformer, *, max_rows: int = 64) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows = {max_rows}: at least one row has to be under way")
        self.model, self.max_rows = model, max_rows

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Completes every request; in their order.

        Raises:
            ValueError: a request that cannot be served, or logits that are not finite; it names the request.
        """
        done = dict(self.stream(requests))
        return [done[index] for index in range(len(requests))]

    @torch.inference_mode()
    def stream(
        self, requests: Iterable[Request], on_token: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[int, Completion]]:
        """Yields (place of the request, completion) as rows finish; takes a request only when a row is free.

        Args:
            requests: any iterable, a queue's generator as well.
            on_token: called with (place of the request, token) after each token.
        """
        source = enumerate(requests)
        rows: list[_Row] = []
        cache = LatentCache(self.model, self.max_rows)
        under_way = decoder(self.model)
        exhausted = False
        while True:
            fresh: list[_Row] = []
            while not exhausted and len(rows) + len(fresh) < self.max_rows:
                taken = next(source, None)
                if taken is None:
                    exhausted = True
                else:
                    fresh.append(self._admit(*taken))
            if not rows and not fresh:
                return
            # the rows under way first: a new row's first token comes from its prompt
            streams = [under_way.step(self._newest(rows), cache)] if rows else []
            streams += [self._prefill(group, cache, under_way) for group in _groups(fresh)]
            rows += fresh
            _sample(rows, under_way.logits(torch.cat(streams)))
            if on_token is not None:
                for row in rows:
                    on_token(row.index, row.tokens[-1])
            for place in reversed(range(len(rows))):
                row = rows[place]
                stopped = row.tokens[-1] in row.request.stop_ids
                if stopped or len(row.tokens) == row.request.max_new_tokens:
                    finish: Literal["stop", "length"] = "stop" if stopped else "length"
                    rows[place] = rows[-1]  # the last row moves into the gap
                    rows.pop()
                    cache.drop(place)
                    yield row.index, Completion(tuple(row.tokens), tuple(row.log_probs), tuple(row.tempered), finish)

    def _admit(self, index: int, request: Request) -> _Row:
        config = self.model.config
        length = len(request.prompt) + request.max_new_tokens
        fault = None
        if not request.prompt:
            fault = "the prompt is empty; begin it with a token such as bos"
        elif request.max_new_tokens < 1:
            fault = f"max_new_tokens = {request.max_new_tokens}; ask for at least one"
        elif not all(0 <= token < config.vocab_size for token in request.prompt):
            fault = f"the prompt holds ids outside 0..{config.vocab_size - 1}; use this model's tokenizer"
        elif length > config.max_position_embeddings:
            fault = (
                f"prompt and new tokens make {length}, the model takes {config.max_position_embeddings}; ask for fewer"
            )
        elif not (request.temperature == 0 or request.temperature >= COLDEST) or not 0 < request.top_p <= 1:
            fault = f"temperature {request.temperature}, top_p {request.top_p}; give 0 or >= {COLDEST}, and (0, 1]"
        if fault:
            raise ValueError(f"request {index}: {fault}")
        stream = torch.Generator("cpu").manual_seed(request.seed % 2**63)
        uniforms = torch.rand(request.max_new_tokens, generator=stream, dtype=torch.float64)
        return _Row(index, request, uniforms.tolist())

    def _prefill(self, rows: list[_Row], cache: LatentCache, under_way: Decoder) -> Tensor:
        """Runs the prompts of new rows; the residual stream of their last tokens (N, D).

        A prompt that several rows share (the responses of RL) runs once.
        """
        device = self.model.embed_tokens.weight.device
        prompts = list(dict.fromkeys(tuple(row.request.prompt) for row in rows))
        places = {prompt: place for place, prompt in enumerate(prompts)}
        own_N = torch.tensor([places[tuple(row.request.prompt)] for row in rows], device=device)
        tokens_PS = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.int64)
        for place, prompt in enumerate(prompts):
            tokens_PS[place, : len(prompt)] = torch.tensor(prompt)
        new = cache.add([len(row.request.prompt) for row in rows])
        return under_way.prompts(tokens_PS.to(device), own_N, cache, new)

    def _newest(self, rows: list[_Row]) -> Tensor:
        return torch.tensor([row.tokens[-1] for row in rows], device=self.model.embed_tokens.weight.device)


def _sample(rows: list[_Row], logits_NV: Tensor) -> None:
    """Appends one token to every row."""
    heats = [row.request.temperature for row in rows]
    drawn_N, log_p_N, tempered_N = _drawn(rows, heats, logits_NV)
    for row, token, log_p, tempered in zip(rows, drawn_N.tolist(), log_p_N.tolist(), tempered_N.tolist(), strict=True):
        row.tokens.append(token)
        row.log_probs.append(log_p)
        row.tempered.append(tempered)


def _refuse_broken(rows: list[_Row], log_p_N: Tensor) -> None:
    bad = ~torch.isfinite(log_p_N)
    if bad.any():
        index = rows[int(bad.nonzero()[0])].index
        raise ValueError(f"request {index}: the model's logits are not finite; its weights or its input are broken")


def _drawn(rows: list[_Row], heats: list[float], logits_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A token of every row, its log-probability, and that of the tempered distribution."""
    log_p_NV = logits_NV.log_softmax(-1)
    _refuse_broken(rows, log_p_NV[:, 0])  # one NaN or +inf among the logits spoils the whole row
    heat_N1 = torch.tensor(heats, device=logits_NV.device)[:, None]
    tempered_NV = log_p_NV
    if any(heat not in (0, 1) for heat in heats):
        tempered_NV = (logits_NV / heat_N1.where(heat_N1 > 0, 1.0)).log_softmax(-1)
    if not any(heats):
        drawn_N1 = logits_NV.argmax(-1, keepdim=True)
    else:
        drawn_N1 = _draw(rows, tempered_NV)
        if 0 in heats:
            drawn_N1 = drawn_N1.where(heat_N1 > 0, logits_NV.argmax(-1, keepdim=True))
    tempered_N1 = tempered_NV.gather(1, drawn_N1).where(heat_N1 > 0, 0.0)
    return drawn_N1[:, 0], log_p_NV.gather(1, drawn_N1)[:, 0], tempered_N1[:, 0]


def _draw(rows: list[_Row], log_p_NV: Tensor) -> Tensor:
    """A token of every row by its own random number and its top_p, (N, 1)."""
    p_NV = log_p_NV.double().exp_()
    for place, row in enumerate(rows):
        if row.request.top_p < 1:
            p_NV[place] = _nucleus(p_NV[place], row.request.top_p)
    uniforms = [[row.uniforms[len(row.tokens)]] for row in rows]
    uniform_N1 = torch.tensor(uniforms, device=p_NV.device, dtype=torch.float64)
    cumulated_NV = p_NV.cumsum_(-1)
    drawn_N1 = torch.searchsorted(cumulated_NV, uniform_N1 * cumulated_NV[:, -1:], right=True)
    return drawn_N1.clamp_(max=p_NV.shape[-1] - 1)


def _groups(rows: list[_Row]) -> list[list[_Row]]:
    """Cuts new rows into groups of at most PREFILL_TOKENS padded tokens, or of one row."""
    left, groups = deque(rows), []
    while left:
        group = [left.popleft()]
        longest = len(group[0].request.prompt)
        while left and max(longest, len(left[0].request.prompt)) * (len(group) + 1) <= PREFILL_TOKENS:
            group.append(left.popleft())
            longest = max(longest, len(group[-1].request.prompt))
        groups.append(group)
    return groups


def _nucleus(p_V: Tensor, top_p: float) -> Tensor:
    """The likeliest tokens that together hold `top_p`, the others at 0; at least one stays."""
    sorted_V, order_V = p_V.sort(descending=True, stable=True)
    kept_V = sorted_V.cumsum(0) - sorted_V < top_p
    return torch.zeros_like(p_V).index_put_((order_V[kept_V],), sorted_V[kept_V])
