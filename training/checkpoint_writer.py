"""Writes checkpoints (`training.checkpoint`): each rank its share, beside the training, renamed into place at the end.

Every rank tells which pieces of the weights and of the optimizer's state it holds. From that all compute alike who
writes what: each distinct piece once, by one of the ranks that hold it, the bytes spread over them.

A checkpoint is written under a hidden name and renamed once every byte is on the disk, so a run killed at any moment
leaves the one before it. In the background the share is copied to host memory, and each rank's thread writes its files
and leaves a note with their hashes in the folder, which all ranks share. Rank 0's thread waits for the notes, writes
the manifest and renames the folder. The threads use no collectives: those belong to the training.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from model.storage import sha256_file
from model.transformer import Transformer
from training.checkpoint import (
    CONFIG,
    INDEX,
    MANIFEST,
    OPTIMIZER,
    STATE,
    WEIGHTS,
    CheckpointError,
    remove,
    whole,
)
from training.metrics import replace_file
from training.parallel import World
from training.pieces import Cuts, faults, file_names, index_of, index_record, pieces_of, share_out

log = logging.getLogger(__name__)


@dataclass
class _Share:
    """What one rank writes of one checkpoint."""

    directory: Path
    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """By file, those that the rank writes."""
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The other files; rank 0 writes them."""

    @property
    def partial(self) -> Path:
        return self.directory.with_name(f".{self.directory.name}.partial")

    def note(self, rank: int) -> Path:
        """What a rank leaves there for rank 0 when it is done."""
        return self.partial / f"rank-{rank}.note"


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
        cuts: Cuts | None = None,
        background: bool = False,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Write the checkpoint `directory`; every rank calls it, with its part of the model and its own share of the
        optimizer's state. `cuts` names the tensors of which `model` holds some slices only.

        An existing folder of that name is replaced. In the `background` it is written from a copy on the host, after
        the one before is done. Rank 0 calls `then` once it is complete. Raises `CheckpointError` where the ranks do not
        hold a whole model together, and where the disk of one refuses this checkpoint, or refused the one before;
        complete ones are then still there.
        """
        share = _Share(directory)
        self.settle()
        self._together(lambda: self._begin(share))
        index = self._plan(share, model, optimizer_state, cuts)
        if self.world.rank == 0:
            share.records = {STATE: dict(state), CONFIG: model.config.model_dump(mode="json"), INDEX: index}
        if background:
            share.tensors = {file: _copied(tensors) for file, tensors in share.tensors.items()}
            self._thread = threading.Thread(target=self._write, args=(share, then), name="checkpoint", daemon=True)
            self._thread.start()
        else:
            self._write(share, then)
            self._together(self.check)

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

    def settle(self) -> None:
        """`wait` on every rank, and raise on every rank where one could not write; every rank calls it."""
        self._together(self.wait)

    def close(self, abandon: bool = False) -> None:
        """Wait without raising; where other ranks are lost, `abandon` waits for nothing of theirs."""
        if abandon:
            self._abandoned.set()
        try:
            self.wait()
        except Exception as error:  # the run ends anyway, by an error of its own
            log.error("%s", error)

    def _begin(self, share: _Share) -> None:
        """Make the folder that all write into."""
        if self.world.rank == 0:
            try:
                shutil.rmtree(share.partial, ignore_errors=True)  # with the notes of an earlier attempt
                share.partial.mkdir(parents=True)
            except OSError as error:
                raise _unwritten(share.directory, error) from error

    def _together(self, task: Callable[[], None]) -> None:
        """Do `task` on every rank, and raise on every rank where it failed on one."""
        failure: Exception | None = None
        try:
            task()
        except Exception as error:  # none may leave the others waiting, whatever it met
            failure = error
        told = self.world.gather("" if failure is None else str(failure) or repr(failure))
        if failure is not None:
            raise failure
        if any(told):
            raise CheckpointError(next(filter(None, told)))

    def _plan(
        self, share: _Share, model: Transformer, optimizer_state: Mapping[str, Tensor] | None, cuts: Cuts | None
    ) -> dict[str, Any]:
        """Give every rank what it writes; the index of everything."""
        record = {}
        for kind, tensors, cut, wanted in (
            (WEIGHTS, model.state_dict(), cuts, whole(model.config)),
            (OPTIMIZER, optimizer_state or {}, None, None),
        ):
            pieces = pieces_of(tensors, cut)
            shares = share_out(self.world.gather(pieces))
            files = file_names(kind, shares)
            index = index_of({file: written for file, written in zip(files, shares, strict=True) if file})
            if found := faults(index, wanted):
                raise CheckpointError(
                    f"the ranks do not hold a whole {kind} for {share.directory.name} together: {found}"
                )
            record[kind] = index_record(index)
            if file := files[self.world.rank]:
                share.tensors[file] = {piece.key: tensors[piece.name] for piece in shares[self.world.rank]}
        return record

    def _write(self, share: _Share, then: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.patience
        try:
            for name, tensors in share.tensors.items():
                _save_tensors(tensors, share.partial / name)
            for name, record in share.records.items():
                _save_json(record, share.partial / name)
            files = {name: _described(share.partial / name) for name in (*share.tensors, *share.records)}
            if self.world.rank == 0:
                self._publish(share, files, deadline)
                then()
            else:
                replace_file(share.note(self.world.rank), json.dumps({"files": files}))
        except Exception as error:  # in a thread: the next step must hear of it, whatever it is
            disk = isinstance(error, OSError | SafetensorError)
            self._error = _unwritten(share.directory, error) if disk else error
            if self.world.rank == 0:
                self._silent(share, deadline)  # the others may still be writing there
                shutil.rmtree(share.partial, ignore_errors=True)
            else:
                _leave(share.note(self.world.rank), str(error))

    def _silent(self, share: _Share, deadline: float) -> int | None:
        """Rank 0: wait for the others' notes; a rank that has left none."""
        for rank in range(1, self.world.size):
            while not share.note(rank).exists():
                if self._abandoned.is_set() or time.monotonic() > deadline or not share.partial.exists():
                    return rank
                time.sleep(0.01)
        return None

    def _publish(self, share: _Share, files: dict[str, Any], deadline: float) -> None:
        """Rank 0: wait for the others' files, then make the folder a checkpoint."""
        silent = self._silent(share, deadline)
        if silent is not None:
            raise CheckpointError(
                f"rank {silent} has not written its part of checkpoint {share.directory.name}: see its log, and let "
                "all ranks share the file system of the work folder"
            )
        for rank in range(1, self.world.size):
            told = json.loads(share.note(rank).read_text(encoding="utf-8") or '{"error": "its log says why"}')
            if "error" in told:
                raise CheckpointError(
                    f"rank {rank} could not write its part of checkpoint {share.directory.name}: {told['error']}"
                )
            files |= told["files"]
        for rank in range(1, self.world.size):
            share.note(rank).unlink()
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
    cuts: Cuts | None = None,
    world: World | None = None,
) -> None:
    """Write the checkpoint `directory` before anything else goes on; see `Writer.save`."""
    Writer(world).save(directory, model, state, optimizer_state, cuts)


def _unwritten(directory: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"could not write checkpoint {directory.name}: {error}; make room or mend the disk and start the same command "
        "again, it resumes from the checkpoint before"
    )


def _leave(note: Path, error: str) -> None:
    """Tell rank 0 of an error; by an empty file where the disk is too full for more."""
    try:
        replace_file(note, json.dumps({"error": error}))
    except OSError:
        with contextlib.suppress(OSError):  # the next step then tells
            note.touch()


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _described(path: Path) -> dict[str, Any]:
    return {"sha256": sha256_file(path), "bytes": path.stat().st_size}


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    _sync(path)


def _save_json(value: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    _sync(path)


def _sync(path: Path) -> None:
    """Wait until `path`, a file or a folder's entries, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
