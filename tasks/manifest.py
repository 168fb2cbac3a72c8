"""The record that makes an artifact real: how it is written and read, and whether it accounts for its parts."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from model import storage
from model.storage import is_local, local_path
from tasks.accounts import fault
from tasks.part import ArtifactError

MANIFEST = "manifest.json"
PACKAGES = ("openk2", "polars", "pyarrow", "torch", "tokenizers", "transformers", "prefect", "great-expectations")


@contextmanager
def scratch(uri: str) -> Iterator[Path]:
    """A scratch folder on the artifact's own disk (so that moving in is a rename), removed on the way out."""
    parent = local_path(uri) / "scratch" if is_local(uri) else None
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear_scratch(uri: str) -> None:
    """Remove the scratch folders that killed processes left on the artifact's own disk: nobody may be writing there."""
    if is_local(uri):
        shutil.rmtree(local_path(uri) / "scratch", ignore_errors=True)


def write_json(url: str, value: Any) -> None:
    """Write a manifest or a record of an artifact: whole or not at all."""
    with scratch(url.rpartition("/")[0].removesuffix("/records")) as folder:
        local = folder / "record.json"
        # Piece by piece: the manifest of many parts, held as one string with all its pieces, takes many times its size.
        with local.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
            file.write("\n")
        storage.move_in(local, url)


def read_json(url: str) -> Any:
    """What it holds; None where nothing lies there."""
    try:
        text = storage.read(url)
    except FileNotFoundError:
        return None
    return parsed(url, text)


def parsed(url: str, text: bytes) -> Any:
    """What the text that was read at `url` says."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ArtifactError(f"{url} is not valid JSON ({error}): it was altered; delete it and run again") from error


def content_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """The hash of all bytes of an artifact with these parts."""
    return digest([[part["key"], part["sha256"]] for part in parts])


def sound(uri: str, manifest: Any) -> dict[str, Any]:
    """The manifest of the artifact at `uri`; ArtifactError where its parts are not those that it was written over, or
    not those that its accounts speak of."""
    try:
        accounts = manifest.get("accounts")
        why = fault(accounts, manifest["parts"]) if accounts else ""
        if "accounts" not in manifest:
            why = "an earlier version wrote it, which kept no accounts"
        elif content_of(manifest["parts"]) != manifest["content"]:
            why = "its parts are not those that it was published with"
        elif not isinstance(manifest["code"], list):
            why = "an earlier version wrote it, whose fingerprints were others"
    except (KeyError, TypeError, AttributeError) as error:
        why = f"it is no manifest ({type(error).__name__}: {error})"
    if why:
        raise ArtifactError(
            f"the manifest in {uri} does not account for its rows: {why}; run its stage again, and where that ends "
            f"here again delete {uri} first"
        )
    return manifest


def lacking(uri: str, lost: Sequence[str], total: int) -> ArtifactError:
    """The error of an artifact at `uri` that lacks some of its parts."""
    named = ", ".join(lost[:8]) + (", ..." if len(lost) > 8 else "")
    return ArtifactError(
        f"{uri} lacks {len(lost):,} of its {total:,} parts ({named}): nothing was published; run the same command "
        "again, which makes them"
    )


def digest(value: Any) -> str:
    """sha256 of a JSON-able value in canonical form (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of the libraries that shape the bytes; recorded, never part of the identity."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
