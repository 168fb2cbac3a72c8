"""Checkpoints that are whole or not there: written aside, hashed, and renamed into place.

A checkpoint is a folder `update-00000010` with

    model.safetensors            the weights by our names, float32
    optimizer-0-of-2.safetensors each rank's share of MuonClip's state (any number of ranks can load it)
    state.json                   where the run stands: update, tokens, samples consumed by stream, the run's identity
    config.json                  the model's configuration
    manifest.json                sha256 and size of each file above, written last

It is written under a hidden name and renamed once every byte is on the disk, so a run killed at any moment leaves the
checkpoint before it. Reading verifies every hash; a folder that does not match is set aside and the one before it used.

Writing can go on beside the training (`Writer`): the state is copied to host memory, and each rank's thread writes its
files and leaves a note with their hashes in the folder, which all ranks share. Rank 0's thread waits for the notes,
writes the manifest and renames the folder. The threads use no collectives: those belong to the training.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.config import ModelConfig
from model.transformer import Transformer
from training.config import RetentionConfig
from training.metrics import replace_file
from training.parallel import World

log = logging.getLogger(__name__)

NAME = re.compile(r"update-(\d+)")
WEIGHTS, STATE, CONFIG, MANIFEST = "model.safetensors", "state.json", "config.json", "manifest.json"
NOTE = "rank-{}.note"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or must not be used."""


@dataclass
class _Share:
    """What one rank writes of one checkpoint."""

    directory: Path
    tensors: dict[str, dict[str, Tensor]]
    records: dict[str, dict[str, Any]]

    @property
    def partial(self) -> Path:
        return self.directory.with_name(f".{self.directory.name}.partial")


class Writer:
    """Writes a run's checkpoints, at most one at a time, each rank its share."""

    def __init__(self, world: World | None = None, patience_seconds: float = 600) -> None:
        """For a rank of `world`; rank 0 waits `patience_seconds` for the other ranks' files."""
        self.world, self.patience = world or World(), patience_seconds
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._abandoned = threading.Event()

    def save(
        self,
        directory: Path,
        model: Transformer,
        state: Mapping[str, Any],
        optimizer_state: Mapping[str, Tensor] | None = None,
        background: bool = False,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Write the checkpoint `directory`; every rank calls it, with its own share of the optimizer's state.

        An existing folder of that name is replaced. In the `background` it is written from a copy on the host, after
        the one before is done. Rank 0 calls `then` once it is complete. Raises `CheckpointError` where the disk refuses
        this one, or refused the one before; complete ones are then still there.
        """
        self.wait()
        share = _Share(directory, {}, {})
        try:
            if self.world.rank == 0:
                shutil.rmtree(share.partial, ignore_errors=True)
                share.partial.mkdir(parents=True)
        except OSError as error:
            raise _unwritten(directory, error) from error
        self.world.barrier()
        take = _copied if background else dict
        if optimizer_state is not None:
            name = f"optimizer-{self.world.rank}-of-{self.world.size}.safetensors"
            share.tensors[name] = take(optimizer_state)
        if self.world.rank == 0:
            share.tensors[WEIGHTS] = take(model.state_dict())
            share.records = {STATE: dict(state), CONFIG: model.config.model_dump(mode="json")}
        if background:
            self._thread = threading.Thread(target=self._write, args=(share, then), name="checkpoint", daemon=True)
            self._thread.start()
        else:
            self._write(share, then)
            self.check()
            self.world.barrier()

    @property
    def failed(self) -> bool:
        """Whether this rank's last write failed."""
        return self._error is not None

    def check(self) -> None:
        """Raise the error of this rank's last write, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait until this rank's last write is done, on rank 0 the whole checkpoint; raises its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def close(self, abandon: bool = False) -> None:
        """Wait without raising; where other ranks are lost, `abandon` waits for nothing of theirs."""
        if abandon:
            self._abandoned.set()
        try:
            self.wait()
        except Exception as error:  # the run ends anyway, by an error of its own
            log.error("%s", error)

    def _write(self, share: _Share, then: Callable[[], object]) -> None:
        note = share.partial / NOTE.format(self.world.rank)
        try:
            for name, tensors in share.tensors.items():
                _save_tensors(tensors, share.partial / name)
            for name, record in share.records.items():
                _save_json(record, share.partial / name)
            files = {name: _described(share.partial / name) for name in (*share.tensors, *share.records)}
            if self.world.rank == 0:
                self._publish(share, files)
                then()
            else:
                replace_file(note, json.dumps({"files": files}))
        except Exception as error:  # in a thread: the next step must hear of it, whatever it is
            disk = isinstance(error, OSError | SafetensorError)
            self._error = _unwritten(share.directory, error) if disk else error
            if self.world.rank == 0:
                shutil.rmtree(share.partial, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # a full disk may have no room for it: the step then tells
                    replace_file(note, json.dumps({"error": str(error)}))

    def _publish(self, share: _Share, files: dict[str, Any]) -> None:
        """Rank 0: wait for the others' files, then make the folder a checkpoint."""
        deadline = time.monotonic() + self.patience
        for rank in range(1, self.world.size):
            note = share.partial / NOTE.format(rank)
            while not note.exists():
                if self._abandoned.is_set() or time.monotonic() > deadline:
                    raise CheckpointError(
                        f"rank {rank} has not written its part of checkpoint {share.directory.name}: see its log, and "
                        "let all ranks share the file system of the work folder"
                    )
                time.sleep(0.01)
            told = json.loads(note.read_text(encoding="utf-8"))
            if "error" in told:
                raise CheckpointError(
                    f"rank {rank} could not write its part of checkpoint {share.directory.name}: {told['error']}"
                )
            files |= told["files"]
            note.unlink()
        _save_json({"files": dict(sorted(files.items()))}, share.partial / MANIFEST)
        _sync(share.partial)
        if share.directory.exists():
            remove(share.directory)
        share.partial.rename(share.directory)
        _sync(share.directory.parent)


def save(
    directory: Path,
    model: Transformer,
    state: Mapping[str, Any],
    optimizer_state: Mapping[str, Tensor] | None = None,
    world: World | None = None,
) -> None:
    """Write the checkpoint `directory` before anything else goes on; see `Writer.save`."""
    Writer(world).save(directory, model, state, optimizer_state)


def _unwritten(directory: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"could not write checkpoint {directory.name}: {error}; make room or mend the disk and start the same command "
        "again, it resumes from the checkpoint before"
    )


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _described(path: Path) -> dict[str, Any]:
    return {"sha256": _sha256(path), "bytes": path.stat().st_size}


def verify(directory: Path) -> None:
    """Raise `CheckpointError`, naming the file, unless `directory` is a complete checkpoint whose hashes are right."""
    try:
        files = json.loads((directory / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {directory.name} has no readable {MANIFEST}: {error}") from error
    for name, expected in files.items():
        path = directory / name
        if not path.is_file():
            raise CheckpointError(f"checkpoint {directory.name} lacks {name}")
        if path.stat().st_size != expected["bytes"]:
            raise CheckpointError(
                f"checkpoint {directory.name}: {name} has {path.stat().st_size:,} bytes and should have "
                f"{expected['bytes']:,}"
            )
        if _sha256(path) != expected["sha256"]:
            raise CheckpointError(f"checkpoint {directory.name}: {name} does not match its sha256")


def checkpoints(root: Path) -> list[Path]:
    """The checkpoints under `root`, oldest first, unverified."""
    found = [(int(match[1]), path) for path in root.glob("update-*") if (match := NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def newest(root: Path, last_resort: Collection[int] = ()) -> Path | None:
    """The newest checkpoint under `root` that verifies, or None for a run that has none yet. Those of the updates in
    `last_resort` are taken only where no other is left.

    A newer one that does not verify is logged and renamed to `NAME.corrupt`. Raises `CheckpointError` where there are
    checkpoints and none of them verifies: starting over silently would throw the run away.
    """
    errors = []
    for directory in sorted(checkpoints(root), key=lambda path: (number(path) in last_resort, -number(path))):
        try:
            verify(directory)
        except CheckpointError as error:
            errors.append(str(error))
            log.error("%s; it is set aside as %s.corrupt and the one before it is used", error, directory.name)
            aside = directory.with_name(f"{directory.name}.corrupt")
            shutil.rmtree(aside, ignore_errors=True)
            directory.rename(aside)
        else:
            return directory
    if errors:
        raise CheckpointError(f"no checkpoint in {root} is usable: {'; '.join(errors)}; remove them all to start over")
    return None


def number(directory: Path) -> int:
    """The update of a checkpoint, from its name."""
    return int(directory.name.removeprefix("update-"))


def prune(root: Path, retention: RetentionConfig, stage_ends: Collection[int] = ()) -> None:
    """Delete the checkpoints that `retention` does not keep, and what killed runs left half written."""
    found = checkpoints(root)
    kept = retention.kept([number(directory) for directory in found], stage_ends)
    for directory in found:
        if number(directory) not in kept:
            remove(directory)
    for leftover in root.glob(".*.partial"):
        shutil.rmtree(leftover)


def load_state(directory: Path) -> dict[str, Any]:
    """The checkpoint's `state.json`."""
    return json.loads((directory / STATE).read_text())


def load_optimizer_state(directory: Path) -> dict[str, Tensor]:
    """The optimizer's state, the shares of all the ranks that wrote it joined."""
    state: dict[str, Tensor] = {}
    for path in sorted(directory.glob("optimizer-*-of-*.safetensors")):
        state |= load_file(path)
    return state


def load_weights(directory: Path, model: Transformer) -> None:
    """Copy the checkpoint's weights into `model`; raises `CheckpointError` where the names or shapes differ."""
    try:
        model.load_state_dict(load_file(directory / WEIGHTS))
    except RuntimeError as error:
        raise CheckpointError(f"checkpoint {directory.name} holds another model: {error}") from error


def load_model(directory: Path | str) -> Transformer:
    """The model of a checkpoint or of a run's `final/` folder, in float32 on the CPU, its hashes verified first."""
    directory = Path(directory)
    verify(directory)
    config = ModelConfig.model_validate_json((directory / CONFIG).read_text())
    with torch.device("meta"):
        model = Transformer(config)
    model.load_state_dict(load_file(directory / WEIGHTS), assign=True)
    return model


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    _sync(path)


def _save_json(value: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    _sync(path)


def _sync(path: Path) -> None:
    """Wait until `path`, a file or a folder's entries, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(directory: Path) -> None:
    """Delete a checkpoint; renamed first, so that a kill in between leaves no half of it under its name."""
    doomed = directory.with_name(f".{directory.name}.old.partial")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    shutil.rmtree(doomed)
