"""JSON lines: one line, one record; a line that is none, or is too long to hold, is named and the rest is read."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from typing import Any

from tasks.corpus.archives import Unreadable
from tasks.corpus.compression import BLOCK, DamagedError
from tasks.corpus.extract.passage import ExtractionError, Passage
from tasks.corpus.fields import Fields


def passages(path: str, stream: io.BufferedIOBase, fields: Fields, limit: int) -> Iterator[Passage | Unreadable]:
    """Records of `stream`, its lines at most `limit` bytes; an Unreadable for each line that is no JSON object with a
    text. Raises ExtractionError where the text is UTF-16."""
    for number, line in enumerate(_lines(stream, limit), start=1):
        place = f"{path}#{number}"
        if line is None:
            yield Unreadable(place, f"line {number} is larger than {limit:,} bytes")
            continue
        if number == 1:
            if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise ExtractionError("JSON lines in UTF-16: convert them to UTF-8")
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield Unreadable(place, f"line {number} is not UTF-8: {error.reason} at byte {error.start}")
            continue
        except (ValueError, RecursionError) as error:
            yield Unreadable(place, f"line {number} is not JSON: {str(error)[:120]}")
            continue
        if isinstance(record, dict) and isinstance(record.get(fields.text), str):
            yield fields.passage(record, str(number))
        else:
            yield Unreadable(place, f"line {number} {_textless(record, fields.text)}")


def _textless(record: Any, key: str) -> str:
    """Why a line holds no text, with the keys that there are."""
    if not isinstance(record, dict):
        return f"has no text under '{key}': it is no object but {_kind(record)}"
    if key in record:
        return f"has no text under '{key}': it holds {_kind(record[key])}"
    keys = ", ".join(f"'{str(name)[:40]}'" for name in list(record)[:12])
    return f"has no text under '{key}' (`text_field`): its keys are {keys or 'none'}"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _lines(stream: io.BufferedIOBase, limit: int) -> Iterator[bytes | None]:
    """Lines without their end, None for one of more than `limit` bytes; holds `limit` bytes and a block."""
    held: list[bytes] = []
    size = 0
    damage: DamagedError | None = None
    while True:
        try:
            block = stream.read1(BLOCK)
        except DamagedError as error:
            block, damage = b"", error
        if not block:
            break
        for number, piece in enumerate(block.split(b"\n")):
            if number:
                yield b"".join(held) if size <= limit else None
                held, size = [], 0
            size += len(piece)
            if size <= limit:
                held.append(piece)
            else:
                held.clear()
    # A last line has no end; of one that damage cut there may be all that matters.
    if size and not (damage and not _whole(b"".join(held))):
        yield b"".join(held) if size <= limit else None
    if damage is not None:
        raise damage


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
