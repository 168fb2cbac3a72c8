"""What a stage's bytes are held against: a digest that fails where they change and the stage's VERSION does not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow.parquet as pq

from tasks.artifact import Artifact
from tasks.code import version_of

Golden = tuple[int, str]
"""A stage's VERSION, and the digest of what it made of the inputs of a test then."""


def digest_of(artifact: Artifact, group: str = "") -> str:
    """16 hex digits over an artifact's parts (those of a group): tables by their rows, for another Parquet library
    writes other bytes; floats to five digits, for another instruction set adds up in another order; all else byte by
    byte."""
    total = hashlib.sha256()
    for part in artifact.parts(group):
        file = artifact.file(part)
        total.update(part.key.encode())
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            total.update(json.dumps([table.schema.names, _plain(table.to_pylist())], ensure_ascii=False).encode())
        elif file.suffix == ".json":
            total.update(json.dumps(_plain(json.loads(file.read_bytes())), sort_keys=True).encode())
        else:
            total.update(file.read_bytes())
    return total.hexdigest()[:16]


def assert_golden(module: str, artifact: Artifact, golden: Golden, group: str = "") -> None:
    """Fail, with what to do, where what `module` made is not what it made at that VERSION."""
    found = (version_of(module), digest_of(artifact, group))
    assert found == golden, (
        f"{module} makes other bytes of the same inputs than at VERSION {golden[0]}: raise VERSION there, so that "
        f"nobody takes the old ones for the new, and note {found} here"
        if found[0] == golden[0]
        else f"{module} has another VERSION: note {found} here"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name not in ("seconds", "seconds_generating")}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value
