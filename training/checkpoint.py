"""Checkpoints that are whole or not there: what lies in one, which is the newest that can be trusted, which stay.

A checkpoint is a folder `update-00000010` with

    model-0-of-4.safetensors     the weights by our names, cut as the ranks that wrote them held them
    optimizer-0-of-4.safetensors MuonClip's state likewise; both are one file, `model.safetensors`, where one rank wrote
    state.json                   where the run stands: update, tokens, samples consumed by stream, the run's identity
    config.json                  the model's configuration
    index.json                   each tensor's shape, and which of its slices lie in which file
    manifest.json                sha256 and size of each file above, written last

Any number of ranks in any layout reads it: each opens the files that hold what it needs, and of those maps the bytes.
Before that the ranks share the hashing of all files and agree; a folder that does not match is set aside and the one
before it used. `training.checkpoint_writer` writes them.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.config import ModelConfig
from model.storage import sha256_file
from model.transformer import Transformer
from training.config import RetentionConfig
from training.parallel import World
from training.pieces import Cuts, Index, Piece, faults, index_of, pieces_of, read_index, spread

log = logging.getLogger(__name__)

NAME = re.compile(r"update-(\d{8,})")
STATE, CONFIG, INDEX, MANIFEST = "state.json", "config.json", "index.json", "manifest.json"
WEIGHTS, OPTIMIZER = "model", "optimizer"
"""The first words of the files of tensors, and their parts of the index."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or must not be used."""


# ------------------------------------------------------------------------------------------------------------ tensors


class Stored(Mapping[str, Tensor]):
    """Tensors in safetensors files, read when they are asked for.

    What one piece holds is mapped and not copied; of a tensor in several pieces the whole is put together.
    """

    def __init__(self, index: Index, folder: Path) -> None:
        """The tensors of `index`, whose files lie in `folder` (or anywhere, if they are named by absolute paths)."""
        self.index, self._folder = index, folder
        self._open: dict[str, Any] = {}

    @classmethod
    def of_files(cls, paths: Iterable[Path]) -> Stored:
        """The weights in some files, by the files' own headers."""
        stored = cls({}, Path())
        held: dict[str, list[Piece]] = {}
        totals: dict[str, int] = {}
        for file in (str(path.absolute()) for path in paths):
            held[file] = []
            for key in stored._file(file).keys():  # noqa: SIM118 - a safetensors handle is no mapping
                name, _, first = key.partition("/")
                (piece,) = pieces_of({name: stored._file(file).get_tensor(key)})
                held[file].append(piece._replace(first=int(first) if first.isdecimal() else 0))
                totals[name] = max(totals.get(name, 0), held[file][-1].first + piece.length)
        stored.index = index_of(
            {
                file: [p._replace(shape=(totals[p.name], *p.shape[1:])) if p.shape else p for p in pieces]
                for file, pieces in held.items()
            }
        )
        return stored

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __contains__(self, name: object) -> bool:
        return name in self.index

    def __getitem__(self, name: str) -> Tensor:
        piece, file = self.index[name][0]
        if piece.is_whole:
            return self._tensor(piece, file)
        tensor = torch.empty(piece.shape, dtype=getattr(torch, piece.dtype))
        self.copy(name, tensor)
        return tensor

    @torch.no_grad()
    def copy(self, name: str, to: Tensor, first: int = 0) -> None:
        """Fill `to` with the slices of `name` from `first` on; only files that hold some of them are opened."""
        for piece, file in self.index[name]:
            if not piece.shape:
                to.copy_(self._tensor(piece, file))
                continue
            start, stop = max(first, piece.first), min(first + len(to), piece.first + piece.length)
            if start < stop:
                part = self._tensor(piece, file)[start - piece.first : stop - piece.first]
                to[start - first : stop - first].copy_(part)

    def _tensor(self, piece: Piece, file: str) -> Tensor:
        try:
            return self._file(file).get_tensor(piece.key)
        except SafetensorError as error:
            raise CheckpointError(f"{self._folder / file} does not hold {piece.key}: {error}") from error

    def _file(self, file: str) -> Any:
        if file not in self._open:
            try:
                self._open[file] = safe_open(self._folder / file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise CheckpointError(f"{self._folder / file} cannot be read: {error}") from error
        return self._open[file]


def load_optimizer_state(directory: Path) -> Stored:
    """The optimizer's state, the shares of all the ranks that wrote it; what is not asked for is not read."""
    return _stored(directory, OPTIMIZER)


def load_weights(directory: Path, model: Transformer, cuts: Cuts | None = None) -> None:
    """Copy a checkpoint's weights into `model`; see `fill`."""
    fill(model, _stored(directory, WEIGHTS), f"checkpoint {directory.name}", cuts)


def fill(model: Transformer, stored: Stored, where: str, cuts: Cuts | None = None) -> None:
    """Copy into `model`, which may hold some layers only and some slices of the tensors in `cuts`, its part of the
    weights in `stored`, whatever the layout of the ranks that wrote them.

    Raises `CheckpointError`, on every rank alike, where those are not the tensors of the whole model.
    """
    _require(stored, model.config, where)
    state = model.state_dict()
    for part in pieces_of(state, cuts):
        shape = stored.index[part.name][0][0].shape
        if part.shape != shape or part.first + part.length > shape[0]:
            raise CheckpointError(f"{where}: {part.name} is {shape} and not what holds {part}")
        stored.copy(part.name, state[part.name], part.first)


def load_model(directory: Path | str) -> Transformer:
    """The whole model of a checkpoint or of a run's `final/` folder, on the CPU, its hashes verified first."""
    directory = Path(directory)
    verify(directory)
    files = [directory / name for name in _manifest(directory) if name.startswith(WEIGHTS)]
    return read_model(directory / CONFIG, files)


def read_model(config: Path, weights: Iterable[Path]) -> Transformer:
    """The whole model of a configuration and of files of weights, wherever they lie.

    Raises `CheckpointError` where the tensors are not those of the model.
    """
    stored = Stored.of_files(weights)
    with torch.device("meta"):
        model = Transformer(ModelConfig.model_validate_json(config.read_text(encoding="utf-8")))
    _require(stored, model.config, str(config.parent))
    model.load_state_dict(stored, assign=True)
    return model


def whole(config: ModelConfig) -> dict[str, torch.Size]:
    """Name -> shape of every tensor of a model's state."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in Transformer(config).state_dict().items()}


def _require(stored: Stored, config: ModelConfig, where: str) -> None:
    if found := faults(stored.index, whole(config)):
        raise CheckpointError(f"{where} holds another model: {found}")


def _stored(directory: Path, kind: str) -> Stored:
    try:
        record = json.loads((directory / INDEX).read_text(encoding="utf-8"))
        return Stored(read_index(record[kind]), directory)
    except FileNotFoundError:
        raise CheckpointError(
            f"checkpoint {directory.name} was written by an older version, which kept no {INDEX}: go on with that "
            "version, or remove the checkpoints to start over"
        ) from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {directory.name}: {INDEX} cannot be read: {error!r}") from error


# ------------------------------------------------------------------------------------------------------- verification


def verify(directory: Path, world: World | None = None) -> None:
    """Raise `CheckpointError`, naming the file, unless `directory` is a complete checkpoint whose hashes are right.

    The ranks of `world` each hash a share of the files, even in bytes, and all raise where one finds a fault.
    """
    world = world or World()
    fault = ""
    try:
        _verify(directory, world)
    except CheckpointError as error:
        fault = str(error)
    if found := [fault for fault in world.gather(fault) if fault]:
        raise CheckpointError("; ".join(dict.fromkeys(found)))


def _verify(directory: Path, world: World) -> None:
    files = _manifest(directory)
    share = spread({name: length for name, (length, _) in files.items()}, None, world.size)[world.rank]
    for name in share:
        path, expected = directory / name, files[name][0]
        if not path.is_file():
            raise CheckpointError(f"checkpoint {directory.name} lacks {name}")
        if path.stat().st_size != expected:
            raise CheckpointError(
                f"checkpoint {directory.name}: {name} has {path.stat().st_size:,} bytes and should have {expected:,}"
            )
    for name in share:
        try:
            right = sha256_file(directory / name) == files[name][1]
        except OSError as error:
            raise CheckpointError(f"checkpoint {directory.name}: {name} cannot be read: {error}") from error
        if not right:
            raise CheckpointError(f"checkpoint {directory.name}: {name} does not match its sha256")


def _manifest(directory: Path) -> dict[str, tuple[int, str]]:
    """Name -> bytes and sha256 of the files that the manifest lists."""
    try:
        files = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {name: (int(file["bytes"]), str(file["sha256"])) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {directory.name} has no readable {MANIFEST}: {error!r}") from error


# ---------------------------------------------------------------------------------------------- a folder of checkpoints


def checkpoints(root: Path) -> list[Path]:
    """The checkpoints under `root`, oldest first, unverified."""
    found = [(int(match[1]), path) for path in root.glob("update-*") if (match := NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def newest(root: Path, last_resort: Collection[int] = (), world: World | None = None) -> Path | None:
    """The newest checkpoint under `root` that verifies, or None for a run that has none yet. Those of the updates in
    `last_resort` are taken only where no other is left. Every rank of `world` calls it, and gets the same.

    Others that do not verify are logged and renamed to `NAME.corrupt`. Raises `CheckpointError` where there are
    checkpoints and none of them verifies, and leaves them as they are: neither this start nor the next may throw the
    run away silently.
    """
    world = world or World()
    found = checkpoints(root) if world.rank == 0 else []  # one rank looks: others may see an older listing
    order = sorted(map(number, found), key=lambda update: (update in last_resort, -update))
    errors: dict[Path, str] = {}
    for at in range(world.from_first(len(order))):
        directory = root / f"update-{world.from_first(order[at] if order else 0):08d}"
        try:
            verify(directory, world)
        except CheckpointError as error:
            errors[directory] = str(error)
            continue
        if world.rank == 0:
            for bad, why in errors.items():
                log.error("%s; it is set aside as %s.corrupt and %s is used", why, bad.name, directory.name)
                aside = bad.with_name(f"{bad.name}.corrupt")
                shutil.rmtree(aside, ignore_errors=True)
                bad.rename(aside)
        return directory
    if errors:
        told = "; ".join(errors.values())
        raise CheckpointError(f"no checkpoint in {root} is usable: {told}; remove them all to start over")
    return None


def number(directory: Path) -> int:
    """The update of a checkpoint, from its name."""
    return int(directory.name.removeprefix("update-"))


def load_state(directory: Path) -> dict[str, Any]:
    """The checkpoint's `state.json`."""
    return json.loads((directory / STATE).read_text())


def prune(root: Path, retention: RetentionConfig, stage_ends: Collection[int] = ()) -> None:
    """Delete the checkpoints that `retention` does not keep, and what killed runs left half written."""
    found = checkpoints(root)
    kept = retention.kept([number(directory) for directory in found], stage_ends)
    for directory in found:
        if number(directory) not in kept:
            remove(directory)
    for leftover in root.glob(".*.partial"):
        shutil.rmtree(leftover)


def remove(directory: Path) -> None:
    """Delete a checkpoint; renamed first, so that a kill in between leaves no half of it under its name."""
    doomed = directory.with_name(f".{directory.name}.old.partial")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    shutil.rmtree(doomed)
