"""Kimi K2's chat and tool format, as released: dialogues to token ids with a loss mask, and generated ids back.

    <|im_system|>tool_declare<|im_middle|>[compact JSON]<|im_end|>
    <|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>
    <|im_user|>user<|im_middle|>...<|im_end|>
    <|im_assistant|>assistant<|im_middle|>...<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:IDX
        <|tool_call_argument_begin|>{json}<|tool_call_end|><|tool_calls_section_end|><|im_end|>
    <|im_system|>NAME<|im_middle|>## Return of functions.NAME:IDX
    ...<|im_end|>

(without the line breaks and indents between the pieces). IDX counts calls over the whole dialogue. `model.dialogue`
says what a message may hold, `model.reply` how a turn is read back; this file stands between them and token ids. Text
never becomes a special token, whoever wrote it: only this file places special ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from model.dialogue import ChatError, Message, assistant, compact, numbered, shown, spaced, tool_result, user
from model.reply import ARGUMENTS, CALL, CALL_END, END, SECTION, SECTION_END, ParseError, Piece, Reader, Reply, ToolCall

__all__ = [
    "BROKEN",
    "Chat",
    "ChatError",
    "Message",
    "ParseError",
    "Piece",
    "Reply",
    "Segment",
    "Stream",
    "Text",
    "ToolCall",
    "assistant",
    "compact",
    "flat",
    "numbered",
    "spaced",
    "tool_result",
    "user",
]

USER, ASSISTANT, SYSTEM, MIDDLE = "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"
STRUCTURE = (END, USER, ASSISTANT, SYSTEM, MIDDLE, SECTION, SECTION_END, CALL, ARGUMENTS, CALL_END)
DEFAULT_SYSTEM = "You are Kimi, an AI assistant created by Moonshot AI."
"""What the released template puts before a dialogue that begins with no system turn."""
BROKEN = "\ufffd"  # what a decoder gives for bytes that are no whole character yet
MOST_HELD = 16
"""Tokens that wait for the end of a character, before it is asked whether all of them must."""
Segment = tuple[list[int], bool]


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
        return self.ids[END]

    def encode(self, text: str) -> list[int]:
        """The ids of plain text; what looks like a special token stays text."""
        if not isinstance(text, str):
            raise ChatError(f"only text has tokens, not {shown(text)}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ChatError(f"character {error.start} of a text is half a surrogate pair: repair the text") from None
        # Unlike `encode` it frees the interpreter meanwhile: a server's loop goes on under a text of a megabyte.
        ids = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if not self.specials.isdisjoint(ids):
            raise ChatError("the tokenizer turned text into a special token: it must encode special tokens as text")
        return ids

    def beginning(self, text: str, bos: int) -> list[int]:
        """The ids of a text that is to go on; before the first word that is `bos` alone."""
        return self.encode(text) or [bos]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens by name."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = (),
        add_generation_prompt: bool = False,
        default_system: bool = False,
    ) -> list[Segment]:
        """A dialogue as consecutive pieces (ids, trained?).

        Trained are what the assistant itself wrote: content, calls and the `<|im_end|>` behind them; never the header
        of its turn, which at inference is given.

        Args:
            messages: OpenAI's layout; roles system, user, assistant, tool.
            tools: OpenAI's layout (`{"type": "function", "function": {...}}`), declared first when there are any.
            add_generation_prompt: end with the header of an assistant turn.
            default_system: put K2's own system turn before a dialogue that begins with another one.

        Raises:
            ChatError: a message, a call or a tool that is not of OpenAI's layout, or a result that answers no call.
        """
        pieces: list[Segment] = []
        if tools:
            pieces.append((self._turn(SYSTEM, "tool_declare", self.encode(declaration(tools))), False))
        turns = numbered(messages)
        if default_system and turns and turns[0]["role"] != "system":
            pieces.append((self._turn(SYSTEM, "system", self.encode(DEFAULT_SYSTEM)), False))
        for place, turn in enumerate(turns):
            try:
                pieces += self._message(turn)
            except ChatError as error:
                raise ChatError(f"turn {place}: {error}") from None
        if add_generation_prompt:
            pieces.append((self._header(ASSISTANT, "assistant"), False))
        return pieces

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = (),
        default_system: bool = False,
    ) -> list[int]:
        """The ids that an assistant turn continues."""
        return flat(self.render(messages, tools, add_generation_prompt=True, default_system=default_system))[0]

    def following(self, messages: Sequence[Message]) -> list[int]:
        """The ids between an assistant turn and the next one: what tools and users say, results with the ids that they
        have, and the header of the next turn. Behind a prompt and a turn they are what `prompt` gives for all of them.

        Raises:
            ChatError: a text that cannot be encoded.
        """
        pieces = [piece for message in messages for piece in self._message({"name": message["role"], **message})]
        return [*flat(pieces)[0], *self._header(ASSISTANT, "assistant")]

    def parse(self, ids: Sequence[int]) -> Reply:
        """The assistant turn that `ids` (what was generated after the header) say; never raises on what a model wrote.

        Reading stops at the first `<|im_end|>`; calls with broken ids or JSON, special tokens in the wrong place and
        text behind the calls are reported in `errors`.
        """
        stream = self.stream()
        stream.add(ids)
        return stream.reply()

    def stream(self) -> Stream:
        """A reader for a turn that is still being generated."""
        return Stream(self)

    def _message(self, turn: Mapping[str, Any]) -> list[Segment]:
        """The pieces of one checked message."""
        role, content = turn["role"], turn["content"]
        if role == "assistant":
            wrote = [*self.encode(content), *self._calls(turn["tool_calls"]), self.stop]
            return [(self._header(ASSISTANT, turn["name"]), False), (wrote, True)]
        if role == "tool":
            content = f"## Return of {turn['tool_call_id']}\n{content}"
        return [(self._turn(USER if role == "user" else SYSTEM, turn["name"], self.encode(content)), False)]

    def _header(self, opening: str, name: str) -> list[int]:
        return [self.ids[opening], *self.encode(name), self.ids[MIDDLE]]

    def _turn(self, opening: str, name: str, content: list[int]) -> list[int]:
        return [*self._header(opening, name), *content, self.stop]

    def _calls(self, calls: Sequence[Mapping[str, Any]]) -> list[int]:
        if not calls:
            return []
        ids = [self.ids[SECTION]]
        for call in calls:
            ids += [self.ids[CALL], *self.encode(call["id"])]
            ids += [self.ids[ARGUMENTS], *self.encode(call["function"]["arguments"]), self.ids[CALL_END]]
        return [*ids, self.ids[SECTION_END]]


class Text:
    """Plain text decoded while its tokens come, special ones by name: a character of several waits for its last."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._ids: list[int] = []

    def add(self, token: int) -> str:
        """What this token lets be shown."""
        self._ids.append(token)
        text = self._chat.decode(self._ids)
        if not text.endswith(BROKEN):
            self._ids = []
            return text
        # Bytes that are no characters may go on for ever, as may that very character; read as a whole for each token
        # they would take the square of their time. Where both sides read apart say the same, no character is cut.
        for cut in range(len(self._ids) - 1, 0, -1) if len(self._ids) >= MOST_HELD else ():
            whole = self._chat.decode(self._ids[:cut])
            if whole + self._chat.decode(self._ids[cut:]) == text:
                self._ids = self._ids[cut:]
                return whole
        return ""

    def rest(self) -> str:
        """What was held back, where nothing more comes; half a character shows as such."""
        text, self._ids = self._chat.decode(self._ids), []
        return text


class Stream:
    """An assistant turn read while it is generated, cut anywhere; the reply is the one that `Chat.parse` gives."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._reader = Reader()
        self._decoded = Text(chat)

    def add(self, ids: Iterable[int]) -> list[Piece]:
        """What these tokens let be shown."""
        pieces: list[Piece] = []
        text = ""
        for token in ids:
            if token in self._chat.specials:
                pieces += self._reader.text(text) + self.rest() + self._reader.marker(self._chat.decode([token]))
                text = ""
            else:
                text += self._decoded.add(token)
        return pieces + self._reader.text(text)

    def rest(self) -> list[Piece]:
        """What was held back, where nothing more comes."""
        return self._reader.text(self._decoded.rest())

    def reply(self) -> Reply:
        """The whole turn; nothing is added to the stream after it."""
        self.rest()
        return self._reader.reply()


def declaration(tools: Sequence[Mapping[str, Any]]) -> str:
    """The text that declares tools: their schemas as they are given, in compact JSON."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ChatError(f"tools are a list of schemas, not {shown(tools)}")
    for place, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise ChatError(f"tool {place} is no schema but {shown(tool)}: a tool is a dictionary")
    return compact(list(tools), "the declaration of the tools")


def flat(segments: Iterable[Segment]) -> tuple[list[int], list[bool]]:
    """Pieces joined: ids [T] and for each whether it is trained [T]."""
    ids: list[int] = []
    mask: list[bool] = []
    for piece, trained in segments:
        ids += piece
        mask += [trained] * len(piece)
    return ids, mask
