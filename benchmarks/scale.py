"""What curating very much text takes, by formulae over rates that were measured on a small corpus.

    python -m benchmarks.scale [--terabytes 100] [--cores 1000] [--memory-gb 4] [rates, see --help]

Prints a table: CPU-hours, days on so many cores, shuffle and disk, jobs, Prefect tasks, and what one process must hold.
docs/scale.md explains every line. `--corpus URI` takes what it can of the rates from a corpus that openk2 curated.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace

from tasks.artifact import Artifact

TASKS = 3  # sources, corpus and gate: whatever the number of partitions
PART_RECORD_BYTES = 500  # of JSON, in the manifest
PARTS = 5  # that a partition publishes: documents, rejected twice, index, removals
JOB_ENTRIES = 1 << 23  # tasks.corpus.dedup.partitions: the most entries of a reduce job
ENTRY_BYTES = 96  # and what each takes of its memory
DROPPED_BYTES = 3 * 33  # of a dropped document in the process that gathers them


@dataclass(frozen=True)
class Rates:
    """Per raw MB as stored (compressed, where it is). The defaults were measured on the corpus of preset `library`:
    1.29 GB of Debian packages (docs/scale.md). A crawl has others."""

    map_mb: float = 5.7
    """Raw MB per CPU-second: read, extract, repair, judge, index."""
    candidates: float = 0.219
    """Bytes of candidate text per raw byte."""
    document_bytes: float = 3840.0
    """Of a candidate."""
    kept: float = 0.979
    """Share of the candidates that no duplicate removes."""
    index: float = 0.81
    """Bytes of index per byte of candidate text."""
    compression: float = 0.28
    """Bytes of Parquet per byte of text."""
    reduce_mb: float = 31.0
    """MB of candidate text per CPU-second: duplicates found."""
    finish_mb: float = 55.0
    """MB of candidate text per CPU-second: documents written."""
    keys: float = 60.0
    """Largest number of sorted keys (bands, paragraphs and lines) that a candidate has of one kind."""
    partition_mb: float = 1000.0
    """Raw MB to a partition: a WARC file."""


def table(rates: Rates, terabytes: float, cores: int, memory_bytes: float) -> list[tuple[str, str]]:
    """(what, how much), in the order of docs/scale.md."""
    raw_mb = terabytes * 1e6
    text_mb = raw_mb * rates.candidates
    documents = text_mb * 1e6 / rates.document_bytes
    partitions = raw_mb / rates.partition_mb
    hours = [raw_mb / rates.map_mb / 3600, text_mb / rates.reduce_mb / 3600, text_mb / rates.finish_mb / 3600]
    reduce_jobs = 1 + documents * rates.keys / min(JOB_ENTRIES, memory_bytes / ENTRY_BYTES)
    index_tb = text_mb * rates.index / 1e6
    stored_tb = text_mb * rates.compression * (1 + rates.kept) / 1e6
    return [
        ("candidates", f"{documents / 1e9:,.2f} billion documents, {text_mb / 1e6:,.1f} TB of text"),
        ("map", f"{hours[0]:,.0f} CPU-hours"),
        ("reduce", f"{hours[1]:,.0f} CPU-hours"),
        ("documents", f"{hours[2]:,.0f} CPU-hours"),
        ("all", f"{sum(hours):,.0f} CPU-hours, {sum(hours) / cores / 24:,.1f} days on {cores:,} cores"),
        ("shuffle (index, read once)", f"{index_tb:,.1f} TB in {partitions * reduce_jobs:,.0f} reads"),
        ("disk beside the raw files", f"{index_tb + stored_tb:,.1f} TB"),
        ("partitions", f"{partitions:,.0f} of {rates.partition_mb / rates.map_mb / 60:,.1f} CPU-minutes"),
        ("jobs", f"{2 * partitions + reduce_jobs:,.0f}, {reduce_jobs:,.0f} of them in the largest step of the reduce"),
        ("Prefect tasks", str(TASKS)),
        ("manifest", f"{partitions * PARTS * PART_RECORD_BYTES / 1e6:,.0f} MB"),
        ("dropped documents, in one process", f"{documents * (1 - rates.kept) * DROPPED_BYTES / 1e9:,.1f} GB"),
    ]


def measured(corpus: Artifact, rates: Rates) -> Rates:
    """`rates` with what the manifest of a corpus (one snapshot, curated in one attempt on one machine) tells."""
    parts = corpus.parts("documents")
    text = sum(size for part in parts for *_, size in part.statistics["groups"])
    stored = sum(part.bytes for part in parts)
    seconds = sum(part.statistics["cpu_seconds"] for part in parts)
    index = sum(part.bytes for part in corpus.parts("index"))
    documents = corpus.statistics["documents"]
    candidates = sum(part.rows for part in corpus.parts("index"))
    text_of_candidates = text * candidates / max(documents, 1)
    raw = sum(Artifact.load(entry["uri"]).statistics["bytes"] for entry in corpus.manifest["inputs"][:1])
    cost = corpus.manifest["cost"]
    return replace(
        rates,
        map_mb=raw / 1e6 / max(cost["cpu_seconds"] - seconds, 1e-6),
        candidates=text_of_candidates / max(raw, 1),
        reduce_mb=text_of_candidates / 1e6 / max(cost["reduce_cpu_seconds"], 1e-6),
        document_bytes=text / max(documents, 1),
        kept=documents / max(candidates, 1),
        index=index / max(text_of_candidates, 1),
        compression=stored / max(text, 1),
        finish_mb=text_of_candidates / 1e6 / max(seconds, 1e-6),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terabytes", type=float, default=100.0, help="raw bytes, as stored")
    parser.add_argument("--cores", type=int, default=1000)
    parser.add_argument("--memory-gb", type=float, default=4.0, help="execution.memory_bytes")
    parser.add_argument("--corpus", help="the uri of a corpus whose manifest tells some of the rates")
    for field in fields(Rates):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float)
    options = parser.parse_args()
    rates = Rates()
    if options.corpus:
        rates = measured(Artifact.load(options.corpus), rates)
    given = {field.name: getattr(options, field.name) for field in fields(Rates)}
    rates = replace(rates, **{name: value for name, value in given.items() if value is not None})
    print("| rate | |\n|---|---:|")
    for field in fields(Rates):
        print(f"| {field.name.replace('_', ' ')} | {getattr(rates, field.name):,.3g} |")
    print(f"\n| {options.terabytes:g} TB | |\n|---|---|")
    for what, much in table(rates, options.terabytes, options.cores, options.memory_gb * 1e9):
        print(f"| {what} | {much} |")


if __name__ == "__main__":
    main()
