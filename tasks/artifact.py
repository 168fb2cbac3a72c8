"""Identity: what makes two runs the same, where their bytes lie, and the record that makes them real.

A `Step` is one stage with its configuration and inputs: it knows its fingerprint before anything has run. Its
parts are written under `{root}/{name}/{fingerprint}/` in any order and any number of attempts, each with a record
of its own; `publish` writes the manifest LAST and turns the step into an `Artifact`. Readers read only what a
manifest lists, and check the sha256 the first time.

    step = Step.of("corpus", "tasks.corpus.curation", config, "data", inputs=(sources,))
    if step.artifact() is None:
        if step.part("documents/0") is None:
            step.put("documents/0", ".parquet", lambda path: frame.write_parquet(path), rows=frame.height)
        step.publish({"documents": frame.height})
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from model import storage
from model.cache import cache_folder
from model.config import Config
from model.storage import is_local, local_path
from model.storage import sha256_file as sha256_file
from tasks.accounts import Balance
from tasks.code import code_hash, data_hash, version_of
from tasks.manifest import MANIFEST as MANIFEST
from tasks.manifest import clear_scratch, content_of, lacking, parsed, read_json, scratch, sound, versions, write_json
from tasks.manifest import digest as digest
from tasks.part import ArtifactError as ArtifactError
from tasks.part import Part as Part
from tasks.part import checked, rows_in

log = logging.getLogger(__name__)

BEGUN = "begun.json"
INPUTS = "inputs.json"
FULL = 1 << 20  # a disk with fewer bytes free is full


@dataclass(frozen=True)
class Artifact:
    """A published stage: small enough to pass between flows; the data stay where `uri` says."""

    name: str
    uri: str
    fingerprint: str
    statistics: dict[str, Any] = field(default_factory=dict, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """What worker processes are sent: the record itself, not the manifest that it may have read."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        record = read_json(f"{self.uri}/{MANIFEST}")
        if record is None:
            raise ArtifactError(f"{self.uri}/{MANIFEST} does not exist: '{self.name}' is not complete; run its stage")
        return sound(self.uri, record)

    def parts(self, group: str = "") -> list[Part]:
        """The parts whose key is `group` or lies under it, in the order of their keys."""
        parts = [Part(**record) for record in self.manifest["parts"]]
        return [part for part in parts if not group or part.key == group or part.key.startswith(f"{group}/")]

    def files(self, group: str = "") -> list[Path]:
        """Local paths of the parts of `group`, each checked against its sha256 once per process and file."""
        return [self.file(part) for part in self.parts(group)]

    def file(self, part: Part | str) -> Path:
        """The local path of one part (fetched into the cache when the artifact is remote), its sha256 checked."""
        if isinstance(part, str):
            found = [candidate for candidate in self.parts() if candidate.key == part]
            if not found:
                raise ArtifactError(f"{self.uri} has no part '{part}': it lists {len(self.parts())} others")
            part = found[0]
        return checked(self.uri, part)

    def made_from(self, name: str) -> Artifact | None:
        """The input of that name, where it was when this was made, else beside this (a root may have been moved); None
        where it is at neither."""
        for given in self.manifest.get("inputs", ()):
            if given["name"] == name:
                beside = "/".join([*self.uri.rstrip("/").split("/")[:-2], *given["uri"].split("/")[-2:]])
                for uri in (given["uri"], beside):
                    with suppress(ArtifactError, OSError):
                        return Artifact.load(uri)
        return None

    def other_code(self, code: str) -> bool:
        """Whether any of it was made by other code than that with this hash."""
        return any(record["hash"] != code for record in self.manifest["code"])

    @classmethod
    def load(cls, uri: str) -> Artifact:
        """The artifact whose manifest lies at `uri`; ArtifactError where there is none."""
        record = read_json(f"{uri}/{MANIFEST}")
        if record is None:
            raise ArtifactError(f"{uri}/{MANIFEST} does not exist: nothing complete lies there")
        sound(uri, record)
        return cls(record["name"], uri, record["fingerprint"], record["statistics"])


@dataclass(frozen=True)
class Step:
    """One stage, its configuration and its inputs: identity first, bytes later."""

    name: str
    config: Config
    root: str
    """Where artifacts lie (any fsspec URL). Execution, not identity."""
    inputs: tuple[Step, ...] = ()
    code: str = field(default="", compare=False)
    """`code_hash` of the stage's module: recorded with what it makes, no identity."""
    leaf: bool = False
    """True where the outside world decides the bytes (downloads): what depends on it then takes the hash of the
    content for its identity, so that other bytes are another corpus whatever the configuration said."""
    version: int = 1
    """The stage's VERSION: raised when the same inputs and configuration give other bytes."""
    data: str = ""
    """`data_hash` of the stage's module: the prompts and word lists that it reads."""
    module: str = field(default="", compare=False)
    """The stage's module, which runs it."""
    gate: Step | None = field(default=None, compare=False)
    """What has to let its artifact through before another stage may read it."""

    @classmethod
    def of(cls, name: str, module: str, config: Config, root: str, inputs: tuple[Step, ...] = ()) -> Step:
        """The step of the stage that `module` runs, with that module's VERSION, data files and code."""
        code, data = code_hash(module), data_hash(module)
        return cls(name, config, root, inputs, code, version=version_of(module), data=data, module=module)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over name, version, configuration, data files and inputs; code, paths, hosts, pools and worker
        counts never enter. Raises NotReady while a leaf below has not been fetched."""
        return digest(
            {
                "name": self.name,
                "version": self.version,
                "config": self.config.literals(),
                "data": self.data,
                "inputs": [step.identity for step in self.inputs],
            }
        )[:16]

    @property
    def identity(self) -> str:
        """What this step contributes to the fingerprints of those that read it."""
        if not self.leaf:
            return self.fingerprint
        artifact = self.artifact()
        if artifact is None:
            raise NotReady(
                f"what '{self.name}' is made of is known once it has run: `openk2 fetch` for sources, else `openk2 run`"
            )
        return artifact.manifest["content"]

    @property
    def uri(self) -> str:
        return f"{self.root.rstrip('/')}/{self.name}/{self.fingerprint}"

    def versions(self) -> list[Step]:
        """The snapshots of this stage up to this one, oldest first: each has the one before for its last input."""
        steps = [self]
        while steps[0].inputs and steps[0].inputs[-1].name == self.name:
            steps.insert(0, steps[0].inputs[-1])
        return steps

    def artifact(self) -> Artifact | None:
        """The published artifact; None while no manifest has been written, or where it does not account for its parts
        and so is to be published again."""
        record = read_json(f"{self.uri}/{MANIFEST}")
        if record is None:
            return None
        try:
            sound(self.uri, record)
        except ArtifactError as error:
            _warn_once(str(error))
            return None
        return Artifact(self.name, self.uri, self.fingerprint, record["statistics"])

    def require(self) -> Artifact:
        """The published artifact; NotReady, saying what to run, where there is none."""
        artifact = self.artifact()
        if artifact is None:
            raise NotReady(
                f"'{self.name}' ({self.fingerprint}) is not complete: run the stage that makes it (`openk2 status`)"
            )
        return artifact

    def input(self, name: str) -> Artifact:
        """The published artifact of the input of that name, which is of the bytes that lie below it now, and which its
        gate has let through as it is; NotReady otherwise."""
        for step in self.inputs:
            if step.name == name:
                for each in filter(None, (step.gate, step)):
                    artifact = each.require()
                    if changed := each.outdated():
                        raise NotReady(
                            f"'{each.name}' is of other bytes of {' and '.join(changed)} than lie there now: run the "
                            "recipe from there on (`openk2 run`)"
                        )
                return artifact
        raise ArtifactError(f"'{self.name}' reads no '{name}': its inputs are {[step.name for step in self.inputs]}")

    def read(self) -> dict[str, Artifact]:
        """The artifacts of all inputs, by name; NotReady where one is not published or not let through."""
        return {step.name: self.input(step.name) for step in self.inputs}

    def discard(self) -> Artifact | None:
        """Take back what has been published or begun, so that a run makes it anew: workspace, records and manifest go,
        files stay until others of the same name are written. Returns what was published."""
        artifact = self.artifact()
        if artifact is not None:
            artifact.manifest  # noqa: B018 (read while it is there)
        shutil.rmtree(self.work, ignore_errors=True)
        clear_scratch(self.uri)
        # The manifest after the records: ended in between, this has to leave something published, which the next run
        # takes back again, and never records that the next run would publish as if it had made them.
        for place in ("records", BEGUN, MANIFEST, INPUTS):
            storage.remove(f"{self.uri}/{place}")
        return artifact

    def outdated(self) -> list[str]:
        """The inputs whose bytes are others than those that the published artifact was made from: a stage that was
        made anew by other code may have come out otherwise. Empty where nothing is published."""
        return self._changed_since(read_json(f"{self.uri}/{MANIFEST}"))

    def begun_from_others(self) -> list[str]:
        """The inputs whose bytes are others than those that the first attempt at it began with; empty where there was
        none. What that attempt finished must not be published with what is made now."""
        return self._changed_since(read_json(f"{self.uri}/{INPUTS}"))

    def _changed_since(self, record: Mapping[str, Any] | None) -> list[str]:
        # by identity, not by place: a root may have been moved or copied since
        made_from = {given["identity"]: given["content"] for given in record["inputs"]} if record else {}
        return [step.name for step in self.inputs if made_from and step._content() != made_from[step.identity]]

    def record_inputs(self) -> None:
        """Note which bytes the inputs have, before the first part is made of them (`begun_from_others`)."""
        if not self.inputs or read_json(f"{self.uri}/{INPUTS}") is not None:
            return
        given = [step._as_input() for step in self.inputs]
        if all(each["content"] for each in given):  # else nothing can be made of them yet
            write_json(f"{self.uri}/{INPUTS}", {"inputs": given})

    def under_way(self) -> bool:
        """Whether it has been published, or a job of it has begun: here or on any machine that shares the root."""
        return self.artifact() is not None or read_json(f"{self.uri}/{BEGUN}") is not None

    def record_begun(self) -> None:
        """Let every machine that shares the root know that a job of this step has begun, in this configuration."""
        if read_json(f"{self.uri}/{BEGUN}") is None:
            begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            write_json(f"{self.uri}/{BEGUN}", {"config": self.config.model_dump(mode="json"), "begun": begun})

    def part(self, key: str) -> Part | None:
        """The record of a part an earlier attempt finished, or None."""
        record = read_json(f"{self.uri}/records/{_flat(key)}.json")
        return record and Part(**record["part"])

    def recorded(self, group: str = "") -> list[Part]:
        """Every part that has a record, in the order of keys, published or not."""
        parts = [Part(**record["part"]) for record in self._records(_flat(group))]
        parts.sort(key=lambda part: part.key)
        return [part for part in parts if not group or part.key == group or part.key.startswith(f"{group}/")]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Those of some keys that have no record yet, in their order: one listing, however many they are."""
        there = set(storage.sizes(f"{self.uri}/records"))
        return [key for key in keys if f"{_flat(key)}.json" not in there]

    def parts(self, keys: Iterable[str]) -> list[Part]:
        """The records of some keys, in their order; ArtifactError where one has none."""
        keys = list(keys)
        if lost := self.missing(keys):
            raise lacking(self.uri, lost, len(keys))
        places = [f"{self.uri}/records/{_flat(key)}.json" for key in keys]
        return [Part(**record["part"]) for record in map(parsed, places, storage.read_all(places))]

    def lying(self) -> dict[str, int]:
        """Bytes of every file that lies among the parts, by its path as parts have it: one listing."""
        return {f"parts/{path}": size for path, size in storage.sizes(f"{self.uri}/parts").items()}

    def forget(self, keys: Iterable[str]) -> None:
        """Remove the records of some parts, so that a run makes them again."""
        for key in keys:
            storage.remove(f"{self.uri}/records/{_flat(key)}.json")

    def path(self, part: Part) -> Path:
        """The local path of a recorded part, its sha256 checked."""
        return checked(self.uri, part)

    def put(
        self,
        key: str,
        suffix: str,
        write: Callable[[Path], object],
        rows: int | Callable[[], int] | None = None,
        statistics: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Part:
        """Write one part: `write(path)` fills a scratch file, which is hashed, moved to a name of its own and only
        then recorded. `rows` and `statistics` may be callables, asked after the writing; the rows of a Parquet file
        are those it says it has. A full disk or a kill leaves no record, and so nothing anybody reads."""
        part = self.store(key, suffix, write, rows, statistics)
        self._record(part)
        return part

    def store(
        self,
        key: str,
        suffix: str,
        write: Callable[[Path], object],
        rows: int | Callable[[], int] | None = None,
        statistics: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Part:
        """`put` without the record: for files by the ten thousand, which a part that is put later lists."""
        with scratch(self.uri) as folder:
            local = folder / f"part{suffix}"
            try:
                write(local)
            except OSError as error:
                # some writers tell a full disk without saying where, or (numpy's) a short write without saying why
                short = error.errno is None and shutil.disk_usage(folder).free < FULL
                if short or (error.errno == errno.ENOSPC and error.filename is None):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self.uri}/parts/{key}") from error
                raise
            sha256 = sha256_file(local)
            part = Part(
                key=key,
                path=f"parts/{key}.{sha256[:12]}{suffix}",
                sha256=sha256,
                bytes=local.stat().st_size,
                rows=rows_in(local, rows() if callable(rows) else rows, f"{self.uri}/parts/{key}"),
                statistics=dict((statistics() if callable(statistics) else statistics) or {}),
            )
            storage.move_in(local, f"{self.uri}/{part.path}")
        return part

    def scratch(self) -> AbstractContextManager[Path]:
        """A folder for files that grow, from where `write` can move them; removed with all that is left in it."""
        return scratch(self.uri)

    def adopt(self, key: str, source: Path) -> Part:
        """Put a file that another process finished (a checkpoint, a metrics file): it is copied, then recorded. A part
        that is recorded already stays only if it is of the same bytes: another machine's job may have made it."""
        recorded = self.part(key)
        if recorded is not None and recorded.sha256 == sha256_file(source):
            return recorded
        return self.put(key, "".join(source.suffixes[-1:]), lambda path: shutil.copyfile(source, path))

    @property
    def work(self) -> Path:
        """Where `workspace` is, or will be."""
        root = local_path(self.uri) if is_local(self.uri) else cache_folder() / digest(self.uri)[:16]
        return root / "work"

    def workspace(self) -> Path:
        """A local folder of this step for processes that keep state of their own (training): survives a kill,
        never read by others."""
        self.work.mkdir(parents=True, exist_ok=True)
        return self.work

    def publish(
        self,
        statistics: Mapping[str, Any],
        keys: Iterable[str] | None = None,
        balance: Balance | None = None,
        cost: Mapping[str, float] | None = None,
        earlier: Artifact | None = None,
        code: Sequence[Mapping[str, Any]] = (),
        attempts: Mapping[str, float] | None = None,
    ) -> Artifact:
        """Write the manifest over the parts `keys` (all that have a record, where None), last and atomically. The parts
        of `earlier`, a version of the same artifact, are listed too: they stay where they lie. `code` and `attempts`
        (seconds) say which code made what and how long it took, where the records of the parts do not: a training job
        puts its parts when it is done, and knows its code by updates.

        Raises ArtifactError, and publishes nothing, where a part has no record or its file is gone, where the rows of
        `balance` do not add up, and where `earlier` is no such version or holds a part that is here too.
        """
        current, elapsed = self.attempt()
        took = {**(attempts or {}), current: elapsed}
        asked = None if keys is None else set(keys)
        found: dict[str, dict[str, Any]] = {}
        codes = Counter({self.code: 0})
        for record in self._records():
            codes[record["code"]] += 1
            took[record["attempt"]] = max(took.get(record["attempt"], 0.0), record["elapsed"])
            # Parts that are not published may carry long statistics (a tally of every rule for every partition).
            if asked is None or record["part"]["key"] in asked:
                found[record["part"]["key"]] = record["part"]
        wanted = sorted(found if asked is None else asked)
        self._refuse_lost(wanted, found)
        parts = [found[key] for key in wanted]
        if earlier is not None:
            parts = self._with_earlier(parts, earlier)
        manifest = {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "version": self.version,
            "code": list(code) or [{"hash": made, "parts": count} for made, count in sorted(codes.items())],
            "config": self.config.model_dump(mode="json"),
            "inputs": [step._as_input() for step in self.inputs],
            "content": content_of(parts),
            "parts": parts,
            "accounts": balance and balance.accounts(parts),
            "statistics": dict(statistics),
            "seconds": round(sum(took.values()), 3),
            "attempts": len(took),
            "cost": dict(cost or {}),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": versions(),
        }
        sound(self.uri, manifest)
        write_json(f"{self.uri}/{MANIFEST}", manifest)
        return Artifact(self.name, self.uri, self.fingerprint, dict(statistics))

    def _refuse_lost(self, wanted: Sequence[str], found: Mapping[str, Mapping[str, Any]]) -> None:
        """ArtifactError where a part was never recorded, or its file is not what was. The record of such a file goes
        too: the same command makes the part again."""
        lying = self.lying()
        gone = [key for key in wanted if key in found and lying.get(found[key]["path"]) != found[key]["bytes"]]
        self.forget(gone)
        if lost := sorted({key for key in wanted if key not in found}.union(gone)):
            raise lacking(self.uri, lost, len(wanted))

    def _with_earlier(self, parts: list[dict[str, Any]], earlier: Artifact) -> list[dict[str, Any]]:
        """`parts` and those of `earlier`, as seen from here, in the order of keys."""
        if earlier.uri.rpartition("/")[0] != self.uri.rpartition("/")[0] or earlier.uri == self.uri:
            raise ArtifactError(f"{earlier.uri} is no earlier version of {self.uri}: the two must lie side by side")
        theirs = [asdict(part) | {"path": _beside(earlier, part)} for part in earlier.parts()]
        twice = {part["key"] for part in parts}.intersection(part["key"] for part in theirs)
        if twice:
            raise ArtifactError(f"part '{min(twice)}' is in {self.uri} and in {earlier.uri}: give it another key")
        return sorted([*parts, *theirs], key=lambda part: part["key"])

    def unpublished(self, parts: Sequence[Part], statistics: Mapping[str, Any]) -> Artifact:
        """Recorded parts to look at where there is no manifest, and may never be one. Nothing may be made of it."""
        artifact = Artifact(self.name, self.uri, self.fingerprint, dict(statistics))
        listed = {"parts": [asdict(part) for part in parts], "config": self.config.model_dump(mode="json")}
        artifact.__dict__["manifest"] = listed
        return artifact

    def begin(self, alone: bool = True) -> Step:
        """Begin an attempt: start its clock anew (a process may try again, and waits before it does), name it before
        any worker process could name one of its own, and remove what a killed one left half written, unless others may
        be at work on this step (`alone` is False: no lock of the root is held). Called where the work begins; returns
        the step."""
        if alone:
            clear_scratch(self.uri)
        os.environ["OPENK2_ATTEMPT"] = uuid.uuid4().hex[:12]
        _BEGAN[self.uri] = time.monotonic()
        return self

    def attempt(self) -> tuple[str, float]:
        """The name of the attempt that is under way, and how many seconds it has taken."""
        return _attempt(), time.monotonic() - _BEGAN.setdefault(self.uri, time.monotonic())

    def _as_input(self) -> dict[str, Any]:
        """How the manifest of a stage that reads this one names it: which it is, and which bytes it had."""
        return {"name": self.name, "identity": self.identity, "uri": self.uri, "content": self._content()}

    def _content(self) -> str | None:
        """The hash of what it has published; None where that is nothing."""
        record = read_json(f"{self.uri}/{MANIFEST}")
        return record and record["content"]

    def _record(self, part: Part) -> None:
        attempt, elapsed = self.attempt()
        write_json(
            f"{self.uri}/records/{_flat(part.key)}.json",
            {"part": asdict(part), "attempt": attempt, "elapsed": round(elapsed, 3), "code": self.code},
        )

    def _records(self, start: str = "") -> Iterator[dict[str, Any]]:
        """The records whose file names begin with `start`, some at a time: there are several for every partition."""
        names = [name for name in storage.sizes(f"{self.uri}/records") if name.startswith(start)]
        places = [f"{self.uri}/records/{name}" for name in names if name.endswith(".json")]
        yield from map(parsed, places, storage.read_all(places))


class NotReady(ArtifactError):
    """A stage was asked for whose inputs do not exist yet."""


# Clocks are state of the process on purpose: they die with the attempt.
_BEGAN: dict[str, float] = {}


def _attempt() -> str:
    """The attempt that is under way; worker processes inherit its name through the environment."""
    return os.environ.setdefault("OPENK2_ATTEMPT", uuid.uuid4().hex[:12])


def _flat(key: str) -> str:
    return key.replace("/", "--")


def _beside(artifact: Artifact, part: Part) -> str:
    """The path of a part as versions beside `artifact` list it."""
    return part.path if part.path.startswith("../") else f"../{artifact.fingerprint}/{part.path}"


@cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)
