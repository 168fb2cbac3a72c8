"""An assistant turn read back, piece by piece while it is generated or all at once: content, tool calls, what is wrong.

    content <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:IDX
        <|tool_call_argument_begin|>{json}<|tool_call_end|>...<|tool_calls_section_end|><|im_end|>

`Reader` is fed texts and markers (special tokens, by name) in their order; where they come from is `model.chat`'s
business. However the texts are cut, the reply is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from model.dialogue import PREFIX, compact, spaced, strict_json

END = "<|im_end|>"
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
NO_PARTS = f"a tool call needs its id, one {ARGUMENTS} and its arguments"
MAX_DEPTH = 100
"""Arguments that nest deeper are broken: what holds them against a schema goes down by recursion."""


@dataclass(frozen=True)
class ToolCall:
    """One well-formed call: its arguments are a JSON object; whether they fit the tool's schema is not checked here."""

    name: str
    """The function's name, without `functions.`; it may hold dots."""
    arguments: dict[str, Any]
    index: int
    """Its number in the dialogue."""
    written: str = field(default="", compare=False)
    """The arguments as the model wrote them, so that the turn can be rendered again to the same ids."""

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
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.written or spaced(call.arguments)},
                }
                for call in self.calls
            ]
        return message


@dataclass(frozen=True)
class Piece:
    """What a turn goes on with. The pieces of a kind joined are what the reply holds, broken arguments included."""

    kind: Literal["content", "call", "arguments"]
    text: str
    """Of a call, its id: it begins here, and its arguments follow."""


class Reader:
    """Reads one turn. It raises on nothing that a model wrote: that is what `Reply.errors` is for."""

    def __init__(self) -> None:
        self._state: Literal["content", "section", "id", "arguments", "behind", "end"] = "content"
        self._content: list[str] = []
        self._calls: list[ToolCall] = []
        self._errors: list[ParseError] = []
        self._id: list[str] = []
        self._arguments: list[str] = []
        self._raw: list[str] = []  # everything of a call, between calls or behind them, markers by name
        self._problem = ""  # of the call, found before its end
        self._begun = 0  # calls, good or broken

    def text(self, text: str) -> list[Piece]:
        """Text goes on; what of it can be shown already."""
        match self._state:
            case "content":
                self._content.append(text)
                return [Piece("content", text)] if text else []
            case "id":
                self._id.append(text)
                self._raw.append(text)
            case "arguments":
                self._arguments.append(text)
                self._raw.append(text)
                return [Piece("arguments", text)] if text and not self._problem else []
            case "section" | "behind":
                self._raw.append(text)
        return []

    def marker(self, name: str) -> list[Piece]:
        """A special token comes, by its name."""
        if self._state == "end":
            return []
        if self._state in ("id", "arguments"):
            if name not in (CALL, SECTION_END, END):
                return self._inside_call(name)
            if name != END:
                self._end_call("a tool call has no end")
        elif self._state == "section":
            self._end_noise()
        if name == END:
            self._close()
            self._state = "end"
        elif self._state == "content" and name == SECTION:
            self._state = "section"
        elif self._state == "section" and name == CALL:
            self._state = "id"
            self._begun += 1
            self._id, self._arguments, self._problem = [], [], ""
        elif self._state == "section" and name == SECTION_END:
            if not self._begun:
                self._errors.append(ParseError("the tool section holds no call", ""))
            self._state = "behind"
        elif self._state == "behind":
            self._raw.append(name)
        else:
            self._errors.append(ParseError("a special token stands where only text belongs", name))
        return []

    def reply(self) -> Reply:
        """The turn, ended or cut off here; nothing is read after it."""
        finished = self._state == "end"
        self._close()
        self._state = "end"
        return Reply("".join(self._content), tuple(self._calls), tuple(self._errors), finished)

    def _close(self) -> None:
        """Report what the end of the turn leaves open."""
        if self._state in ("id", "arguments"):
            self._end_call("a tool call has no end")
        elif self._state == "section":
            self._end_noise()
            reason = "the tool section has no end" if self._begun else "the tool section holds no call"
            self._errors.append(ParseError(reason, ""))
        elif self._state == "behind" and (noise := "".join(self._raw).strip()):  # a line break is no noise
            self._errors.append(ParseError("something stands behind the tool section", noise))

    def _inside_call(self, name: str) -> list[Piece]:
        if name == CALL_END:
            self._end_call(self._problem)
            return []
        self._raw.append(name)
        if name == ARGUMENTS and self._state == "id":
            self._state = "arguments"
            found = read_id("".join(self._id))
            if isinstance(found, tuple):
                return [Piece("call", f"{PREFIX}{found[0]}:{found[1]}")]
            self._problem = found
        elif name == ARGUMENTS:
            self._problem = self._problem or NO_PARTS
        else:
            self._problem = self._problem or "a special token stands inside a tool call"
        return []

    def _end_call(self, problem: str) -> None:
        """Put the call aside as one of the calls, or with its problem among the errors."""
        if not problem and self._state == "id":
            problem = NO_PARTS
        call = problem or read_call("".join(self._id), "".join(self._arguments))
        if isinstance(call, ToolCall):
            self._calls.append(call)
        else:
            self._errors.append(ParseError(call, "".join(self._raw)))
        self._state = "section"
        self._raw = []

    def _end_noise(self) -> None:
        """Report what stands between the calls; space is no noise."""
        if noise := "".join(self._raw).strip():
            self._errors.append(ParseError("text stands between the calls of the tool section", noise))
        self._raw = []


def read_id(text: str) -> tuple[str, int] | str:
    """(name, number) of `functions.NAME:IDX`, or what is wrong with it."""
    name, colon, index = text.strip().rpartition(":")
    if not colon or not name.startswith(PREFIX) or name == PREFIX or not (index.isascii() and index.isdigit()):
        return "a tool call's id is not functions.NAME:IDX"
    if len(index) > 9:
        return "a tool call's number is absurd"
    return name.removeprefix(PREFIX), int(index)


def read_call(call_id: str, written: str) -> ToolCall | str:
    """A call from its two texts, or what is wrong with it."""
    found = read_id(call_id)
    if isinstance(found, str):
        return found
    try:
        arguments = strict_json(written)
        compact(arguments, "what they hold")  # Python reads more than JSON can say: 1e999, half a surrogate pair
    except (ValueError, RecursionError) as error:
        return f"a tool call's arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return "a tool call's arguments are not a JSON object"
    if _depth(arguments) > MAX_DEPTH:
        return f"a tool call's arguments nest deeper than {MAX_DEPTH} levels"
    return ToolCall(found[0], arguments, found[1], written)


def _depth(value: Any) -> int:
    """How deep lists and objects nest; level by level, because what is too deep for a recursion is asked here."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth
