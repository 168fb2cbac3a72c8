"""Python code as a source: installed modules, the standard library, and wheels from the package index."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tasks.corpus.archives import File, Unreadable, members
from tasks.corpus.download import download
from tasks.corpus.sources import PythonSource
from tasks.corpus.unavailable import UnavailableError

STDLIB_SKIP = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "lib-dynload"}


def module_files(source: PythonSource, limit: int) -> Iterator[File | Unreadable]:
    """The .py files of an installed module; compiled files and caches are passed over."""
    root = _root(source)
    if root.is_file():
        yield _read(root, root.name, limit)
        return
    skip = STDLIB_SKIP if source.module == "stdlib" else {"__pycache__"}
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root)
        if not skip.intersection(inner.parts):
            yield _read(path, inner.as_posix(), limit)


def module_version(source: PythonSource) -> str:
    """What serves the source, with its version; Unavailable where the module is not installed."""
    _root(source)
    top = source.module.split(".")[0]
    if top == "stdlib" or top in sys.stdlib_module_names:
        return f"Python {platform.python_version()}"
    names = importlib.metadata.packages_distributions().get(top)
    return f"{names[0]} {importlib.metadata.version(names[0])}" if names else f"Python module {top}"


def _root(source: PythonSource) -> Path:
    if source.module == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    try:
        # Found, not imported: no code of the package runs, but its parents' __init__ for a dotted name.
        spec = importlib.util.find_spec(source.module)
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        raise UnavailableError(f"Python module '{source.module}' is not installed")
    path = Path(spec.origin)
    return path.parent if path.name == "__init__.py" else path


def _read(path: Path, name: str, limit: int) -> File | Unreadable:
    try:
        if path.stat().st_size > limit:
            return Unreadable(name, f"larger than {limit:,} bytes")
        return File(name, path.read_bytes())
    except OSError as error:
        return Unreadable(name, error.strerror or type(error).__name__)


def _cached(requirement: str, cache: Path) -> Path | None:
    name, _, version = requirement.partition("==")
    # A wheel's file name writes its distribution with underscores: name-version-python-abi-platform.whl.
    wanted = (re.sub(r"[-_.]+", "_", name).lower(), version)
    found = [path for path in (cache / "wheels").glob("*.whl") if _wheel(path) == wanted]
    return max(found, default=None)


def _wheel(path: Path) -> tuple[str, str]:
    name, version, *_ = [*path.name.split("-"), ""]
    return re.sub(r"[-_.]+", "_", name).lower(), version


def fetch_wheel(requirement: str, cache: Path, offline: bool = False) -> Path:
    """The wheel's file, downloaded by pip if the cache lacks it; UnavailableError otherwise, and where `offline`."""
    if found := _cached(requirement, cache):
        return found
    if offline:
        raise UnavailableError(f"wheel {requirement} is not in {cache} and this run is offline")
    what = f"pip download {requirement}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", requirement]
    return download(command, what, requirement, cache / "wheels", ".whl", "ERROR", lambda: _cached(requirement, cache))


def wheel_files(wheel: Path, limit: int) -> Iterator[File | Unreadable]:
    """The files of a wheel, their paths as they would be installed."""
    with wheel.open("rb") as file:
        for found in members(wheel.name, file, limit):
            path = found.path.removeprefix(f"{wheel.name}/")
            yield replace(found, path=path)
