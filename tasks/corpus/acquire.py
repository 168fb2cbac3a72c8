"""The sources stage: raw files of every source, selected, packed or referred to in shards and listed with checksums.

Parts of the artifact: `sources` (JSON: which sources serve, in place of which, at which version, under which licence),
`raw/<source>/<nnn>` (the partitions of curation, about `shard_bytes` each: a zip of small raw files, or a JSON list of
references to large objects, which are read where they lie) and `listing/<source>` (JSONL: every file with bytes,
checksum and shard, or why it could not be read). The step is a leaf: the hash of these bytes, checksums of what is
referred to among them, is what the corpus depends on.
"""

from __future__ import annotations

import heapq
import json
import logging
import zipfile
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from model.cache import cache_folder
from tasks.accounts import Balance, rows_of
from tasks.artifact import Artifact, Part, Step
from tasks.corpus import blocklists, debian, evaluations, folders, packages
from tasks.corpus.archives import File, Unreadable
from tasks.corpus.sources import (
    PLACE,
    DebianSource,
    FolderSource,
    PythonSource,
    Source,
    SourcesConfig,
    WheelSource,
    matches,
)
from tasks.corpus.storage import Reference, Store, label, passes
from tasks.corpus.unavailable import OutageError, UnavailableError
from tasks.launch import Execution
from tasks.progress import Progress

VERSION = 6  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

Item = File | Reference | Unreadable
Known = AbstractSet[tuple[str, str, str]]
"""What earlier snapshots list: (source, path, checksum), or the reason in its place for what could not be read."""


class AcquireError(RuntimeError):
    """A source that cannot be had or holds nothing; the message names it and says what to do."""


@dataclass(frozen=True)
class Served:
    """One source that serves, with where its bytes come from."""

    source: Source
    origin: str
    """What was found, with its version; never a path of this machine."""
    instead_of: str | None
    """The source it stands in for, where it is a fallback."""
    objects: list[Reference | Unreadable] = field(default_factory=list, compare=False, repr=False)
    """What lies in a folder source."""

    def record(self) -> dict[str, Any]:
        """What the corpus depends on. Where a folder lies is none of it: `partition.sources_of` adds that."""
        return {
            "source": self.source.model_dump(mode="json", exclude=set(PLACE)),
            "origin": self.origin,
            "instead_of": self.instead_of,
        }


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: fetch what the cache lacks and pack every source."""
    return acquire(step, cache_folder())


def acquire(
    step: Step, cache: Path | None = None, offline: bool = False, known: Iterable[tuple[str, str, str]] = ()
) -> Artifact:
    """Fetch what the cache lacks (not when `offline`), pack every source and publish; resumes by source.

    The cache is openk2's own where none is named; once it is filled no network is needed. Files in `known`, those that
    earlier snapshots hold, are left out: the artifact holds what is new or has changed, which may be nothing.

    Raises AcquireError where a source and its fallbacks cannot be had, OutageError where that may pass, LicenceError
    where a licence is not as declared.
    """
    config = step.config
    assert isinstance(config, SourcesConfig)
    cache, earlier = cache or cache_folder(), frozenset(known)
    served = resolve(config, cache, offline, first_snapshot(step))
    resolved = step.part("sources")
    # What a record may hold shapes the documents: it belongs to what the corpus is made of.
    records = [one.record() | {"record_bytes_max": config.record_bytes_max} for one in served]
    if resolved is None:
        step.put("sources", ".json", lambda path: path.write_text(_json(records)), rows=len(records))
    elif json.loads(step.path(resolved).read_text()) != records:
        raise AcquireError(f"the sources changed while they were being read: delete {step.uri} and run again")
    with Progress("sources", len(served), "sources") as progress:
        for one in served:
            if _unpacked(step, one.source.name):
                _pack(step, config, one, cache, earlier)
            progress.advance(note=one.source.name)
    try:
        lists = evaluations.acquire(step, config.evaluations, cache, offline)
        lists |= blocklists.acquire(step, config.blocklists)
    except UnavailableError as error:
        raise _failure(f"{error}; correct it, or leave it out", error) from error
    listings = step.parts(f"listing/{one.source.name}" for one in served)
    keys = ["sources", *(key for part in listings for key in (part.key, *_raw(part)))]
    keys += [f"{group}/{name}" for group in ("evaluations", "blocklists") for name in lists[group]]
    unreadable, passed_over = (
        sum(part.statistics[name] for part in listings) for name in ("unreadable", "passed_over")
    )
    return step.publish(
        {
            "sources": len(served),
            "files": rows_of(listings),
            "bytes": sum(part.statistics["bytes"] for part in listings),
            "unreadable": unreadable,
            "passed_over": passed_over,
            "origins": {one.source.name: one.origin for one in served},
            "fallbacks": {one.source.name: one.instead_of for one in served if one.instead_of},
            **lists,
        },
        keys,
        Balance("files", taken=rows_of(listings), out="raw", rejected=unreadable + passed_over),
    )


def _raw(listing: Part) -> list[str]:
    """The keys of a source's shards."""
    return [f"raw/{listing.key.removeprefix('listing/')}/{shard:03}" for shard in range(listing.statistics["shards"])]


def _unpacked(step: Step, name: str) -> bool:
    """Whether a source's listing or one of its shards is not there."""
    listing = step.part(f"listing/{name}")
    return listing is None or bool(step.missing(_raw(listing)))


def fetch(config: SourcesConfig, cache: Path | None = None) -> dict[str, str]:
    """Fill the cache, so that no network is needed from then on. Returns what serves, by source name."""
    cache = cache or cache_folder()
    evaluations.fetch(config.evaluations, cache)
    return {one.source.name: one.origin for one in resolve(config, cache, offline=False)}


def first_snapshot(step: Step) -> Artifact | None:
    """The first of the snapshots that `step` follows; None where it is the first itself."""
    earlier = step.versions()[:-1]
    return earlier[0].require() if earlier else None


def resolve(config: SourcesConfig, cache: Path, offline: bool, first: Artifact | None = None) -> list[Served]:
    """Which sources serve: each of `sources`, or its fallbacks where it cannot be had, each once; those that served in
    the `first` snapshot, where there is one. Raises AcquireError, or OutageError where it may pass."""
    if first is not None:
        return _served_again(config, cache, offline, first)
    fallbacks = {source.name: source for source in config.fallbacks}
    served: dict[str, Served] = {}

    def serve(source: Source, instead_of: str | None) -> None:
        if source.name in served:
            return
        try:
            served[source.name] = _served(source, cache, offline, instead_of)
        except UnavailableError as error:
            if not source.fallback:
                raise _failure(
                    f"source '{source.name}' cannot be had: {error}; correct it, give it a `fallback` or leave it out",
                    error,
                ) from error
            log.warning("%s: %s; %s serves instead", source.name, error, " and ".join(source.fallback))
            for name in source.fallback:
                serve(fallbacks[name], instead_of or source.name)

    for source in config.sources:
        serve(source, None)
    return list(served.values())


def _served_again(config: SourcesConfig, cache: Path, offline: bool, first: Artifact) -> list[Served]:
    """What served in the first snapshot. A fallback that took its place for a night would stay in the corpus, for all
    of its files are new."""
    sources = {source.name: source for source in (*config.sources, *config.fallbacks)}
    served = []
    for record in json.loads(first.file("sources").read_text(encoding="utf-8")):
        name = record["source"]["name"]
        try:
            served.append(_served(sources[name], cache, offline, record["instead_of"]))
        except UnavailableError as error:
            raise _failure(
                f"source '{name}', of which the first snapshot was made, cannot be had: {error}; nothing is added to "
                "the corpus before it can: refresh again then",
                error,
            ) from error
    return served


def _failure(sentence: str, error: UnavailableError) -> AcquireError | OutageError:
    """What a source that cannot be had ends a run with: what may pass is tried again."""
    return OutageError(sentence) if passes(error.__cause__) else AcquireError(sentence)


def _served(source: Source, cache: Path, offline: bool, instead_of: str | None) -> Served:
    """What serves `source`, with its version; fetches it where that takes the network. Raises UnavailableError."""
    if isinstance(source, FolderSource):
        return Served(source, "folder", instead_of, list(Store(source).objects()))
    if isinstance(source, DebianSource):
        origin = f"Debian package {source.package} {debian.version(debian.fetch(source, cache, offline))}"
    elif isinstance(source, WheelSource):
        origin = f"wheel {packages.fetch_wheel(source.requirement, cache, offline).name}"
    else:
        assert isinstance(source, PythonSource)
        origin = packages.module_version(source)
    return Served(source, origin, instead_of)


def listing(one: Served, config: SourcesConfig, cache: Path, known: Known = frozenset()) -> Iterator[Item]:
    """Everything that a source (one of `resolve`) holds and its patterns and `bytes_max` take, in the order of reading:
    small files with their bytes, the rest as references. Files in `known` are left out. Nothing is written."""
    name = one.source.name

    def skip(path: str, checksum: str) -> bool:
        return (name, path, checksum) in known

    for item in _selected(one.source, _items(one, config, cache, skip)):
        if not (
            skip(item.path, item.reason) if isinstance(item, Unreadable) else skip(label(item.path), checksum(item))
        ):
            yield item


def checksum(item: File | Reference) -> str:
    """What tells one content of a file from another: `xxh3:` and the hash of its bytes, or what its filesystem says."""
    if isinstance(item, File) and not item.checksum:
        return f"xxh3:{xxhash.xxh3_128_hexdigest(item.data)}"
    return item.checksum


def _items(one: Served, config: SourcesConfig, cache: Path, skip: folders.Skip) -> Iterator[Item]:
    source, limit = one.source, config.record_bytes_max
    if isinstance(source, FolderSource):
        total = sum(_bytes(object) for object in one.objects)
        with Progress(f"source {source.name}", total / 1e6, "MB") as progress:
            for size, items in folders.files(source, one.objects, config.shard_bytes, limit, skip):
                yield from items
                progress.advance(size / 1e6)
    elif isinstance(source, DebianSource):
        yield from debian.files(source, debian.fetch(source, cache), limit)
    elif isinstance(source, WheelSource):
        yield from packages.wheel_files(packages.fetch_wheel(source.requirement, cache), limit)
    else:
        yield from packages.module_files(source, limit)


class _Shards:
    """The parts `raw/<source>/<nnn>` of one kind, each closed when the next item would make it too large."""

    def __init__(self, step: Step, name: str, suffix: str, limit: int) -> None:
        self.step, self.name, self.suffix, self.limit = step, name, suffix, limit
        self.held: list[Any] = []
        self.size = self.number = 0

    def add(self, item: File | Reference, next_number: int) -> int:
        """Put `item` in the open part, or in part `next_number` where it is the first; returns its part's number."""
        if self.held and self.size + _bytes(item) > self.limit:
            self.close()
        if not self.held:
            self.number = next_number
        self.held.append(item)
        self.size += _bytes(item)
        return self.number

    def close(self) -> None:
        held, write = self.held, _write_zip if self.suffix == ".zip" else _write_references
        if held:
            key, statistics = f"raw/{self.name}/{self.number:03}", {"bytes": self.size}
            self.step.put(key, self.suffix, lambda path: write(path, held), len(held), statistics)
        self.held, self.size = [], 0


def _pack(step: Step, config: SourcesConfig, one: Served, cache: Path, known: Known) -> None:
    """Write `raw/<source>/...` and `listing/<source>`, which is recorded last: a source without one is packed again."""
    name, counts = one.source.name, {"bytes": 0, "unreadable": 0, "passed_over": 0, "shards": 0}
    files, references = (_Shards(step, name, suffix, config.shard_bytes) for suffix in (".zip", ".json"))
    listed = 0

    def write(path: Path) -> None:
        nonlocal listed
        with path.open("w", encoding="utf-8") as lines:
            for item in listing(one, config, cache, known):
                listed += 1
                lines.write(f"{_json(entry(item))}\n")
        files.close()
        references.close()
        if not listed and not any(source == name for source, _, _ in known):
            raise AcquireError(
                f"source '{name}' ({one.origin}) has no file that `include` and `exclude` let through"
                + (" and `bytes_max` has room for" if one.source.bytes_max else "")
            )

    def entry(item: Item) -> dict[str, Any]:
        if isinstance(item, Unreadable):
            counts["unreadable" if item.kind == "unreadable" else "passed_over"] += 1
            return {"path": item.path, "unreadable": item.reason, "kind": item.kind}
        shard = (files if isinstance(item, File) else references).add(item, counts["shards"])
        counts["shards"] = max(counts["shards"], shard + 1)
        counts["bytes"] += _bytes(item)
        return {"path": label(item.path), "bytes": _bytes(item), "checksum": checksum(item), "shard": shard}

    step.put(f"listing/{name}", ".jsonl", write, rows=lambda: listed, statistics=lambda: counts)
    if counts["passed_over"]:
        log.warning(
            "%s: %d links, pipes and the like were passed over; `rejected` of the corpus names each",
            name, counts["passed_over"],
        )  # fmt: skip


def _selected(source: Source, found: Iterable[Item]) -> Iterator[Item]:
    """What the source's patterns take, in the order of reading; with `bytes_max` the files of the smallest path hashes
    whose sizes sum to no more, in the order of paths. Holds at most `bytes_max` and one file in memory."""
    # The patterns have been held against references already: those to archives stand for members.
    taken = (item for item in found if isinstance(item, Reference) or matches(source, item.path))
    if source.bytes_max is None:
        yield from taken
        return
    held: list[tuple[int, int, File | Reference]] = []
    total, cutoff = 0, 1 << 64
    for count, item in enumerate(taken):
        if isinstance(item, Unreadable):
            yield item
            continue
        rank = xxhash.xxh3_64_intdigest(label(item.path).encode())
        if rank >= cutoff:
            continue
        heapq.heappush(held, (-rank, count, item))
        total += _bytes(item)
        while total > source.bytes_max:
            negative, _, dropped = heapq.heappop(held)
            total, cutoff = total - _bytes(dropped), -negative
    yield from sorted((item for _, _, item in held), key=lambda item: item.path)


def _bytes(item: Item) -> int:
    return len(item.data) if isinstance(item, File) else item.bytes if isinstance(item, Reference) else 0


def _write_references(path: Path, references: list[Reference]) -> None:
    # ASCII: a path may hold bytes that are no UTF-8.
    path.write_text(json.dumps([asdict(one) for one in references], indent=0), encoding="ascii")


def _write_zip(path: Path, files: list[File]) -> None:
    """A zip whose bytes depend on names and contents only."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in files:
            info = zipfile.ZipInfo(file.path, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.data, compresslevel=1)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
