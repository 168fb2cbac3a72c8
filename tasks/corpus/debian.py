"""Debian packages without root: fetched by apt-get into a cache, read by our own reader, licence checked."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tasks.corpus.archives import File, Unreadable, members
from tasks.corpus.download import download
from tasks.corpus.sources import DebianSource
from tasks.corpus.unavailable import UnavailableError

log = logging.getLogger(__name__)


def fetch(source: DebianSource, cache: Path, offline: bool = False) -> Path:
    """The package's file, downloaded if the cache lacks it; of several versions in the cache the last by name. Raises
    UnavailableError, in one sentence, otherwise, and where `offline`."""
    if found := _cached(source, cache):
        return found
    if offline:
        raise UnavailableError(f"Debian package '{source.package}' is not in {cache} and this run is offline")
    apt = shutil.which("apt-get")
    if apt is None:
        raise UnavailableError(f"Debian package '{source.package}' is not in {cache} and this machine has no apt-get")
    what = f"apt-get download {source.package}"
    command = [apt, "download", "-q", source.package]
    return download(command, what, source.package, cache / "debian", ".deb", "E:", lambda: _cached(source, cache))


def _cached(source: DebianSource, cache: Path) -> Path | None:
    return max((cache / "debian").glob(f"{source.package}_*.deb"), default=None)


def files(source: DebianSource, deb: Path, limit: int) -> Iterator[File | Unreadable]:
    """The package's files, their paths as they would be installed; its copyright file must hold `evidence`.

    Raises UnavailableError where the licence is not what the source declares.
    """
    copyright_file = f"usr/share/doc/{source.package}/copyright"
    evidence: str | None = None
    with deb.open("rb") as file:
        for found in members(source.package + ".deb", file, limit):
            path = found.path.removeprefix(f"{source.package}.deb/")
            if isinstance(found, Unreadable):
                yield replace(found, path=path)
                continue
            if path == copyright_file:
                evidence = found.data.decode("utf-8", "replace")
            yield File(path, found.data)
    if evidence is None or _bare(source.evidence) not in _bare(evidence):
        raise LicenceError(
            f"source '{source.name}': the copyright file of Debian package '{source.package}' does not say "
            f"'{source.evidence}', so its licence is not known to be {source.licence}: read it and correct the preset"
        )


def version(deb: Path) -> str:
    """The version in the file's name (`name_version_arch.deb`, colons as %3a)."""
    return deb.name.split("_")[1].replace("%3a", ":")


def _bare(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().lower()


class LicenceError(ValueError):
    """A source whose licence is not what its configuration declares."""
