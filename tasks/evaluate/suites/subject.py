"""What is measured: a network in memory, or a model behind an OpenAI-compatible endpoint.

Shapes: B rows, S tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from model.chat import Chat
from model.dialogue import PREFIX, compact
from model.engines.engine import Completion, Message, Prompt, PromptRefused, Sampling
from model.engines.openai import OpenAI
from model.generate import Generator, Request
from model.reply import ParseError, Reply, ToolCall, read_call
from model.transformer import Transformer
from tasks.evaluate.suites.item import Unmeasurable

ROWS = 8  # of one forward of log-likelihoods


@dataclass(frozen=True)
class Ask:
    """One prompt, answered once for every seed."""

    messages: Sequence[Mapping[str, Any]] = ()
    """A dialogue, in OpenAI's layout."""
    text: str = ""
    """Instead of a dialogue: a text to go on with."""
    tools: Sequence[Mapping[str, Any]] = ()
    max_new_tokens: int = 256
    temperature: float = 0.0
    seeds: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, form: str, text: str, **options: Any) -> Ask:
        """`text` as a user's turn (`chat`) or to go on with (`raw`)."""
        return cls(text=text, **options) if form == "raw" else cls(({"role": "user", "content": text},), **options)


@dataclass(frozen=True)
class Likelihood:
    """How likely a text is behind another."""

    log_p: float
    """Of all its tokens."""
    greedy: bool
    """Whether every token of it is the likeliest."""
    tokens: int


class Subject(Protocol):
    """A model that suites measure."""

    def replies(self, asks: Sequence[Ask]) -> list[list[Reply] | None]:
        """By prompt, the replies in the order of its seeds; None where the window has no room for it."""
        ...

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """How likely the second text of each pair is behind the first; Unmeasurable where nothing tells."""
        ...

    def count(self, text: str) -> int:
        """How many tokens a text has."""
        ...


def shown(reply: Reply) -> str:
    """A reply as it is kept for reading."""
    calls = "".join(f"{call.name}({call.written or call.arguments})" for call in reply.calls)
    return "\n".join(part for part in (reply.content, calls) if part)


class Network:
    """A network in memory with its chat format; products in float32."""

    def __init__(self, model: Transformer, chat: Chat) -> None:
        self.model, self.chat = model, chat

    def replies(self, asks: Sequence[Ask]) -> list[list[Reply] | None]:
        end, window = self.model.config.eos_token_id, self.model.config.max_position_embeddings
        requests: list[Request] = []
        of: list[int | None] = []
        for ask in asks:
            ids = self._ids(ask)
            of.append(len(requests) if len(ids) + ask.max_new_tokens <= window else None)
            if of[-1] is not None:
                stops = (self.chat.stop, end)
                requests += [Request(ids, ask.max_new_tokens, ask.temperature, 1.0, stops, seed) for seed in ask.seeds]
        # long prompts first: rows of like length share a prefill
        order = sorted(range(len(requests)), key=lambda place: (-len(requests[place].prompt), place))
        done = dict(zip(order, Generator(self.model).generate([requests[place] for place in order]), strict=True))
        return [
            None if first is None else [self._reply(done[first + draw].tokens) for draw in range(len(ask.seeds))]
            for ask, first in zip(asks, of, strict=True)
        ]

    @torch.inference_mode()
    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        config = self.model.config
        found: list[Likelihood] = []
        for first in range(0, len(pairs), ROWS):
            rows = []
            for before, after in pairs[first : first + ROWS]:
                behind = self.chat.encode(after)
                # a context too long for the window loses its beginning, as evaluation harnesses do it
                room = config.max_position_embeddings + 1 - len(behind)
                if room < 1:
                    raise Unmeasurable(f"an answer of {len(behind)} tokens is longer than the model's window")
                rows.append((([config.bos_token_id, *self.chat.encode(before)])[-room:], behind))
            longest = max(len(context) + len(behind) for context, behind in rows)
            tokens_BS = torch.full((len(rows), longest), config.pad_token_id)
            for place, (context, behind) in enumerate(rows):
                tokens_BS[place, : len(context) + len(behind)] = torch.tensor([*context, *behind])
            # padding stands behind, where a causal model does not look
            log_p_BSV = self.model.logits(self.model(tokens_BS[:, :-1]).hidden_BSD).float().log_softmax(-1)
            for place, (context, behind) in enumerate(rows):
                start, stop = len(context) - 1, len(context) + len(behind) - 1
                target_S = tokens_BS[place, start + 1 : stop + 1]
                log_p_S = log_p_BSV[place, start:stop].gather(-1, target_S[:, None])[:, 0]
                greedy = bool((log_p_BSV[place, start:stop].argmax(-1) == target_S).all())
                found.append(Likelihood(float(log_p_S.double().sum()), greedy, len(behind)))
        return found

    def count(self, text: str) -> int:
        return len(self.chat.encode(text))

    def _ids(self, ask: Ask) -> list[int]:
        if ask.messages:
            return self.chat.prompt([dict(message) for message in ask.messages], ask.tools)
        return self.chat.encode(ask.text) or [self.model.config.bos_token_id]

    def _reply(self, tokens: Sequence[int]) -> Reply:
        """The end of a document ends a continuation as the end of a turn ends a reply."""
        if tokens and tokens[-1] == self.model.config.eos_token_id:
            tokens = [*tokens[:-1], self.chat.stop]
        return self.chat.parse(tokens)


class Endpoint:
    """A model behind a chat API: it answers dialogues, and tells no likelihoods."""

    def __init__(self, engine: OpenAI) -> None:
        self.engine = engine

    def replies(self, asks: Sequence[Ask]) -> list[list[Reply] | None]:
        if any(not ask.messages for ask in asks):
            raise Unmeasurable("an endpoint answers dialogues and continues no text: set the suite's `form` to chat")
        prompts = [self._prompt(ask, seed) for ask in asks for seed in ask.seeds]
        try:
            answers = iter(self.engine.fitting(prompts))
        except PromptRefused as refusal:  # it takes no tools, say: other suites may be measured
            raise Unmeasurable(str(refusal)) from None
        found: list[list[Reply] | None] = []
        for ask in asks:
            drawn = [next(answers) for _ in ask.seeds]
            said = [reply_of(one) for one in drawn if one is not None]
            found.append(said if len(said) == len(drawn) else None)
        return found

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        raise Unmeasurable("a chat endpoint does not tell how likely a text is: measure the weights themselves")

    def count(self, text: str) -> int:
        return -(-len(text.encode()) // 4)

    def _prompt(self, ask: Ask, seed: int) -> Prompt:
        messages = tuple(map(Message.of, ask.messages))
        sampling = Sampling(temperature=ask.temperature, top_p=1.0, top_k=0)
        tools = json.dumps(list(ask.tools)) if ask.tools else ""
        return Prompt(messages, sampling, ask.max_new_tokens, seed, tools=tools)


def reply_of(completion: Completion) -> Reply:
    """An endpoint's answer as a turn; its tool calls are untrusted, and what is no call stands among the errors."""
    calls: list[ToolCall] = []
    errors: list[ParseError] = []
    given = json.loads(completion.calls) if completion.calls else []
    for place, call in enumerate(given if isinstance(given, list) else [given]):
        try:
            name = str(call["function"]["name"])
            if not name:
                raise ValueError("it names no function")
            compact(name)  # no half of a character
            found = read_call(f"{PREFIX}{name}:{place}", call["function"]["arguments"] or "{}")
            if isinstance(found, str):
                raise ValueError(found)
            calls.append(found)
        except (ValueError, TypeError, KeyError) as error:
            errors.append(ParseError(f"a call that cannot be read: {error}", str(call)[:400]))
    return Reply(completion.text, tuple(calls), tuple(errors), completion.finish != "length")
