"""One written file of an artifact: where it lies, and whether it is what was recorded of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model import storage
from model.cache import cache_folder
from model.storage import is_local, local_path, sha256_file

if TYPE_CHECKING:
    import pyarrow as pa

# Checked files are state of the process on purpose: it dies with the attempt.
_VERIFIED: set[tuple[str, str, int]] = set()


class ArtifactError(RuntimeError):
    """Stored data that is missing, altered or incomplete; the message names the file and what to do."""


def write_table(path: Path, table: pa.Table) -> None:
    """A Parquet file with fixed settings: the same rows give the same bytes."""
    import pyarrow.parquet as pq  # here: as in `rows_in`

    pq.write_table(table, path, compression="zstd", compression_level=3, store_schema=False)


@dataclass(frozen=True)
class Part:
    """One written file of an artifact."""

    key: str
    """Its name within the artifact, such as `documents/web-0003`; `/` groups parts."""
    path: str
    """Where it lies, relative to the artifact's uri; the name carries the start of its sha256. `../<fingerprint>/...`
    where an earlier version of the artifact holds it."""
    sha256: str
    bytes: int
    rows: int
    statistics: dict[str, Any] = field(default_factory=dict)


def rows_in(file: Path, stated: int | None, place: str) -> int:
    """The rows of a part: what a Parquet file itself says, and whoever wrote it must not contradict; else `stated`."""
    if file.suffix != ".parquet":
        return stated or 0
    import pyarrow.parquet as pq  # here: it takes longer to load than most of what only looks at manifests

    rows: int = pq.read_metadata(file).num_rows
    if stated is not None and stated != rows:
        raise ArtifactError(f"{place} has {rows:,} rows where {stated:,} were written: a defect; please report it")
    return rows


def checked(listed: str, part: Part) -> Path:
    """The local path of a part that the artifact at `listed` lists, fetched into the cache where it is remote; its
    bytes are those that were recorded. ArtifactError where it is missing or altered."""
    uri, place = _holder(listed, part)
    if is_local(uri):
        path = local_path(uri) / place
        if not path.exists():
            raise ArtifactError(f"{path} is listed but missing: delete {uri} and run its stage again")
        if not _unaltered(path, part):
            raise _altered(str(path), part, uri)
        return path
    path = cache_folder() / "parts" / part.sha256[:2] / f"{part.sha256}{Path(place).suffix}"
    if not (path.exists() and _unaltered(path, part)):  # a loss of power may have cut it
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            storage.fetch(f"{uri}/{place}", partial)
            if not _unaltered(partial, part):  # before it has the name by which others find it
                raise _altered(f"{uri}/{place}", part, uri)
            partial.replace(path)
            _VERIFIED.add(_state(path, part))
        except FileNotFoundError:
            raise ArtifactError(f"{uri}/{place} is listed but missing: delete {uri} and run its stage again") from None
        finally:
            partial.unlink(missing_ok=True)
    return path


def _holder(uri: str, part: Part) -> tuple[str, str]:
    """(the uri of the version that holds a part of the artifact at `uri`, the part's path in there)."""
    path = part.path
    if path.startswith("../"):
        fingerprint, _, path = path.removeprefix("../").partition("/")
        uri = f"{uri.rpartition('/')[0]}/{fingerprint}"
    if not path.startswith("parts/") or ".." in path.split("/") or uri.endswith("/.."):
        raise ArtifactError(f"{uri} lists a part at '{part.path}', which is outside of it: its manifest was altered")
    return uri, path


def _unaltered(path: Path, part: Part) -> bool:
    """Whether `path` has the bytes of `part`; each file is read once per process."""
    if (state := _state(path, part)) in _VERIFIED:
        return True
    if path.stat().st_size != part.bytes or sha256_file(path) != part.sha256:
        return False
    _VERIFIED.add(state)
    return True


def _state(path: Path, part: Part) -> tuple[str, str, int]:
    return str(path), part.sha256, path.stat().st_mtime_ns


def _altered(name: str, part: Part, uri: str) -> ArtifactError:
    return ArtifactError(
        f"{name} has not the bytes its manifest lists (sha256 {part.sha256[:12]}...): it was altered or cut; "
        f"delete {uri} and run its stage again"
    )
