"""What an answer must keep to, token by token: a JSON schema, or calls of given tools in K2's format (llguidance).

Schemas come from strangers. llguidance fetches nothing, and bounds what a grammar may cost: to read it, in states, and
at every token; our limits are below its own, because a token's mask holds up the whole batch. What gets past them ends
another process first (`model.serve.trial`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from model.chat import BROKEN, Chat
from model.dialogue import PREFIX, ChatError, compact
from model.generate import ConstraintError
from model.reply import ARGUMENTS, CALL, CALL_END, SECTION, SECTION_END
from model.schema import rewritten, undescribed
from model.serve.protocol import ApiError, Function
from model.serve.trial import Trial, matcher

MOST_BYTES = 64 << 10
"""The longest schema, or those of all of a request's tools together, without what they say to readers."""
FARTHEST = 2**63 - 1024
"""The last number before 2^63 that a float64 holds. llguidance counts to bounds in 64 bits, and overflows at them."""
EXACT = 2**53
"""Up to here every integer is a float64; llguidance reads numbers as those."""
NAMED = "\0"
"""Stands before the names of special tokens, so that no text spells one: JSON has no such character."""
MOST_CALLS = 8
"""Calls in one turn where calls are asked for; they end somewhere even where the model would not end them."""
# K2's template writes arguments so, and a model that may put spaces anywhere may put nothing else.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "coerce_one_of": True}
# Not to be refused for a format that it does not know: `_matching` refuses whatever else it would take no notice of.
READING = {**JSON_STYLE, "lenient": True}
UNKNOWN_FORMAT = "Unknown format:"
"""How llguidance begins what it says of one. JSON Schema has readers pass over it; Pydantic writes `path`, say."""


@dataclass
class Matching:
    """A `Constraint` of one row: what a grammar takes."""

    matcher: LLMatcher

    def allowed(self) -> Tensor:
        bias = self.matcher.compute_logit_bias()
        self._check()
        return torch.frombuffer(bytearray(bias), dtype=torch.uint8).bool()

    def take(self, token: int) -> None:
        self.matcher.consume_token(token)
        self._check()

    def copy(self) -> Matching:
        """For another choice of the same request."""
        return Matching(self.matcher.deep_copy())

    def _check(self) -> None:
        if self.matcher.is_error():
            raise ConstraintError(f"the schema cannot be followed: {_line(self.matcher.get_error())}")


@dataclass
class Free:
    """A `Constraint` of one row: any text, in which no special token stands, and `calls` once their section begins."""

    text: Tensor
    """The tokens that may come before the section begins, a boolean (vocabulary)."""
    section: int
    """The token that begins it; one of `text` only where there are calls."""
    calls: Matching | None = None
    begun: bool = False

    def allowed(self) -> Tensor:
        return self.calls.allowed() if self.begun and self.calls else self.text

    def take(self, token: int) -> None:
        self.begun |= token == self.section
        if self.begun and self.calls:
            self.calls.take(token)

    def copy(self) -> Free:
        """For another choice of the same request."""
        return replace(self, calls=self.calls and self.calls.copy())


class Grammars:
    """Grammars over one tokenizer; `ends` are the tokens that end an answer. What makes one raises Untried where the
    trial has not seen it."""

    def __init__(self, chat: Chat, vocabulary: int, ends: Sequence[int]) -> None:
        self._chat = chat
        written = _unspelled(chat.tokenizer.to_str())
        self._tokenizer = LLTokenizer(written, n_vocab=vocabulary, eos_token=chat.stop)
        self.trial = Trial(written, vocabulary, chat.stop)
        self._text_V = torch.ones(vocabulary, dtype=torch.bool)
        self._text_V[sorted(chat.specials.difference(ends))] = False
        self._text_or_section_V = self._text_V.clone()
        self._text_or_section_V[chat.ids[SECTION]] = True

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for, which may be part of a character."""
        if token in self._chat.specials:
            return self._chat.decode([token]).encode()
        if self._chat.tokenizer.id_to_token(token) is None:
            return b""  # a row of the embedding that stands for nothing: llguidance makes up a name for it
        # llguidance marks special tokens by the byte 255, and gives nothing for the token that is it
        return bytes(self._tokenizer.decode_bytes([token])) or (
            b"\xff" if self._chat.decode([token]) == BROKEN else b""
        )

    def json(self, schema: dict[str, Any] | bool, param: str) -> Matching:
        """JSON of a schema. Raises ApiError; `param` is the field that held it."""
        return self._matching(f"start: {_json(schema, param)[0]}\n", param)

    def free(self, functions: Sequence[Function], before: int, several: bool) -> Free:
        """Text, and calls of these functions where the model makes any; without functions text alone. Where a schema
        cannot be followed the calls are held to the functions' names and to JSON objects."""
        section = self._chat.ids[SECTION]
        if not functions:
            return Free(self._text_V, section)
        try:
            calls = self.calls(functions, before, several)
        except ApiError:
            named = [one.model_copy(update={"parameters": {}}) for one in functions]
            calls = self.calls(named, before, several)
        return Free(self._text_or_section_V, section, calls)

    def calls(self, functions: Sequence[Function], before: int, several: bool) -> Matching:
        """One call of these functions, or `several`; `before` is the number of the first in the dialogue."""
        ids = self._chat.ids
        count = MOST_CALLS if several else 1
        rules = [f"start: <[{ids[SECTION]}]> call0 <[{ids[SECTION_END]}]>"]
        for number in range(count):
            names = [
                f"{json.dumps(f'{PREFIX}{function.name}:{before + number}')} <[{ids[ARGUMENTS]}]> arguments{place}"
                for place, function in enumerate(functions)
            ]
            more = f" call{number + 1}?" if number + 1 < count else ""
            rules.append(f"call{number}: <[{ids[CALL]}]> ({' | '.join(names)}) <[{ids[CALL_END]}]>{more}")
        left = MOST_BYTES
        for place, function in enumerate(functions):
            written, length = _json(_of_object(function), "tools", left)
            left -= length
            rules.append(f"arguments{place}: {written}")
        return self._matching("\n".join(rules) + "\n", "tools")

    def _matching(self, lark: str, param: str) -> Matching:
        if not self.trial.passed(lark):
            told = "the schema cannot be followed: reading it takes too long, or more than it may"
            raise ApiError(400, told, param, "invalid_schema")
        matching = Matching(matcher(self._tokenizer, lark))
        try:
            matching._check()
            for ignored in matching.matcher.get_grammar_warnings():
                if not ignored.startswith(UNKNOWN_FORMAT):
                    raise ConstraintError(f"the schema cannot be followed: {_line(ignored)}")
            matching.allowed()  # the first mask is the dearest: it is paid for here, outside the batch
        except ConstraintError as error:
            raise ApiError(400, str(error), param, "invalid_schema") from None
        return matching


def _of_object(function: Function) -> dict[str, Any] | bool:
    """The schema of a function's arguments, which are an object even where it does not say so. Raises ApiError."""
    if function.parameters is False:
        return False
    given = function.parameters if isinstance(function.parameters, dict) else {}
    kinds = given.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        told = f"the arguments of `{function.name}` are an object, and its schema is of another type"
        raise ApiError(400, told, "tools", "invalid_schema")
    return {**given, "type": "object"}


def _json(schema: dict[str, Any] | bool, param: str, most: int = MOST_BYTES) -> tuple[str, int]:
    """A schema in a grammar, and how long it is by itself. Raises ApiError."""
    if schema is False:
        raise ApiError(400, "the schema `false` allows nothing", param, "invalid_schema")
    try:
        read = {} if schema is True else rewritten(undescribed(schema), _countable)
        text = compact(read, "the schema")
    except ChatError as error:
        raise ApiError(400, str(error), param, "invalid_schema") from None
    if len(text) > most:
        raise ApiError(400, f"schemas have at most {MOST_BYTES:,} characters together", param, "invalid_schema")
    return f"%json {compact({**read, 'x-guidance': READING})}", len(text)


def _countable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with bounds that llguidance can hold a number to; what keeps to them keeps to the schema's own. Those
    of Go's and Rust's widest kinds (-2^63, the largest float64) end 1024 sooner. Raises ChatError."""
    bounds = {}
    for name, sign in (("minimum", -1), ("exclusiveMinimum", -1), ("maximum", 1), ("exclusiveMaximum", 1)):
        bound = schema.get(name)
        if not isinstance(bound, int | float) or isinstance(bound, bool):  # draft 4 has true there
            continue
        if abs(inward := min(sign * bound, FARTHEST)) <= FARTHEST:
            held = float(inward)
            bounds[name] = sign * (inward if held <= inward else int(math.nextafter(held, -math.inf)))
    for one in _integers([schema.get("const"), schema.get("enum")]):
        if abs(one) > EXACT and (abs(one) > FARTHEST or float(one) != one):
            raise ChatError("the schema asks for an integer beyond 2^53, of which llguidance cannot write every digit")
    return {**schema, **bounds}


def _integers(value: Any) -> Iterator[int]:
    """All of them in what a schema takes literally."""
    if type(value) is int:
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _integers(inner)


def _unspelled(tokenizer: str) -> str:
    """A tokenizer in Hugging Face's layout of which no text makes a special token: llguidance writes what a grammar
    forces as the tokens of that text, and would end an answer within an enum of "<|im_end|>"."""
    read = json.loads(tokenizer)
    words = read["model"]["vocab"]
    for added in read["added_tokens"]:
        name = added["content"]
        added["content"] = NAMED + name
        if name in words:
            words[NAMED + name] = words.pop(name)
    return json.dumps(read)


def _line(error: str) -> str:
    """llguidance's words, without the state of its parser."""
    return error.split("<state>")[0].strip().partition("\n")[0][:200] or "no text fits it"
