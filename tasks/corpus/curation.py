"""The corpus stage: partitions refined by workers, duplicates found over all of them, documents written.

    candidates, rejected, index  <- refine, a job per partition
    removals, passages           <- find, over the indices of all partitions
    documents, rejected/dedup    <- finish, a job per partition

Published are `documents/<source>/<nnn>`, `rejected/<...>` (see `records`), `contamination/<...>` (what evaluation sets
share with documents), `passages` (the most frequent that were removed), and `index/<...>` and `removals/<...>`, which
a later snapshot is deduplicated against; `candidates/...` and `reduce/...` are this step's own. Each part that was
finished is kept by an interrupted run. A later snapshot (`snapshots`) does all this for its own partitions and lists
the parts of the version before beside them. In every report: read = documents + rejected + unreadable.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.accounts import Balance
from tasks.artifact import Artifact, Part, Step
from tasks.corpus import records
from tasks.corpus.config import CorpusConfig
from tasks.corpus.dedup.find import MEMORY_BYTES, find
from tasks.corpus.dedup.removals import apply
from tasks.corpus.executor import Again, Executor, Serial
from tasks.corpus.licence import patterns
from tasks.corpus.partition import partition_name, refine, sources_of, without
from tasks.corpus.quality.measures import bad_words
from tasks.corpus.quality.tally import merged
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from tasks.progress import Progress

VERSION = 9  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

REFINED = ("candidates", "rejected", "index")
FINISHED = ("documents", "rejected/dedup")
"""What a partition's jobs leave, where they are done."""
PUBLISHED = (*FINISHED, "rejected", "index", "removals")
"""Of every partition, beside `contamination` where there was any."""


LOST = {"raw_bytes": 0, "unreadable_bytes": 0}
"""Of a source: bytes of its files, and those of them that could not be read."""


class CorpusError(RuntimeError):
    """A corpus that would hold nothing."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: curate every partition where `execution` says."""
    with workers_of(execution) as workers:
        return curate(step, step.input("sources"), workers, execution.memory_bytes, execution.price_per_hour)


def curate(
    step: Step,
    sources: Artifact,
    executor: Executor | None = None,
    memory_bytes: int = MEMORY_BYTES,
    price_per_hour: float = 0.0,
) -> Artifact:
    """Curate every partition of `sources` and publish; the bytes depend on neither executor nor memory. A step of a
    later snapshot (its last input is the corpus before it) publishes what it adds beside what that one holds.

    Raises CorpusError where nothing is left, BadWordsError for a list of bad words that is not there.
    """
    assert isinstance(step.config, CorpusConfig)
    for section in (step.config.prose, step.config.mathematics):
        bad_words(section)  # before the first document is read
    executor = executor or Serial()
    versions = step.versions()
    earlier = versions[-2].require() if len(versions) > 1 else None
    served = sources_of(sources)
    partitions = {partition_name(part.key, len(versions) - 1): part for part in sources.parts("raw")}
    keys = sorted(partitions)
    _refine_all(step, sources, partitions, served, executor)
    began = time.process_time() + executor.spent
    find(step, keys, executor, (earlier,) if earlier else (), memory_bytes)
    reduced = time.process_time() + executor.spent - began
    _finish_all(step, keys, executor)
    of_snapshot = f"/{len(versions) - 1}" if earlier else ""
    acquired, passages = f"rejected/acquired{of_snapshot}", f"passages{of_snapshot}"
    if step.part(acquired) is None:
        _reject_unreadable(step, acquired, sources)
    read, contaminated = _read(step, keys, sources, earlier)
    published = [f"{group}/{key}" for group in PUBLISHED for key in keys]
    published += [f"contamination/{key}" for key in contaminated] + [acquired, passages]
    statistics = _statistics(step, published, served, earlier) | {"rules": _tallies(step, keys, earlier)}
    balance = Balance("documents", taken=read, out="documents", rejected="rejected")
    return step.publish(statistics, published, balance, _cost(step, keys, reduced, price_per_hour), earlier)


def _read(step: Step, keys: Sequence[str], sources: Artifact, earlier: Artifact | None) -> tuple[int, list[str]]:
    """(documents that were read of all snapshots, the partitions of this one in which evaluation sets were found).
    What could not be read is counted from the sources, the rest where it was read."""
    read = earlier.manifest["accounts"]["in"] if earlier else 0
    read += sum(part.statistics["unreadable"] + part.statistics["passed_over"] for part in sources.parts("listing"))
    contaminated = []
    for key in keys:
        found = _part(step, f"candidates/{key}").statistics
        read += found["read"]
        if found["contaminations"]:
            contaminated.append(key)
    return read, contaminated


def _refine_all(
    step: Step, sources: Artifact, partitions: dict[str, Part], served: dict[str, Any], executor: Executor
) -> None:
    def job(key: str) -> tuple[Any, ...]:
        return step, key, sources, partitions[key], served[key.rpartition("/")[0]], ()

    sizes = {key: part.bytes for key, part in partitions.items()}
    _work("corpus", step, REFINED, sizes, executor, refine, job, without)


def _finish_all(step: Step, keys: Sequence[str], executor: Executor) -> None:
    sizes = {key: _part(step, f"candidates/{key}").bytes for key in keys}
    _work("corpus documents", step, FINISHED, sizes, executor, finish, lambda key: (step, key))


def _work(
    label: str,
    step: Step,
    groups: Sequence[str],
    sizes: dict[str, int],
    executor: Executor,
    function: Callable[..., Any],
    job: Callable[[str], tuple[Any, ...]],
    again: Again | None = None,
) -> None:
    """One job for every partition that lacks a part in one of `groups`, large ones first, so that no worker is left
    with one at the end."""
    lacking = {group: set(step.missing(f"{group}/{key}" for key in sizes)) for group in groups}
    left = [key for key in sizes if any(f"{group}/{key}" in lost for group, lost in lacking.items())]
    left.sort(key=lambda key: (-sizes[key], key))
    total = sum(sizes.values())
    first = total - sum(sizes[key] for key in left)
    with Progress(label, total / 1e6, "MB", first / 1e6) as progress:
        for key, _ in executor.map(function, {key: job(key) for key in left}, again):
            progress.advance(sizes[key] / 1e6, note=key)


def finish(step: Step, key: str) -> Part:
    """Write `rejected/dedup/<key>` and then `documents/<key>`, a batch of candidates at a time; returns the latter.

    Raises CorpusError where a candidate would be lost.
    """
    began = time.process_time()
    groups: dict[tuple[str, ...], list[int]] = {}
    rejects = records.Rejects()
    candidates = _part(step, f"candidates/{key}")

    def everything(path: Path) -> None:
        with records.Writer(path, records.DOCUMENT) as kept:
            step.put(
                f"rejected/dedup/{key}",
                ".parquet",
                lambda path: dropped(kept, path),
                rows=lambda: rejects.rows,
                statistics=rejects.record,
            )
        if kept.rows + rejects.rows != candidates.rows:
            raise CorpusError(
                f"of {candidates.rows} candidates in {key}, {kept.rows} were kept and {rejects.rows} dropped: "
                "deduplication lost some, which is a defect of it: please report it"
            )

    def dropped(kept: records.Writer, path: Path) -> None:
        with records.Writer(path, records.REJECTED, rejects.add) as rejected:
            for documents, rows in _applied(step, key):
                kept.add_table(documents)
                rejected.extend(rows)
                _count(documents, groups)

    return step.put(
        f"documents/{key}",
        ".parquet",
        everything,
        rows=lambda: sum(held[0] for held in groups.values()),
        statistics=lambda: {
            "groups": [[*group, *held] for group, held in sorted(groups.items())],
            "cpu_seconds": round(time.process_time() - began, 3),
        },
    )


def _applied(step: Step, key: str) -> Iterator[tuple[pa.Table, list[dict[str, Any]]]]:
    """(documents, rejected rows) of every batch of a partition's candidates."""
    removals = pq.read_table(step.path(_part(step, f"removals/{key}")))
    rows, start = removals["row"], 0
    for batch in records.batches(step.path(_part(step, f"candidates/{key}"))):
        end = start + batch.num_rows
        mine = removals.filter(pc.and_(pc.greater_equal(rows, start), pc.less(rows, end)))
        mine = mine.set_column(0, removals.schema.field("row"), pc.subtract(mine["row"], start))
        yield apply(batch, mine)
        start = end


def _count(documents: pa.Table, groups: dict[tuple[str, ...], list[int]]) -> None:
    """Add documents and bytes of a table to their (source, domain, language, licence)."""
    columns = (documents[name].to_pylist() for name in ("source", "domain", "language", "licence"))
    for *group, size in zip(*columns, pc.binary_length(documents["text"]).to_pylist(), strict=True):
        held = groups.setdefault(tuple(group), [0, 0])
        held[0] += 1
        held[1] += size


def _reject_unreadable(step: Step, key: str, sources: Artifact) -> None:
    """Write the part `key`: what could not even be taken into the sources."""
    rejects = records.Rejects()

    def write(path: Path) -> None:
        with records.Writer(path, records.REJECTED, rejects.add) as rejected:
            for part in sources.parts("listing"):
                name = part.key.removeprefix("listing/")
                with sources.file(part).open(encoding="utf-8") as lines:
                    for entry in map(json.loads, lines):
                        if "unreadable" in entry:
                            kind = entry.get("kind", "unreadable")
                            rejected.add(records.unread(name, entry["path"], kind, entry["unreadable"]))

    step.put(key, ".parquet", write, rows=lambda: rejects.rows, statistics=rejects.record)


def _statistics(
    step: Step, published: Sequence[str], served: dict[str, Any], earlier: Artifact | None
) -> dict[str, Any]:
    """Of the whole corpus, with what each snapshot added under `snapshots`, oldest first.

    Raises CorpusError where there is no document at all.
    """
    mine = step.parts(published)
    sources = _described(served)
    added = _summed(mine, sources)
    history = []
    if earlier is not None:
        sources = earlier.statistics["by_source"] | sources
        history = earlier.statistics["snapshots"]
    whole = _summed([*mine, *(earlier.parts() if earlier else ())], sources)
    if not whole["documents"]:
        raise CorpusError(_nothing_left(step, whole["read"]))
    plain = ("documents", "bytes", "read", "rejected", "unreadable")
    config = step.config
    assert isinstance(config, CorpusConfig)
    return whole | {
        "snapshots": [*history, {name: added[name] for name in plain}],
        # What the policy comes to: the gate asks it again by itself.
        "licence_patterns": list(patterns(config.licences)),
    }


def _described(served: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the documents of each source have in common."""
    return {
        name: {
            "licence": record["source"]["licence"],
            "domain": record["source"]["domain"],
            "language": record["source"]["language"],
            "origin": record["origin"],
        }
        for name, record in served.items()
    }


def _nothing_left(step: Step, read: int) -> str:
    """Every reason for which documents were dropped, the most frequent first, with its count and one example."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for part in step.recorded("rejected"):
        for batch in records.batches(step.path(part)):
            columns = (batch[name].to_pylist() for name in ("stage", "reason", "url", "value"))
            for stage, reason, url, value in zip(*columns, strict=True):
                counts[stage, reason] += 1
                examples.setdefault((stage, reason), f"{url[:200]} ({value[:300]})" if value else url[:200])
    lines = [
        f"- {stage}, {reason}: {count:,}, such as {examples[stage, reason]}"
        for (stage, reason), count in counts.most_common()
    ]
    return "\n".join(
        [
            f"no document is left of {read:,} that were read:",
            *lines,
            "Correct the source, or the rule under `corpus`; `openk2 inspect` with the same options shows more.",
        ]
    )


def attempted(step: Step) -> Artifact | None:
    """What an attempt that published nothing has recorded, to be looked at; None where it came to nothing yet."""
    groups = ("documents", "rejected", "contamination", "index", "removals", "passages")
    parts = [part for group in groups for part in step.recorded(group)]
    sources = step.inputs[0].artifact()
    if not parts or sources is None:
        return None
    rules = merged(part.statistics["rules"] for part in step.recorded("candidates"))
    statistics = _summed(parts, _described(sources_of(sources))) | {"rules": rules}
    return step.unpublished(parts, statistics)


def _tallies(step: Step, keys: Sequence[str], earlier: Artifact | None) -> dict[str, Any]:
    """How the rules judged the whole corpus. A partition's tallies are tens of kilobytes: they stay out of the
    manifest, and one is held at a time."""
    mine = (_part(step, f"candidates/{key}").statistics["rules"] for key in keys)
    return merged(chain([earlier.statistics["rules"]] if earlier else [], mine))


def _summed(parts: Sequence[Part], sources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The statistics of published parts; `sources` says of each source what its documents have in common."""
    counts = {"documents": 0, "bytes": 0}
    by_source: dict[str, dict[str, Any]] = {
        name: sources[name] | counts | LOST | {"read": 0} for name in sorted(sources)
    }
    by_domain: dict[str, dict[str, int]] = {}
    by_language: dict[str, dict[str, int]] = {}
    by_licence: dict[str, dict[str, int]] = {}
    reasons: Counter[str] = Counter()
    masked: Counter[str] = Counter()
    cuts: dict[str, Counter[str]] = {"passages": Counter(), "characters": Counter()}
    rejected = unreadable = 0
    for part in parts:
        group = part.key.partition("/")[0]
        if group == "documents":
            for source, domain, language, licence, documents, size in part.statistics["groups"]:
                by_source[source]["read"] += documents
                for held in (
                    by_source[source],
                    by_domain.setdefault(domain, dict(counts)),
                    by_language.setdefault(language, dict(counts)),
                    by_licence.setdefault(licence, dict(counts)),
                ):
                    held["documents"] += documents
                    held["bytes"] += size
        elif group == "rejected":
            unreadable += part.statistics["unreadable"]
            rejected += part.rows - part.statistics["unreadable"]
            reasons.update(part.statistics["by_reason"])
            masked.update(part.statistics.get("masked", {}))
            for source, count in part.statistics["by_source"].items():
                by_source[source]["read"] += count
            for name in LOST.keys() & part.statistics.keys():
                by_source[_source_of(part)][name] += part.statistics[name]
        elif group == "removals":
            cuts["passages"].update(part.statistics["spans"])
            cuts["characters"].update(part.statistics["chars"])
    documents = sum(held["documents"] for held in by_domain.values())
    return {
        "documents": documents,
        "bytes": sum(held["bytes"] for held in by_domain.values()),
        "read": documents + rejected + unreadable,
        "rejected": rejected,
        "unreadable": unreadable,
        "by_domain": dict(sorted(by_domain.items())),
        "by_source": by_source,
        "by_language": dict(sorted(by_language.items())),
        "by_licence": dict(sorted(by_licence.items())),
        "rejected_by_reason": dict(sorted(reasons.items())),
        "cut": {name: dict(sorted(found.items())) for name, found in cuts.items()},
        "masked": dict(sorted(masked.items())),
        "near_duplicates": reasons["near_duplicate"],
        "exact_duplicates": reasons["exact_duplicate"],
    }


def _source_of(part: Part) -> str:
    """The source of a part `rejected/<source>/<nnn>`."""
    return part.key.split("/")[1]


def _cost(step: Step, keys: Sequence[str], reduced: float, price_per_hour: float) -> dict[str, float]:
    """CPU seconds of the partitions' jobs over all attempts and of the reduce side in this one (on this machine), and
    money at the price of a machine whose CPU it is."""
    parts = (_part(step, f"{group}/{key}") for group in ("candidates", "documents") for key in keys)
    seconds = sum(part.statistics["cpu_seconds"] for part in parts)
    return {
        "cpu_seconds": round(seconds, 3),
        "reduce_cpu_seconds": round(reduced, 3),
        "money": round((seconds + reduced) / 3600 * price_per_hour, 6),
    }


def _part(step: Step, key: str) -> Part:
    part = step.part(key)
    if part is None:
        raise CorpusError(
            f"a worker finished '{key}' but it does not lie in {step.uri}: the root must be a folder that every worker "
            "shares, or an object store"
        )
    return part
