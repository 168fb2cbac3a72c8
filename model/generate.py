"""Text out of a model: batched sampling over a cache of latents, rows coming and going.

Shape suffixes: N rows under way, P different prompts, S prompt length, D hidden, V vocabulary; T tokens of a row, L
mixture layers, A experts of a token.

`model/decode.py` runs the prompts, then takes a token of every row at once.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from model.config import ModelConfig
from model.decode import LatentCache, decoder
from model.transformer import Transformer

COLDEST = 1e-6  # the least temperature but 0: logits over much less overflow
WHOLE = 1 << 52  # a probability of 1 where tokens are drawn: sums of such whole numbers are exact in float64 as well
PREFILL_TOKENS = 16_384  # prompt tokens, padding included, that run through the model at once


Finish = Literal["stop", "length"]


class ConstraintError(ValueError):
    """A constraint that cannot say what may follow; the message says why."""


class Constraint(Protocol):
    """What the tokens of one row must keep to. It goes along with the row: every request needs one of its own."""

    def allowed(self) -> Tensor:
        """The tokens that may come next, a boolean (vocabulary) on the CPU. Raises ConstraintError."""

    def take(self, token: int) -> None:
        """This token came. Raises ConstraintError."""


@dataclass(frozen=True)
class Request:
    """One text to continue.

    Attributes:
        prompt: token ids, at least one.
        max_new_tokens: how many tokens at most, a stop token included.
        temperature: divides the logits, COLDEST at least; 0 takes the likeliest token.
        top_p: samples among the likeliest tokens that together hold this probability (after the temperature).
        top_k: samples among so many of the likeliest; 0 among all.
        stop_ids: tokens that end the row; the one met is the completion's last.
        seed: names the row's own stream of random numbers: a row samples alike alone and in any batch, as far as the
            rounding of the batch's matrix products allows.
        constraint: tokens that it does not allow are never drawn; None allows all.
        likeliest: how many of the likeliest tokens are told beside each drawn one.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: Sequence[int] = ()
    seed: int = 0
    top_k: int = 0
    constraint: Constraint | None = None
    likeliest: int = 0


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
    finish: Finish


@dataclass
class Row:
    """A request under way."""

    index: int
    """Its name."""
    request: Request
    uniforms: list[float]
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    tempered: list[float] = field(default_factory=list)
    likeliest: list[tuple[int, float]] = field(default_factory=list)
    """Beside the newest token: the likeliest ones with their log-probabilities, as many as were asked for."""
    finish: Finish | None = None
    """None while it goes on."""
    experts_TLA: Tensor | None = None
    """Of a row that has left a batch with `routes`: what `LatentCache.routes` kept of all tokens but the newest, which
    no layer has seen yet."""
    fault: ValueError | None = None
    """Why it cannot go on, as a constraint or logits that are not finite say; its newest token means nothing then."""


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
        batch = Batch(self.model, self.max_rows)
        exhausted = False
        while True:
            while not exhausted and batch.room:
                taken = next(source, None)
                if taken is None:
                    exhausted = True
                else:
                    batch.add(*taken)
            if not batch:
                return
            rows = batch.step()
            if on_token is not None:
                for row in rows:
                    on_token(row.index, row.tokens[-1])
            for row in reversed(rows):
                if row.fault:
                    raise ValueError(f"request {row.index}: {row.fault}")
                if row.finish:
                    done = Completion(tuple(row.tokens), tuple(row.log_probs), tuple(row.tempered), row.finish)
                    yield row.index, done


class Batch:
    """Rows under way that take a token each at a time: others may join and leave between two steps. The model must not
    change meanwhile."""

    @torch.inference_mode()
    def __init__(self, model: Transformer, max_rows: int, routes: bool = False) -> None:
        """`routes`: keep the experts that every token was routed to, for the rows that leave."""
        self.model, self.max_rows = model, max_rows
        self._rows: list[Row] = []  # in the order of the cache
        self._fresh: list[Row] = []  # their prompts have not run yet
        self._cache = LatentCache(model, max_rows, routes)
        self._decoder = decoder(model)

    def __len__(self) -> int:
        return len(self._rows) + len(self._fresh)

    @property
    def room(self) -> int:
        """How many rows may join."""
        return self.max_rows - len(self)

    @property
    def indices(self) -> list[int]:
        """The names of its rows."""
        return [row.index for row in self._rows + self._fresh]

    def add(self, index: int, request: Request) -> None:
        """Let a request join under the name `index`. Raises ValueError for one that cannot be served."""
        if fault := refused(request, self.model.config):
            raise ValueError(f"request {index}: {fault}")
        stream = torch.Generator("cpu").manual_seed(request.seed % 2**63)
        uniforms = torch.rand(request.max_new_tokens, generator=stream, dtype=torch.float64)
        self._fresh.append(Row(index, request, uniforms.tolist()))

    @torch.inference_mode()
    def drop(self, index: int) -> None:
        """End a row before its end; one that is not there any more is none's loss."""
        self._fresh = [row for row in self._fresh if row.index != index]
        for place, row in enumerate(self._rows):
            if row.index == index:
                self._remove(place)
                return

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """One token of every row; the rows, of which those that finished, or failed, have left."""
        # the rows under way first: a new row's first token comes from its prompt
        streams = [self._decoder.step(self._newest(), self._cache)] if self._rows else []
        streams += [self._prefill(group) for group in _groups(self._fresh)]
        rows = self._rows = self._rows + self._fresh
        self._fresh = []
        _sample(rows, self._decoder.logits(torch.cat(streams)))
        rows = list(rows)
        for place in reversed(range(len(rows))):
            row = rows[place]
            if row.tokens[-1] in row.request.stop_ids:
                row.finish = "stop"
            elif len(row.tokens) == row.request.max_new_tokens:
                row.finish = "length"
            if row.finish or row.fault:
                self._remove(place)
        return rows

    def _remove(self, place: int) -> None:
        if self._rows[place].fault:
            self._cache.clear(place)
        self._rows[place].experts_TLA = self._cache.routes(place)
        self._rows[place] = self._rows[-1]  # the last row moves into the gap
        self._rows.pop()
        self._cache.drop(place)

    def _prefill(self, rows: list[Row]) -> Tensor:
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
        new = self._cache.add([len(row.request.prompt) for row in rows])
        return self._decoder.prompts(tokens_PS.to(device), own_N, self._cache, new)

    def _newest(self) -> Tensor:
        return torch.tensor([row.tokens[-1] for row in self._rows], device=self.model.embed_tokens.weight.device)


def refused(request: Request, config: ModelConfig) -> str:
    """Why a model of this configuration cannot serve the request; empty where it can."""
    length = len(request.prompt) + request.max_new_tokens
    if not request.prompt:
        return "the prompt is empty; begin it with a token such as bos"
    if request.max_new_tokens < 1:
        return f"max_new_tokens = {request.max_new_tokens}; ask for at least one"
    if not all(0 <= token < config.vocab_size for token in request.prompt):
        return f"the prompt holds ids outside 0..{config.vocab_size - 1}; use this model's tokenizer"
    if not all(0 <= token < config.vocab_size for token in request.stop_ids):
        return f"a stop token is outside 0..{config.vocab_size - 1}; no text would end there"
    if length > config.max_position_embeddings:
        return f"prompt and new tokens make {length}, the model takes {config.max_position_embeddings}; ask for fewer"
    if not (request.temperature == 0 or request.temperature >= COLDEST) or not 0 < request.top_p <= 1:
        return f"temperature {request.temperature}, top_p {request.top_p}; give 0 or >= {COLDEST}, and (0, 1]"
    return ""


def _sample(rows: list[Row], logits_NV: Tensor) -> None:
    """Appends one token to every row; notes in a row why its token means nothing."""
    log_p_NV = logits_NV.log_softmax(-1)
    finite_N = torch.isfinite(log_p_NV[:, 0])  # one NaN or +inf among the logits spoils the whole row
    if not finite_N.all():
        for place in (~finite_N).nonzero()[:, 0].tolist():
            rows[place].fault = ValueError("the model's logits are not finite; its weights or its input are broken")
    choice_NV = _constrained(rows, logits_NV)
    drawn_N, own_N, tempered_N = _drawn(rows, logits_NV, log_p_NV, choice_NV)
    for row, token, log_p, tempered in zip(rows, drawn_N.tolist(), own_N.tolist(), tempered_N.tolist(), strict=True):
        row.tokens.append(token)
        row.log_probs.append(log_p)
        row.tempered.append(tempered)
        if row.request.constraint and not row.fault:
            try:
                row.request.constraint.take(token)
            except ConstraintError as error:
                row.fault = error
    for place, row in enumerate(rows):
        if row.request.likeliest:
            best = log_p_NV[place].topk(min(row.request.likeliest, log_p_NV.shape[1]))
            row.likeliest = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _constrained(rows: list[Row], logits_NV: Tensor) -> Tensor:
    """The logits that tokens are drawn by: -inf where a row's constraint does not allow one."""
    allowed_NV: Tensor | None = None
    for place, row in enumerate(rows):
        if row.request.constraint and not row.fault:
            try:
                allowed_V = row.request.constraint.allowed()
            except ConstraintError as error:
                row.fault = error
                continue
            if allowed_NV is None:
                allowed_NV = torch.ones(logits_NV.shape, dtype=torch.bool)
            allowed_NV[place] = allowed_V
    if allowed_NV is None:
        return logits_NV
    # once for all rows: every row of a server's chats has a constraint
    return logits_NV.where(allowed_NV.to(logits_NV.device), -torch.inf)


def _drawn(rows: list[Row], logits_NV: Tensor, log_p_NV: Tensor, choice_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A token of every row, its log-probability, and that of the tempered distribution."""
    heats = [row.request.temperature for row in rows]
    heat_N1 = torch.tensor(heats, device=logits_NV.device)[:, None]

    def tempered(of_NV: Tensor) -> Tensor:
        return (of_NV / heat_N1.where(heat_N1 > 0, 1.0)).log_softmax(-1)

    plain = all(heat in (0, 1) for heat in heats)
    tempered_NV = log_p_NV if plain else tempered(logits_NV)
    if not any(heats):
        drawn_N1 = choice_NV.max(-1, keepdim=True).indices
    else:
        drawn_N1 = _draw(rows, tempered_NV if choice_NV is logits_NV else tempered(choice_NV))
        if 0 in heats:
            drawn_N1 = drawn_N1.where(heat_N1 > 0, choice_NV.max(-1, keepdim=True).indices)
    tempered_N1 = tempered_NV.gather(1, drawn_N1).where(heat_N1 > 0, 0.0)
    return drawn_N1[:, 0], log_p_NV.gather(1, drawn_N1)[:, 0], tempered_N1[:, 0]


def _draw(rows: list[Row], log_p_NV: Tensor) -> Tensor:
    """A token of every row by its own random number and its top_p, (N, 1)."""
    # whole numbers have the same sums in any order: on a GPU torch refuses to promise that of others
    p_NV = log_p_NV.double().exp_().mul_(WHOLE).long()
    for place, row in enumerate(rows):
        if row.request.top_p < 1 or row.request.top_k:
            p_NV[place] = _nucleus(p_NV[place], row.request.top_p, row.request.top_k)
    uniforms = [[row.uniforms[len(row.tokens)]] for row in rows]
    uniform_N1 = torch.tensor(uniforms, device=p_NV.device, dtype=torch.float64)
    cumulated_NV = p_NV.cumsum_(-1)
    drawn_N1 = torch.searchsorted(cumulated_NV, (uniform_N1 * cumulated_NV[:, -1:]).long(), right=True)
    return drawn_N1.clamp_(max=p_NV.shape[-1] - 1)


def _groups(rows: list[Row]) -> list[list[Row]]:
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


def _nucleus(p_V: Tensor, top_p: float, top_k: int) -> Tensor:
    """The likeliest tokens that together hold `top_p`, at most `top_k`, the others at 0; at least one stays. `p_V` are
    probabilities times WHOLE."""
    sorted_V, order_V = p_V.sort(descending=True, stable=True)
    kept_V = sorted_V.cumsum(0) - sorted_V < max(top_p * WHOLE, 1.0)  # in float32 a smaller one could be 0
    if top_k:
        kept_V[top_k:] = False
    return torch.zeros_like(p_V).index_put_((order_V[kept_V],), sorted_V[kept_V])
