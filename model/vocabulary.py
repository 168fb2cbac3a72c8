"""K2's special tokens: their names, their ids in K2's vocabulary, and where they lie in a smaller one.

The released tokenizer keeps the last 256 of its 163,840 ids for special tokens: those named here, and reserved ones.
A smaller vocabulary keeps the named ones only, in the same order, as its last ids; `[PAD]` is always the very last.
Imports nothing, so that chat templates, configurations and data stages can all read it.
"""

from __future__ import annotations

K2_VOCABULARY = 163_840
"""Entries of K2's vocabulary, special tokens included (RECIPE 1)."""

K2_SPECIAL_IDS: dict[str, int] = {
    "[BOS]": 163_584,
    "[EOS]": 163_585,
    "<|im_end|>": 163_586,
    "<|im_user|>": 163_587,
    "<|im_assistant|>": 163_588,
    "<|start_header_id|>": 163_590,
    "<|end_header_id|>": 163_591,
    "[EOT]": 163_593,
    "<|im_system|>": 163_594,
    "<|tool_calls_section_begin|>": 163_595,
    "<|tool_calls_section_end|>": 163_596,
    "<|tool_call_begin|>": 163_597,
    "<|tool_call_argument_begin|>": 163_598,
    "<|tool_call_end|>": 163_599,
    "<|im_middle|>": 163_601,
    "[UNK]": 163_838,
    "[PAD]": 163_839,
}
"""Name to id as in the released tokenizer configuration, in the order of the ids."""

SPECIAL_TOKENS: tuple[str, ...] = tuple(K2_SPECIAL_IDS)

BOS, EOS, END_OF_TURN, UNKNOWN, PADDING = "[BOS]", "[EOS]", "<|im_end|>", "[UNK]", "[PAD]"


def special_ids(vocabulary: int) -> dict[str, int]:
    """Name -> id of every special token in a vocabulary of `vocabulary` entries.

    At K2's size these are K2's ids; below it, the last ids in K2's order. ValueError for a size that cannot hold the
    256 bytes and the special tokens, or that is above K2's (which has no published placement).
    """
    if vocabulary == K2_VOCABULARY:
        return dict(K2_SPECIAL_IDS)
    smallest = 256 + len(SPECIAL_TOKENS)
    if not smallest <= vocabulary <= K2_VOCABULARY:
        raise ValueError(
            f"a vocabulary of {vocabulary} entries cannot be laid out: choose between {smallest} (256 bytes and "
            f"{len(SPECIAL_TOKENS)} special tokens) and K2's {K2_VOCABULARY}"
        )
    first = vocabulary - len(SPECIAL_TOKENS)
    return {name: first + place for place, name in enumerate(SPECIAL_TOKENS)}


def first_special_id(vocabulary: int) -> int:
    """The id from which on every entry is special or reserved; ordinary text only ever encodes below it."""
    return special_ids(vocabulary)[BOS]


def token_name(token: int, vocabulary: int) -> str | None:
    """The name of a special or reserved id in a vocabulary of `vocabulary` entries, None for an ordinary one."""
    names = {place: name for name, place in special_ids(vocabulary).items()}
    if token in names:
        return names[token]
    reserved = first_special_id(vocabulary) <= token < vocabulary
    return f"<|reserved_token_{token}|>" if reserved else None
