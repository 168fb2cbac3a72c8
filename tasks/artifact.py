"""Identity: what makes two runs the same, where their bytes lie, and the record that makes them real.

A `Step` is one stage with its configuration and inputs: it knows its fingerprint before anything has run. Its
parts are written under `{root}/{name}/{fingerprint}/` in any order and any number of attempts, each with a record
of its own; `publish` writes the manifest LAST and turns the step into an `Artifact`. Readers read only what a
manifest lists, and check the sha256 the first time.

    step = Step("corpus", config, inputs=(sources,), code=code_hash("tasks.corpus.curation"), root="data")
    if step.artifact() is None:
        if step.part("documents/0") is None:
            step.put("documents/0", ".parquet", lambda path: frame.write_parquet(path), rows=frame.height)
        step.publish({"documents": frame.height})
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fsspec

from model.config import Config

MANIFEST = "manifest.json"
FULL = 1 << 20  # a disk with fewer bytes free is full
PACKAGES = ("openk2", "polars", "pyarrow", "torch", "tokenizers", "transformers", "prefect", "great-expectations")


class ArtifactError(RuntimeError):
    """Stored data that is missing, altered or incomplete; the message names the file and what to do."""


def digest(value: Any) -> str:
    """sha256 of a JSON-able value in canonical form (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        record = _read_json(f"{self.uri}/{MANIFEST}")
        if record is None:
            raise ArtifactError(f"{self.uri}/{MANIFEST} does not exist: '{self.name}' is not complete; run its stage")
        return record

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
        return _checked(self.uri, part)

    @classmethod
    def load(cls, uri: str) -> Artifact:
        """The artifact whose manifest lies at `uri`; ArtifactError where there is none."""
        record = _read_json(f"{uri}/{MANIFEST}")
        if record is None:
            raise ArtifactError(f"{uri}/{MANIFEST} does not exist: nothing complete lies there")
        return cls(record["name"], uri, record["fingerprint"], record["statistics"])


@dataclass(frozen=True)
class Step:
    """One stage, its configuration and its inputs: identity first, bytes later."""

    name: str
    config: Config
    root: str
    """Where artifacts lie (any fsspec URL). Execution, not identity."""
    inputs: tuple[Step, ...] = ()
    code: str = ""
    """`code_hash` of the stage's own modules."""
    leaf: bool = False
    """True where the outside world decides the bytes (downloads): what depends on it then takes the hash of the
    content for its identity, so that other bytes are another corpus whatever the configuration said."""

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over name, code, configuration and inputs; paths, hosts, pools and worker counts never
        enter. Raises NotReady while a leaf below has not been fetched."""
        return digest(
            {
                "name": self.name,
                "code": self.code,
                "config": self.config.literals(),
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
            raise NotReady(f"'{self.name}' has not been fetched yet: run `openk2 fetch`, with this preset and root")
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
        """The published artifact, or None while no manifest has been written."""
        record = _read_json(f"{self.uri}/{MANIFEST}")
        return record and Artifact(self.name, self.uri, self.fingerprint, record["statistics"])

    def require(self) -> Artifact:
        """The published artifact; NotReady, saying what to run, where there is none."""
        artifact = self.artifact()
        if artifact is None:
            raise NotReady(
                f"'{self.name}' ({self.fingerprint}) is not complete: run the stage that makes it (`openk2 status`)"
            )
        return artifact

    def part(self, key: str) -> Part | None:
        """The record of a part an earlier attempt finished, or None."""
        record = _read_json(f"{self.uri}/records/{_flat(key)}.json")
        return record and Part(**record["part"])

    def recorded(self, group: str = "") -> list[Part]:
        """Every part that has a record, in the order of keys, published or not."""
        parts = [Part(**record["part"]) for record in self._records(_flat(group))]
        parts.sort(key=lambda part: part.key)
        return [part for part in parts if not group or part.key == group or part.key.startswith(f"{group}/")]

    def path(self, part: Part) -> Path:
        """The local path of a recorded part, its sha256 checked."""
        return _checked(self.uri, part)

    def put(
        self,
        key: str,
        suffix: str,
        write: Callable[[Path], object],
        rows: int | Callable[[], int] = 0,
        statistics: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Part:
        """Write one part: `write(path)` fills a scratch file, which is hashed, moved to a name of its own and only
        then recorded. `rows` and `statistics` may be callables, asked after the writing. A full disk or a kill
        leaves no record, and so nothing anybody reads."""
        part = self.store(key, suffix, write, rows, statistics)
        self._record(part)
        return part

    def store(
        self,
        key: str,
        suffix: str,
        write: Callable[[Path], object],
        rows: int | Callable[[], int] = 0,
        statistics: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Part:
        """`put` without the record: for files by the ten thousand, which a part that is put later lists."""
        with _scratch(self.uri) as folder:
            local = folder / f"part{suffix}"
            try:
                write(local)
            except OSError as error:
                # some writers (numpy's) tell a short write without saying why
                if error.errno is None and shutil.disk_usage(folder).free < FULL:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self.uri}/parts/{key}") from error
                raise
            sha256 = sha256_file(local)
            part = Part(
                key=key,
                path=f"parts/{key}.{sha256[:12]}{suffix}",
                sha256=sha256,
                bytes=local.stat().st_size,
                rows=rows() if callable(rows) else rows,
                statistics=dict((statistics() if callable(statistics) else statistics) or {}),
            )
            _move_in(local, f"{self.uri}/{part.path}")
        return part

    def scratch(self) -> AbstractContextManager[Path]:
        """A folder for files that grow, from where `write` can move them; removed with all that is left in it."""
        return _scratch(self.uri)

    def adopt(self, key: str, source: Path, rows: int = 0, statistics: Mapping[str, Any] | None = None) -> Part:
        """Put a file that another process finished (a checkpoint, a metrics file): it is copied, then recorded."""
        return self.put(
            key, "".join(source.suffixes[-1:]), lambda path: shutil.copyfile(source, path), rows, statistics
        )

    @property
    def work(self) -> Path:
        """Where `workspace` is, or will be."""
        root = Path(self.uri.removeprefix("file://")) if is_local(self.uri) else cache_folder() / digest(self.uri)[:16]
        return root / "work"

    def workspace(self) -> Path:
        """A local folder of this step for processes that keep state of their own (training): survives a kill,
        never read by others."""
        self.work.mkdir(parents=True, exist_ok=True)
        return self.work

    def publish(
        self,
        statistics: Mapping[str, Any],
        cost: Mapping[str, float] | None = None,
        keep: str = "",
        earlier: Artifact | None = None,
    ) -> Artifact:
        """Write the manifest over the recorded parts (those of the groups named in `keep`, comma-separated, where
        given), last and atomically. The parts of `earlier`, a version of the same artifact, are listed too: they stay
        where they lie. Raises ArtifactError where it is none or a part is in both."""
        groups = [group for group in keep.split(",") if group]
        parts = []
        attempts: dict[str, float] = {_attempt(): time.monotonic() - _BEGAN.setdefault(self.uri, time.monotonic())}
        for record in self._records():
            if not groups or record["part"]["key"].split("/")[0] in groups:
                parts.append(record["part"])
            attempts[record["attempt"]] = max(attempts.get(record["attempt"], 0.0), record["elapsed"])
        parts.sort(key=lambda part: part["key"])
        if earlier is not None:
            parts = self._with_earlier(parts, earlier)
        manifest = {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "code": self.code,
            "config": self.config.model_dump(mode="json"),
            "inputs": [{"name": step.name, "identity": step.identity, "uri": step.uri} for step in self.inputs],
            "content": digest([[part["key"], part["sha256"]] for part in parts]),
            "parts": parts,
            "statistics": dict(statistics),
            "seconds": round(sum(attempts.values()), 3),
            "attempts": len(attempts),
            "cost": dict(cost or {}),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": versions(),
        }
        _write_json(f"{self.uri}/{MANIFEST}", manifest)
        return Artifact(self.name, self.uri, self.fingerprint, dict(statistics))

    def _with_earlier(self, parts: list[dict[str, Any]], earlier: Artifact) -> list[dict[str, Any]]:
        """`parts` and those of `earlier`, as seen from here, in the order of keys."""
        if earlier.uri.rpartition("/")[0] != self.uri.rpartition("/")[0] or earlier.uri == self.uri:
            raise ArtifactError(f"{earlier.uri} is no earlier version of {self.uri}: the two must lie side by side")
        theirs = [asdict(part) | {"path": _beside(earlier, part)} for part in earlier.parts()]
        twice = {part["key"] for part in parts}.intersection(part["key"] for part in theirs)
        if twice:
            raise ArtifactError(f"part '{min(twice)}' is in {self.uri} and in {earlier.uri}: give it another key")
        return sorted([*parts, *theirs], key=lambda part: part["key"])

    def begin(self) -> Step:
        """Begin an attempt: start its clock anew (a process may try again, and waits before it does) and name it before
        any worker process could name one of its own. Called where the work begins; returns the step."""
        os.environ["OPENK2_ATTEMPT"] = uuid.uuid4().hex[:12]
        _BEGAN[self.uri] = time.monotonic()
        return self

    def _record(self, part: Part) -> None:
        elapsed = time.monotonic() - _BEGAN.setdefault(self.uri, time.monotonic())
        _write_json(
            f"{self.uri}/records/{_flat(part.key)}.json",
            {"part": asdict(part), "attempt": _attempt(), "elapsed": round(elapsed, 3)},
        )

    def _records(self, start: str = "") -> Iterator[dict[str, Any]]:
        """The records whose file names begin with `start`, one at a time: there are several for every partition."""
        fs, path = fsspec.core.url_to_fs(f"{self.uri}/records")
        if not fs.exists(path):
            return
        for name in sorted(str(name) for name in fs.ls(path, detail=False)):
            if name.endswith(".json") and Path(name).name.startswith(start):
                yield json.loads(fs.cat_file(name))


class NotReady(ArtifactError):
    """A stage was asked for whose inputs do not exist yet."""


def versions() -> dict[str, str]:
    """Versions of the libraries that shape the bytes; recorded, never part of the identity."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# Clocks and checked files are state of the process on purpose: they die with the attempt.
_BEGAN: dict[str, float] = {}
_VERIFIED: set[tuple[str, str, int]] = set()


def _attempt() -> str:
    """The attempt that is under way; worker processes inherit its name through the environment."""
    return os.environ.setdefault("OPENK2_ATTEMPT", uuid.uuid4().hex[:12])


def _flat(key: str) -> str:
    return key.replace("/", "--")


def is_local(uri: str) -> bool:
    """Whether `uri` is a folder of this machine."""
    return "://" not in uri or uri.startswith("file://")


def cache_folder() -> Path:
    """Where fetched files are kept: $OPENK2_CACHE, or openk2's folder in the user's cache."""
    base = os.environ.get("OPENK2_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "openk2"
    return Path(base)


@contextmanager
def _scratch(uri: str) -> Iterator[Path]:
    """A scratch folder on the artifact's own disk (so that moving in is a rename), removed on the way out."""
    parent = Path(uri.removeprefix("file://")) / "scratch" if is_local(uri) else None
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move_in(local: Path, url: str) -> None:
    with local.open("rb") as file:
        os.fsync(file.fileno())
    if is_local(url):
        target = Path(url.removeprefix("file://"))
        target.parent.mkdir(parents=True, exist_ok=True)
        local.replace(target)
        return
    fs, path = fsspec.core.url_to_fs(url)
    fs.put_file(str(local), path)


def _write_json(url: str, value: Any) -> None:
    with _scratch(url.rsplit("/records/", 1)[0].removesuffix(f"/{MANIFEST}")) as folder:
        local = folder / "record.json"
        # Piece by piece: the manifest of many parts, held as one string with all its pieces, takes many times its size.
        with local.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
            file.write("\n")
        _move_in(local, url)


def _read_json(url: str) -> Any:
    fs, path = fsspec.core.url_to_fs(url)
    try:
        text = fs.cat_file(path)
    except FileNotFoundError:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise ArtifactError(f"{url} is not valid JSON ({error}): it was altered; delete it and run again") from error


def _beside(artifact: Artifact, part: Part) -> str:
    """The path of a part as versions beside `artifact` list it."""
    return part.path if part.path.startswith("../") else f"../{artifact.fingerprint}/{part.path}"


def _holder(uri: str, part: Part) -> tuple[str, str]:
    """(the uri of the version that holds a part of the artifact at `uri`, the part's path in there)."""
    path = part.path
    if path.startswith("../"):
        fingerprint, _, path = path.removeprefix("../").partition("/")
        uri = f"{uri.rpartition('/')[0]}/{fingerprint}"
    if not path.startswith("parts/") or ".." in path.split("/") or uri.endswith("/.."):
        raise ArtifactError(f"{uri} lists a part at '{part.path}', which is outside of it: its manifest was altered")
    return uri, path


def _checked(listed: str, part: Part) -> Path:
    uri, place = _holder(listed, part)
    if is_local(uri):
        path = Path(uri.removeprefix("file://")) / place
        if not path.exists():
            raise ArtifactError(f"{path} is listed but missing: delete {uri} and run its stage again")
    else:
        path = cache_folder() / "parts" / part.sha256[:2] / f"{part.sha256}{Path(place).suffix}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
            fs, remote = fsspec.core.url_to_fs(f"{uri}/{place}")
            fs.get_file(remote, str(partial))
            partial.replace(path)
    key = (str(path), part.sha256, path.stat().st_mtime_ns)
    if key not in _VERIFIED:
        if path.stat().st_size != part.bytes or sha256_file(path) != part.sha256:
            raise ArtifactError(
                f"{path} has not the bytes its manifest lists (sha256 {part.sha256[:12]}...): it was altered or cut; "
                f"delete {uri} and run its stage again"
            )
        _VERIFIED.add(key)
    return path


def iter_manifests(root: str) -> Iterator[Artifact]:
    """Every published artifact under `root`, in the order of names and fingerprints."""
    fs, path = fsspec.core.url_to_fs(root)
    for found in sorted(fs.glob(f"{path.rstrip('/')}/*/*/{MANIFEST}")):
        yield Artifact.load(str(fs.unstrip_protocol(found)).removeprefix("file://").rsplit("/", 1)[0])
