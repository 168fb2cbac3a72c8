"""The mix step: a table of how often each group of documents is read and why, and the copies of every document.

Parts: `table` (Parquet, one row a group), `readable` (the same as Markdown, for people) and, beside every part of
documents and of rewrites, `copies/{part}`: id and copies, row by row, which the tokens stage writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from model.visible import markdown as plain
from tasks.accounts import Balance, rows_of
from tasks.artifact import Artifact, ArtifactError, Step
from tasks.corpus import records
from tasks.corpus.executor import Executor, Serial
from tasks.corpus.mix.config import MixConfig
from tasks.corpus.mix.solution import REWRITE, Group, MixError, Ration, solve
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from training.draw import draw

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)

KEYS = ("domain", "source", "language", "licence", "bucket")
"""What a group is known by."""
TABLE = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in KEYS]
    + [
        pa.field("documents", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("available", pa.float64(), nullable=False),  # its tokens, estimated
        pa.field("asked", pa.float64(), nullable=False),  # share of the training tokens, without caps
        pa.field("epochs", pa.float64(), nullable=False),
        pa.field("tokens", pa.float64(), nullable=False),  # epochs times available
        pa.field("share", pa.float64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
COPIES = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("copies", pa.int16(), nullable=False)])
ROWS = 4096
"""Documents whose copies are drawn at once."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: solve the mix, write how often each document is read."""
    with workers_of(execution) as workers:
        return build(
            *(step, step.input("corpus"), step.input("scores"), step.input("rewrites"), step.input("tokenizer")),
            executor=workers,
        )


def build(
    step: Step,
    corpus: Artifact,
    scores: Artifact,
    rewrites: Artifact,
    tokenizer: Artifact,
    executor: Executor | None = None,
) -> Artifact:
    """Solve the mix over every document and rewrite, write the table and the copies, publish.

    Raises MixError, in one sentence, for a mix that cannot be had; ArtifactError where the inputs do not belong
    together.
    """
    config = step.config
    assert isinstance(config, MixConfig)
    executor = executor or Serial()
    _named(config, corpus, scores)
    _telling(config, scores)
    groups = _groups(corpus, scores, rewrites, tokenizer, executor)
    rations = solve(groups, config)
    table = _table(rations)
    step.put("table", ".parquet", lambda path: records.write(path, table), table.num_rows)
    step.put("readable", ".md", lambda path: path.write_text(markdown(rations), encoding="utf-8"), table.num_rows)
    _copies(step, corpus, scores, rewrites, executor)
    read = [*corpus.parts("documents"), *rewrites.parts("rewrites")]
    keys = ["table", "readable", *(f"copies/{part.key}" for part in read)]
    balance = Balance("documents", taken=rows_of(read), out="copies")
    return step.publish(_statistics(rations, scores), keys, balance)


def _named(config: MixConfig, corpus: Artifact, scores: Artifact) -> None:
    """Refuse names that nothing has."""
    held = corpus.statistics
    # A bucket may be empty: where the classifier had too few examples no document is in any of those that are named.
    buckets = {*scores.statistics["by_bucket"], *scores.manifest["config"].get("buckets", ())}
    for field, names, known in (
        ("domains", config.domains, held["by_domain"]),
        ("sources", config.sources, held["by_source"]),
        ("source_epochs", config.source_epochs, held["by_source"]),
        ("buckets", config.buckets, buckets),
    ):
        if unknown := sorted(set(names) - set(known)):
            raise MixError(f"`mix.{field}` names '{unknown[0]}', and there are: {', '.join(sorted(known))}")


def _telling(config: MixConfig, scores: Artifact) -> None:
    """Refuse buckets of a classifier that cannot tell good from poor."""
    auc = scores.statistics.get("auc")
    if config.auc and (auc is None or auc < config.auc):
        got = "no classifier was trained" if auc is None else f"the classifier's is {auc:.3f}"
        raise MixError(
            f"`mix.auc` asks for an area under the ROC curve of {config.auc:g} and {got}: give `scores.classifier` "
            "better examples, or lower `mix.auc`"
        )


def _groups(
    corpus: Artifact, scores: Artifact, rewrites: Artifact, tokenizer: Artifact, executor: Executor
) -> list[Group]:
    """Every group, sorted. Documents were counted where they were scored; rewrites are counted here."""
    counts: dict[tuple[str, ...], list[int]] = {}

    def add(rows: Iterable[list[Any]]) -> None:
        for *group, documents, size in rows:
            held = counts.setdefault(tuple(group), [0, 0])
            held[0] += documents
            held[1] += size

    for part in scores.parts("scores"):
        add(part.statistics["groups"])
    jobs = {part.key: (rewrites.file(part),) for part in rewrites.parts("rewrites")}
    for _, rows in executor.map(count_rewrites, jobs):
        add(rows)
    documents = sum(held[0] for group, held in counts.items() if group[-1] != REWRITE)
    if documents != corpus.statistics["documents"]:
        raise ArtifactError(
            f"{scores.uri} scores {documents:,} documents and {corpus.uri} has {corpus.statistics['documents']:,}: the "
            "scores are of another corpus; run the corpus stage again"
        )
    ratios: Mapping[str, float] = tokenizer.statistics["bytes_per_token"]
    mean = math.fsum(ratios.values()) / len(ratios)
    return [
        Group(*group, documents=held[0], bytes=held[1], tokens=held[1] / (ratios.get(group[0]) or mean))  # type: ignore[arg-type, misc]
        for group, held in sorted(counts.items())
    ]


def count_rewrites(path: Path) -> list[list[Any]]:
    """[domain, source, language, licence, `rewrite`, documents, bytes] of one file of rewrites, sorted."""
    counts: dict[tuple[str, ...], list[int]] = {}
    for batch in pq.ParquetFile(path).iter_batches(ROWS, columns=["text", *KEYS[:4]]):
        sizes = pc.binary_length(batch["text"]).to_pylist()
        for *group, size in zip(*(batch[name].to_pylist() for name in KEYS[:4]), sizes, strict=True):
            held = counts.setdefault((*group, REWRITE), [0, 0])
            held[0] += 1
            held[1] += size
    return [[*group, *held] for group, held in sorted(counts.items())]


def _copies(step: Step, corpus: Artifact, scores: Artifact, rewrites: Artifact, executor: Executor) -> None:
    """Write `copies/...` beside every part of documents and rewrites that has none yet."""
    scored = {part.key.removeprefix("scores/"): part for part in scores.parts("scores")}
    (table,) = step.recorded("table")
    jobs: dict[str, tuple[Any, ...]] = {}
    for artifact, group in ((corpus, "documents"), (rewrites, "rewrites")):
        for part in artifact.parts(group):
            if step.part(f"copies/{part.key}") is None:
                beside = scored.get(part.key.removeprefix("documents/")) if group == "documents" else None
                path = scores.file(beside) if beside else None
                jobs[part.key] = (step, part.key, artifact.file(part), path, step.path(table))
    for _ in executor.map(write_copies, jobs):
        pass


def write_copies(step: Step, key: str, documents: Path, scores: Path | None, mix: Path) -> None:
    """Write `copies/<key>`: for each row of a file of documents (with their `scores`) or of rewrites, how many times it
    is written into the shards by the table of the `mix`."""
    config = step.config
    assert isinstance(config, MixConfig)
    rations = pq.read_table(mix, columns=[*KEYS, "epochs"]).to_pylist()
    epochs = {tuple(row[name] for name in KEYS): row["epochs"] for row in rations}
    table = pq.read_table(documents, columns=["id", *KEYS[:4]])
    names = table["id"].to_pylist()
    if scores is None:
        buckets = [REWRITE] * table.num_rows
    else:
        scored = pq.read_table(scores, columns=["id", "bucket"])
        buckets = scored["bucket"].to_pylist()
        if scored["id"].to_pylist() != names:
            raise ArtifactError(f"{scores} does not score the documents of {documents}: run the corpus stage again")
    groups = zip(*(table[name].to_pylist() for name in KEYS[:4]), buckets, strict=True)
    times = [copies(epochs[group], config.seed, name) for name, group in zip(names, groups, strict=True)]
    made = pa.Table.from_arrays([table["id"].combine_chunks(), pa.array(times, pa.int16())], schema=COPIES)
    step.put(
        f"copies/{key}",
        ".parquet",
        lambda path: records.write(path, made),
        made.num_rows,
        {"copies": sum(times), "left_out": times.count(0)},
    )


def copies(epochs: float, seed: int, name: str) -> int:
    """How many times the document `name` is written: the whole epochs, and one more for as many documents as the
    fraction says, by a hash of seed and id."""
    whole = int(epochs)
    return whole + (draw("mix", seed, name) < epochs - whole)


def _table(rations: list[Ration]) -> pa.Table:
    rows = []
    for ration in rations:
        record = asdict(ration)
        group = record.pop("group")
        rows.append({**group, **record, "available": group["tokens"]})
    return records.table(rows, TABLE)


def markdown(rations: list[Ration]) -> str:
    """The table for people."""
    head = (*KEYS, "documents", "bytes", "tokens", "asked", "epochs", "training tokens", "share", "reason")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for ration in rations:
        group = ration.group
        cells = [
            *(getattr(group, name) for name in KEYS),
            f"{group.documents:,}",
            f"{group.bytes:,}",
            f"{group.tokens:,.0f}",
            f"{ration.asked:.2%}",
            f"{ration.epochs:.3g}",
            f"{ration.tokens:,.0f}",
            f"{ration.share:.2%}",
            ration.reason,
        ]
        lines.append("| " + " | ".join(plain(cell) for cell in cells) + " |")
    return "# The mix\n\n" + "\n".join(lines) + "\n"


def _statistics(rations: list[Ration], scores: Artifact) -> dict[str, Any]:
    return {
        "tokens": round(math.fsum(ration.tokens for ration in rations)),
        "available": round(math.fsum(ration.group.tokens for ration in rations)),
        "epochs_most": max(ration.epochs for ration in rations),
        "left_out": sum(ration.group.documents for ration in rations if not ration.epochs),
        "groups": len(rations),
        "auc": scores.statistics.get("auc"),
        "by_domain": _summed(rations, "domain"),
        "by_source": _summed(rations, "source"),
        "by_bucket": _summed(rations, "bucket"),
    }


def _summed(rations: list[Ration], key: str) -> dict[str, dict[str, float]]:
    """Documents, bytes, available tokens, asked share, mean epochs, training tokens and share, by one key."""
    found: dict[str, list[Ration]] = {}
    for ration in rations:
        found.setdefault(getattr(ration.group, key), []).append(ration)
    table = {}
    for name, some in sorted(found.items()):
        available = math.fsum(ration.group.tokens for ration in some)
        tokens = math.fsum(ration.tokens for ration in some)
        table[name] = {
            "documents": sum(ration.group.documents for ration in some),
            "bytes": sum(ration.group.bytes for ration in some),
            "available": round(available),
            "asked": round(math.fsum(ration.asked for ration in some), 6),
            "epochs": round(tokens / available, 4) if available else 0.0,
            "tokens": round(tokens),
            "share": round(math.fsum(ration.share for ration in some), 6),
        }
    return table
