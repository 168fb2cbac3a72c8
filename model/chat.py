"""Kimi K2's chat and tool format, as released: dialogues to token ids with a loss mask, and generated ids back.

    <|im_system|>tool_declare<|im_middle|>[compact JSON]<|im_end|>
    <|im_user|>user<|im_middle|>...<|im_end|>
    <|im_assistant|>assistant<|im_middle|>...<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:IDX
        <|tool_call_argument_begin|>{json}<|tool_call_end|><|tool_calls_section_end|><|im_end|>
    <|im_system|>NAME<|im_middle|>## Return of functions.NAME:IDX
    ...<|im_end|>

(without the line breaks and indents between the pieces). IDX counts calls over the whole dialogue. Messages are
dictionaries in OpenAI's layout, content as a text or as a list of text parts, so that datasets and servers read them as
they are. Text never becomes a special
token, whoever wrote it: only this file places special ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

PREFIX = "functions."
STRUCTURE = (
    *("<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
)
TEXT_PART = '{"type": "text", "text": "..."}'
Message = Mapping[str, Any]
Segment = tuple[list[int], bool]


class ChatError(ValueError):
    """A dialogue that cannot be rendered; the message names the turn and what to change."""


@dataclass(frozen=True)
class ToolCall:
    """One well-formed call: its arguments are a JSON object; whether they fit the tool's schema is not checked here."""

    name: str
    """The function's name, without `functions.`; it may hold dots."""
    arguments: dict[str, Any]
    index: int
    """Its number in the dialogue."""

    @property
    def id(self) -> str:
        return f"{PREFIX}{self.name}:{self.index}"


@dataclass(frozen=True)
class ParseError:
    """One thing that is wrong in a generated turn."""

    reason: str
    """A sentence for people: what was wrong."""
    text: str
    """The piece it was found in."""


@dataclass(frozen=True)
class Reply:
    """An assistant turn read back from token ids. Broken calls are in `errors`, never in `calls`."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    errors: tuple[ParseError, ...] = ()
    finished: bool = True
    """Whether the turn ended by itself (<|im_end|>), not by a token budget."""

    def message(self) -> dict[str, Any]:
        """The turn in OpenAI's layout, well-formed calls only."""
        return assistant(self.content, [(call.name, call.arguments) for call in self.calls], self.calls)


def compact(value: Any) -> str:
    """JSON without spaces, non-ASCII text as it is, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def user(content: str | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(
    content: str, calls: Iterable[tuple[str, Mapping[str, Any]]] = (), ids: Sequence[ToolCall] = ()
) -> dict[str, Any]:
    """An assistant turn; `calls` are (name, arguments). Without `ids` the calls get theirs when they are rendered."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    made = [
        {"type": "function", "function": {"name": name, "arguments": compact(arguments)}} for name, arguments in calls
    ]
    for call, numbered in zip(made, ids, strict=False):
        call["id"] = numbered.id
    if made:
        message["tool_calls"] = made
    return message


def tool_result(name: str, call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": content}


def numbered(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The same dialogue with K2's call ids: `functions.NAME:IDX`, IDX from 0 over the whole dialogue.

    Calls that come with ids of another kind (`call_x1`) are renamed, and the results that answer them follow.

    Raises:
        ChatError: a result answers no call made before it, or a call is answered twice.
    """
    renamed: dict[str, str] = {}
    open_calls: set[str] = set()
    count, result = 0, []
    for turn, message in enumerate(messages):
        copy = dict(message)
        if copy.get("tool_calls"):
            calls = []
            for call in copy["tool_calls"]:
                fresh = f"{PREFIX}{call['function']['name']}:{count}"
                renamed[call.get("id") or fresh] = fresh
                renamed[fresh] = fresh
                open_calls.add(fresh)
                calls.append({**call, "id": fresh})
                count += 1
            copy["tool_calls"] = calls
        if copy["role"] == "tool":
            answered = renamed.get(copy.get("tool_call_id", ""))
            if answered is None or answered not in open_calls:
                raise ChatError(
                    f"turn {turn}: the result of {copy.get('tool_call_id')!r} answers no open call: "
                    "a result follows the assistant turn that made its call, once"
                )
            open_calls.remove(answered)
            copy["tool_call_id"] = answered
        result.append(copy)
    return result


@dataclass(frozen=True)
class Chat:
    """The format on one tokenizer.

    Raises:
        ChatError: the tokenizer lacks one of K2's special tokens.
    """

    tokenizer: Tokenizer
    ids: dict[str, int] = field(init=False)
    """Special tokens that build turns, by name."""
    specials: frozenset[int] = field(init=False)
    """Every special id of the tokenizer: no text is ever encoded to one."""

    def __post_init__(self) -> None:
        missing = [name for name in STRUCTURE if self.tokenizer.token_to_id(name) is None]
        if missing:
            raise ChatError(
                f"the tokenizer lacks {', '.join(missing)}: train it with model.vocabulary's special tokens"
            )
        ids = {name: self.tokenizer.token_to_id(name) for name in STRUCTURE}
        added = self.tokenizer.get_added_tokens_decoder()
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "specials", frozenset(ids.values()) | {i for i, t in added.items() if t.special})
        # From here on this tokenizer reads "<|im_end|>" in a text as the ten characters it is.
        self.tokenizer.encode_special_tokens = True

    @property
    def stop(self) -> int:
        """The id that ends a turn."""
        return self.ids["<|im_end|>"]

    def encode(self, text: str) -> list[int]:
        """The ids of plain text; what looks like a special token stays text."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        if not self.specials.isdisjoint(ids):
            raise ChatError("the tokenizer turned text into a special token: it must encode special tokens as text")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens by name."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), add_generation_prompt: bool = False
    ) -> list[Segment]:
        """A dialogue as consecutive pieces (ids, trained?).

        Trained are what the assistant itself wrote: content, calls and the `<|im_end|>` behind them; never the header
        of its turn, which at inference is given.

        Args:
            messages: OpenAI's layout; roles system, user, assistant, tool.
            tools: OpenAI's layout (`{"type": "function", "function": {...}}`), declared first when there are any.
            add_generation_prompt: end with the header of an assistant turn.

        Raises:
            ChatError: an unknown role, content that is no text, or a result that answers no call.
        """
        pieces: list[Segment] = []
        if tools:
            pieces.append((self._turn("<|im_system|>", "tool_declare", self.encode(compact(list(tools)))), False))
        for turn, message in enumerate(numbered(messages)):
            role, content = message["role"], _text(turn, message.get("content"))
            if role == "assistant":
                pieces.append((self._header("<|im_assistant|>", message.get("name") or role), False))
                calls = message.get("tool_calls") or []
                pieces.append(([*self.encode(content), *self._calls(calls), self.stop], True))
            elif role == "user":
                pieces.append((self._turn("<|im_user|>", message.get("name") or role, self.encode(content)), False))
            elif role in ("system", "tool"):
                if role == "tool":
                    content = f"## Return of {message['tool_call_id']}\n{content}"
                pieces.append((self._turn("<|im_system|>", message.get("name") or role, self.encode(content)), False))
            else:
                raise ChatError(f"turn {turn}: role {role!r} is unknown: use system, user, assistant or tool")
        if add_generation_prompt:
            pieces.append((self._header("<|im_assistant|>", "assistant"), False))
        return pieces

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The ids that an assistant turn continues."""
        return flat(self.render(messages, tools, add_generation_prompt=True))[0]

    def parse(self, ids: Sequence[int]) -> Reply:
        """The assistant turn that `ids` (what was generated after the header) say; never raises on what a model wrote.

        Reading stops at the first `<|im_end|>`; calls with broken ids or JSON, special tokens in the wrong place and
        text behind the calls are reported in `errors`.
        """
        end = next((place for place, token in enumerate(ids) if token == self.stop), None)
        body = list(ids if end is None else ids[:end])
        begin = self.ids["<|tool_calls_section_begin|>"]
        split = body.index(begin) if begin in body else len(body)
        errors = self._strays(body[:split])
        content = self.decode([token for token in body[:split] if token not in self.specials])
        calls: list[ToolCall] = []
        if split < len(body):
            self._read_section(body[split + 1 :], calls, errors)
        return Reply(content, tuple(calls), tuple(errors), end is not None)

    def _header(self, opening: str, name: str) -> list[int]:
        return [self.ids[opening], *self.encode(name), self.ids["<|im_middle|>"]]

    def _turn(self, opening: str, name: str, content: list[int]) -> list[int]:
        return [*self._header(opening, name), *content, self.stop]

    def _calls(self, calls: Sequence[Mapping[str, Any]]) -> list[int]:
        if not calls:
            return []
        ids = [self.ids["<|tool_calls_section_begin|>"]]
        for call in calls:
            arguments = call["function"]["arguments"]
            text = arguments if isinstance(arguments, str) else compact(arguments)
            ids += [self.ids["<|tool_call_begin|>"], *self.encode(call["id"])]
            ids += [self.ids["<|tool_call_argument_begin|>"], *self.encode(text), self.ids["<|tool_call_end|>"]]
        return [*ids, self.ids["<|tool_calls_section_end|>"]]

    def _strays(self, ids: Sequence[int]) -> list[ParseError]:
        """One error for each special token where only text belongs."""
        found = [token for token in ids if token in self.specials]
        return [ParseError("a special token stands where only text belongs", self.decode([token])) for token in found]

    def _read_section(self, ids: list[int], calls: list[ToolCall], errors: list[ParseError]) -> None:
        """Read `ids` behind a section's beginning: calls, the section's end, and nothing more."""
        opening, ending = self.ids["<|tool_call_begin|>"], self.ids["<|tool_call_end|>"]
        closing = self.ids["<|tool_calls_section_end|>"]
        place = 0
        while place < len(ids) and ids[place] == opening:
            if ending not in ids[place:]:
                errors.append(ParseError("a tool call has no end", self.decode(ids[place:])))
                return
            stop = ids.index(ending, place)
            call = self._read_call(ids[place + 1 : stop])
            (errors if isinstance(call, ParseError) else calls).append(call)  # type: ignore[arg-type]
            place = stop + 1
        if place == 0:
            errors.append(ParseError("the tool section holds no call", self.decode(ids)))
        elif place == len(ids) or ids[place] != closing:
            errors.append(ParseError("the tool section has no end", self.decode(ids[place:])))
        elif ids[place + 1 :]:
            errors.append(ParseError("something stands behind the tool section", self.decode(ids[place + 1 :])))

    def _read_call(self, ids: list[int]) -> ToolCall | ParseError:
        text = self.decode(ids)
        middle = self.ids["<|tool_call_argument_begin|>"]
        if ids.count(middle) != 1:
            return ParseError("a tool call needs its id, one <|tool_call_argument_begin|> and its arguments", text)
        split = ids.index(middle)
        if self._strays(ids[:split] + ids[split + 1 :]):
            return ParseError("a special token stands inside a tool call", text)
        name, colon, index = self.decode(ids[:split]).strip().rpartition(":")
        if not colon or not name.startswith(PREFIX) or name == PREFIX or not (index.isascii() and index.isdigit()):
            return ParseError("a tool call's id is not functions.NAME:IDX", text)
        if len(index) > 9:
            return ParseError("a tool call's number is absurd", text)
        try:
            arguments = json.loads(self.decode(ids[split + 1 :]), parse_constant=_refuse, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            return ParseError(f"a tool call's arguments are not JSON: {error}", text)
        if not isinstance(arguments, dict):
            return ParseError("a tool call's arguments are not a JSON object", text)
        return ToolCall(name.removeprefix(PREFIX), arguments, int(index))


def flat(segments: Iterable[Segment]) -> tuple[list[int], list[bool]]:
    """Pieces joined: ids [T] and for each whether it is trained [T]."""
    ids: list[int] = []
    mask: list[bool] = []
    for piece, trained in segments:
        ids += piece
        mask += [trained] * len(piece)
    return ids, mask


def _text(turn: int, content: Any) -> str:
    """What a message says: a text, or the texts of its parts one behind the other, as K2's own template has them."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple) or not all(isinstance(part, Mapping) for part in content):
        raise ChatError(f"turn {turn}: content is a text or a list of parts such as {TEXT_PART}, not {content!r:.80}")
    for part in content:
        if part.get("type") != "text":
            raise ChatError(f"turn {turn}: a part of type {part.get('type')!r} cannot be read: use parts of type text")
        if not isinstance(part.get("text"), str):
            raise ChatError(f"turn {turn}: a part of type text has no text: write it as {TEXT_PART}")
    return "".join(part["text"] for part in content)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found
