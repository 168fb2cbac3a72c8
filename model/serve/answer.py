"""From a job's tokens to OpenAI's answers: whole ones, and the same as a stream of chunks."""

from __future__ import annotations

import codecs
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from model.chat import Chat
from model.dialogue import PREFIX
from model.generate import ConstraintError
from model.reply import Piece, Reply
from model.serve.protocol import ApiError
from model.serve.turn import NOTHING, Turn
from model.serve.worker import Event, Job


@dataclass(frozen=True)
class Asked:
    """What the making of an answer needs of its request."""

    chat: bool
    """An assistant's turn; else text that goes on."""
    model: str
    prompt_tokens: int
    choices: int
    stops: tuple[str, ...]
    calls_before: int = 0
    """Calls in the dialogue so far: K2 numbers them through."""
    log_probs: bool = False
    token_ids: bool = False
    """Tell the tokens themselves, with the one that ends a choice."""
    ends: Sequence[int] = ()
    """Tokens that end a choice and are no part of its text."""
    first: Callable[[], None] = lambda: None
    """Called when the first token is there."""


@dataclass(frozen=True)
class Delta:
    """What one token adds to one choice."""

    place: int
    pieces: Sequence[Piece] = ()
    entry: dict[str, Any] | None = None
    """The token with its log-probability, where they are asked for."""
    finish: str | None = None
    reply: Reply = NOTHING
    """Where the choice ends: its calls, and what is wrong with those that are broken."""
    token: int = -1


class Answer:
    """One answer under way; `new` are its tokens so far."""

    def __init__(self, asked: Asked, chat: Chat, job: Job, bytes_of: Callable[[int], bytes]) -> None:
        self.asked, self.chat, self.job, self.bytes_of = asked, chat, job, bytes_of
        self.new = 0
        self._head: dict[str, Any] = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": "chat.completion" if asked.chat else "text_completion",
            "created": int(time.time()),
            "model": asked.model,
        }

    async def deltas(self) -> AsyncIterator[Delta]:
        """What every token adds, until all choices have ended. Raises ApiError."""
        turns = [Turn(self.chat, self.asked.stops, not self.asked.chat) for _ in range(self.asked.choices)]
        left = set(range(self.asked.choices))
        while left:
            place, event = await self.job.events.get()
            if event.fault is not None:
                raise _told(event.fault)
            if place not in left:
                continue
            if not self.new:
                self.asked.first()
            self.new += 1
            turn = turns[place]
            ended, shown = event.token in self.asked.ends, event.token not in self.asked.ends
            # the reader of a turn is told of the token that ends it, and of no other such
            pieces = turn.add(event.token) if shown or (self.asked.chat and event.token == self.chat.stop) else []
            entry = self._entry(event) if self.asked.log_probs and (shown or self.asked.token_ids) else None
            if not (event.finish or turn.stopped):
                yield Delta(place, pieces, entry, token=event.token)
                continue
            if turn.stopped:
                self.job.end(place)
            left.discard(place)
            rest, reply = turn.end()
            finish = "stop" if ended or turn.stopped else "length"
            if reply.calls and finish == "stop":
                finish = "tool_calls"
            yield Delta(place, [*pieces, *rest], entry, finish, reply, event.token)

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        made = [_Choice(place, self.asked) for place in range(self.asked.choices)]
        async for delta in self.deltas():
            made[delta.place].add(delta)
        return {**self._head, "choices": [one.body() for one in made], "usage": self._usage()}

    async def chunks(self, usage: bool) -> AsyncIterator[dict[str, Any]]:
        """The answer as OpenAI streams it; with `usage` a last chunk of no choices tells the tokens."""
        head = {**self._head, **({"usage": None} if usage else {})}
        if self.asked.chat:
            head["object"] = "chat.completion.chunk"
        made = [_Choice(place, self.asked) for place in range(self.asked.choices)]
        if self.asked.chat:
            for one in made:
                yield {**head, "choices": [one.chunk({"role": "assistant", "content": ""})]}
        async for delta in self.deltas():
            for choice in made[delta.place].stream(delta):
                yield {**head, "choices": [choice]}
        if usage:
            yield {**head, "choices": [], "usage": self._usage()}

    def _usage(self) -> dict[str, int]:
        prompt = self.asked.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": self.new, "total_tokens": prompt + self.new}

    def _entry(self, event: Event) -> dict[str, Any]:
        best = [self._named(token, log_prob) for token, log_prob in event.likeliest]
        return {**self._named(event.token, event.log_prob), "top_logprobs": best}

    def _named(self, token: int, log_prob: float) -> dict[str, Any]:
        data = self.bytes_of(token)
        return {"token": data.decode(errors="replace"), "logprob": max(log_prob, -9999.0), "bytes": list(data)}


def _told(fault: Exception) -> ApiError:
    if isinstance(fault, ConstraintError):
        return ApiError(400, str(fault), code="invalid_schema")
    return fault if isinstance(fault, ApiError) else ApiError(500, str(fault))


class _Choice:
    """One choice put together."""

    def __init__(self, place: int, asked: Asked) -> None:
        self._place, self._asked = place, asked
        self._text = ""
        self._begun = 0  # calls that were shown, good or broken
        self._entries: list[dict[str, Any]] = []
        self._tokens: list[int] = []
        self._offset = 0  # of the next token in a completion's text
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")  # a token may hold part of one
        self._finish: str | None = None
        self._calls: list[dict[str, Any]] = []
        self._errors: list[dict[str, str]] = []

    def add(self, delta: Delta) -> None:
        for piece in delta.pieces:
            self._take(piece)
        if delta.entry:
            self._entries.append(delta.entry)
        self._tokens.append(delta.token)
        self._finish = delta.finish
        # Not as they were shown: one that a limit cuts off is told as an error, so that nobody runs half of it.
        self._calls = [self._call(place, call.name, call.written) for place, call in enumerate(delta.reply.calls)]
        self._errors = [{"reason": error.reason, "text": error.text} for error in delta.reply.errors]

    def _take(self, piece: Piece) -> dict[str, Any]:
        """The piece, taken in, as it is streamed."""
        if piece.kind == "content":
            self._text += piece.text
            return {"content": piece.text}
        if piece.kind == "call":
            name, place = piece.text.removeprefix(PREFIX).rpartition(":")[0], self._begun
            self._begun += 1
            return {"tool_calls": [{"index": place, **self._call(place, name, "")}]}
        return {"tool_calls": [{"index": self._begun - 1, "function": {"arguments": piece.text}}]}

    def _call(self, place: int, name: str, arguments: str) -> dict[str, Any]:
        number = self._asked.calls_before + place
        function = {"name": name, "arguments": arguments}
        return {"id": f"{PREFIX}{name}:{number}", "type": "function", "function": function}

    def stream(self, delta: Delta) -> list[dict[str, Any]]:
        """What the delta is in a stream: a chunk a piece, and one more where the choice ends."""
        self._finish, self._entries = None, [delta.entry] if delta.entry else []
        told: list[dict[str, Any]] = [self._take(piece) for piece in delta.pieces]
        if not told and self._entries:
            told = [{"content": ""}]
        chunks = []
        for one in told:
            chunks.append(self.chunk(one))
            self._entries = []  # beside the first alone
        if delta.finish:
            self.add(Delta(delta.place, (), None, delta.finish, delta.reply))
            chunks.append(self.chunk({"tool_call_errors": self._errors} if self._errors else {}))
        return chunks

    def chunk(self, delta: dict[str, Any]) -> dict[str, Any]:
        said = {"delta": delta} if self._asked.chat else {"text": delta.get("content", "")}
        return {"index": self._place, **said, "logprobs": self._log_probs(), "finish_reason": self._finish}

    def body(self) -> dict[str, Any]:
        """The whole choice."""
        if not self._asked.chat:
            told = {"token_ids": self._tokens} if self._asked.token_ids else {}
            return self.chunk({"content": self._text}) | told
        message: dict[str, Any] = {"role": "assistant", "content": self._text or (None if self._calls else "")}
        if self._calls:
            message["tool_calls"] = self._calls
        if self._errors:
            message["tool_call_errors"] = self._errors
        found = {"message": message, "logprobs": self._log_probs(), "finish_reason": self._finish}
        return {"index": self._place, **found}

    def _log_probs(self) -> dict[str, Any] | None:
        if not self._asked.log_probs or not self._entries:
            return None
        if self._asked.chat:
            return {"content": self._entries}
        return {
            "tokens": [entry["token"] for entry in self._entries],
            "token_logprobs": [entry["logprob"] for entry in self._entries],
            "top_logprobs": [
                {one["token"]: one["logprob"] for one in entry["top_logprobs"]} for entry in self._entries
            ],
            "text_offset": [self._begin(bytes(entry["bytes"])) for entry in self._entries],
        }

    def _begin(self, data: bytes) -> int:
        """Where the next token begins in a completion's text."""
        begun, _ = self._characters.getstate()
        broken = begun and data and not 0x80 <= data[0] < 0xC0  # it does not go on with the character
        place = self._offset + bool(broken)
        self._offset += len(self._characters.decode(data))
        return place
