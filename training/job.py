"""What a launcher and a training job tell each other: `job.json`, and when to stop."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from model.config import Config
from training.precision import undecided

RANKS = "ranks.lock"
"""File in a job's folder of which every rank holds a lock together with the others while it runs: launchers pass theirs
on to nobody, and a rank may outlive one that is killed."""
C = TypeVar("C", bound=Config)
Device = Literal["auto", "cpu", "cuda"]


class JobError(ValueError):
    """A job that cannot begin; the message says which file or field and what to do."""


@dataclass(frozen=True)
class Job:
    """`{"config": {...}, "inputs": {name: uri}, "work": folder, "threads": n or null, "device": "auto",
    "code": hash, "judge_url": url or null}`."""

    config: Mapping[str, Any]
    """The stage's own configuration."""
    inputs: Mapping[str, str]
    """The artifacts that it reads, by name."""
    work: Path
    """Its folder: checkpoints, metrics, progress, and at last `final/` and `summary.json`."""
    threads: int | None = None
    """CPU threads of each rank; None leaves them to torch. Sums may round differently with another number."""
    device: Device = "auto"
    """Where the model lives; `auto` takes CUDA where there is one."""
    code: str = ""
    """The hash of the code that trains, for the record."""
    judge_url: str | None = None
    """Where a model is that judges replies (`rl.judge`)."""

    @classmethod
    def read(cls, path: Path) -> Job:
        """Raises `JobError` where the file is missing, is no JSON, lacks a field or asks for what there is not."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            job = cls(
                config=record["config"],
                inputs=record["inputs"],
                work=Path(record["work"]),
                threads=record.get("threads"),
                device=record.get("device", "auto"),
                code=record.get("code", ""),
                judge_url=record.get("judge_url"),
            )
        except KeyError as error:
            raise JobError(f"{path} lacks {error}: a job has config, inputs, work, threads and device") from None
        except (OSError, ValueError, TypeError) as error:
            raise JobError(f"{path} is no job file: {error}") from error
        if job.device not in get_args(Device):  # any other would train on the CPU, and nobody would know why so slowly
            raise JobError(f"{path}: device is {job.device!r}: choose one of {', '.join(get_args(Device))}")
        if job.threads is not None and (type(job.threads) is not int or job.threads < 1):
            raise JobError(f"{path}: threads is {job.threads!r}: give each rank a whole number of them, or null")
        if not isinstance(job.inputs, dict) or not all(isinstance(uri, str) for uri in job.inputs.values()):
            raise JobError(
                f"{path}: inputs are the artifacts' addresses by name, such as {{'tokens': 'data/tokens/4be0'}}"
            )
        return job

    def configured(self, kind: type[C]) -> C:
        """The stage's own configuration. Raises pydantic's ValidationError, or `JobError` where a precision is open:
        a job that decided it by its own machine would not be the one that its fingerprint names."""
        config = kind.model_validate(self.config)
        if names := undecided(config):
            raise JobError(
                f"config.{names[0]} is 'auto' (or left out): a job takes 'bfloat16' or 'float32'; what 'auto' stands "
                "for is decided when a run is submitted"
            )
        return config

    def input(self, name: str) -> str:
        """The uri of an input artifact; raises `JobError` where the job names none."""
        if name not in self.inputs:
            raise JobError(f"the job names no input {name!r}; it has {', '.join(self.inputs) or 'none'}")
        return self.inputs[name]


@contextlib.contextmanager
def held(work: Path) -> Iterator[None]:
    """Hold this rank's part of the lock RANKS of `work` for the length of a `with` block."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / RANKS).open("a+") as file:
        with contextlib.suppress(OSError):  # file systems of some clusters have no locks
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


class Preemption:
    """Whether SIGTERM or SIGINT has asked this process to stop, or the launcher that started it is gone."""

    def __init__(self) -> None:
        self.signalled = False
        self.launcher = os.getppid() if "RANK" in os.environ else None

    @property
    def asked(self) -> bool:
        """True once there is a reason to write a checkpoint and leave; an orphan would train beside its successor."""
        return self.signalled or (self.launcher is not None and os.getppid() != self.launcher)

    @contextlib.contextmanager
    def listen(self) -> Iterator[Preemption]:
        """Note the signals instead of dying of them, for the length of a `with` block."""
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.signalled = True
