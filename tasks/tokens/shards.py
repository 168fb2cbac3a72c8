"""The tokens stage: corpus and accepted rewrites to uint32 shards with a document index, by split, domain and source.

A batch is some consecutive parts of the corpus or of the rewrites. Its documents are tokenised in order and written as
shards of their own, so that batches are independent: of each other, of the number of workers, and of how often the run
was killed. Where a mix says so a training document is written several times, or not at all; further copies come when
every document of the batch has been written once, so that they do not stand side by side. Layout and invariants:
docs/tokens.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from model.vocabulary import EOS, special_ids
from tasks.accounts import Balance, rows_of
from tasks.artifact import Artifact, ArtifactError, Part, Step
from tasks.corpus.executor import Executor, Serial
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from tasks.progress import Progress
from tasks.tokens.batches import COUNTS, SPLITS, PartBatch, is_heldout, write_batch
from tasks.tokens.config import TokensConfig
from tasks.tokens.table import Place, publish
from tasks.tokens.tokenizer import sha256_of

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)


def batches_of(config: TokensConfig, corpus: Artifact, rewrites: Artifact) -> list[PartBatch]:
    """Every batch, in order; a function of the inputs' manifests alone."""
    batches: list[PartBatch] = []
    for artifact, group in ((corpus, "documents"), (rewrites, "rewrites")):
        parts: list[Part] = []
        held = 0
        for part in artifact.parts(group):
            if parts and held + part.bytes > config.batch_bytes:
                batches.append(PartBatch(len(batches), group, tuple(parts)))
                parts, held = [], 0
            parts.append(part)
            held += part.bytes
        if parts:
            batches.append(PartBatch(len(batches), group, tuple(parts)))
    return batches


def keys_of(
    config: TokensConfig, corpus: Artifact, rewrites: Artifact, group: str, part: Part, row: Mapping[str, Any]
) -> str:
    """What the keys of the shards begin with that hold a document, if any do: its `row` lies in a `part` of the `group`
    `documents` of the corpus or `rewrites`. Needs no shard and no index."""
    (number,) = [
        batch.number for batch in batches_of(config, corpus, rewrites) if batch.group == group and part in batch.parts
    ]
    split = SPLITS[is_heldout(config, str(row.get("source_id") or row["id"]))]
    return f"{Place(split, str(row['domain']), str(row['source'])).folder}/{number:06d}-"


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: tokenise corpus and rewrites into shards as the mix says, where `execution` says."""
    with workers_of(execution) as workers:
        return build(
            *(step, step.input("corpus"), step.input("rewrites"), step.input("tokenizer"), step.input("mix")),
            executor=workers,
        )


def build(
    step: Step,
    corpus: Artifact,
    rewrites: Artifact,
    tokenizer: Artifact,
    mix: Artifact | None = None,
    executor: Executor | None = None,
) -> Artifact:
    """The tokens stage: write every batch that no record has, publish table and statistics. `mix` says how often each
    document is written; without one, once. The bytes do not depend on the executor."""
    config = step.config
    assert isinstance(config, TokensConfig)
    batches = batches_of(config, corpus, rewrites)
    if not batches:
        raise ArtifactError(f"{corpus.uri} lists no documents: there is nothing to tokenise")
    _same_tokenizer(step, tokenizer)
    lacking = set(step.missing(batch.key for batch in batches))
    left = {batch.key: batch for batch in batches if batch.key in lacking}
    jobs = {
        key: (step, batch, rewrites if batch.group == "rewrites" else corpus, tokenizer, mix)
        for key, batch in left.items()
    }
    total, rest = (sum(batch.bytes for batch in some) / 1e6 for some in (batches, left.values()))
    with Progress("tokens", total, "MB", first=total - rest) as progress:
        for key, _ in (executor or Serial()).map(write_batch, jobs):
            progress.advance(left[key].bytes / 1e6, f"{left[key].group}, {len(batches)} batches")
    records = [part.statistics for part in step.parts(batch.key for batch in batches)]
    shards = [row for record in records for row in record["shards"]]
    read = rows_of(part for batch in batches for part in batch.parts)
    return publish(step, shards, statistics(records, tokenizer), balance(records, read))


def balance(records: Sequence[Mapping[str, Any]], read: int) -> Balance:
    """What became of the documents that were `read`: the rows of the shards' indices but for further copies, those
    without text, and those that the mix gives no copy."""
    streams = [stream for record in records for stream in record["streams"]]
    return Balance(
        "documents",
        taken=read,
        out=sum(row["documents"] for record in records for row in record["shards"])
        - sum(stream["copies"] - stream["documents"] for stream in streams),
        rejected=sum(record["empty"] for record in records),
        dropped=sum(record["left_out"] for record in records),
    )


def _same_tokenizer(step: Step, tokenizer: Artifact) -> None:
    """Note whose tokens these are before the first is written; ArtifactError where an earlier attempt had others."""
    begun = step.part("tokenizer")
    if begun is None:
        used = {"sha256": sha256_of(tokenizer)}
        step.put("tokenizer", ".json", lambda path: path.write_text(json.dumps(used) + "\n"), statistics=used)
    elif begun.statistics["sha256"] != sha256_of(tokenizer):
        raise ArtifactError(
            f"{step.uri} was begun with another tokenizer.json than {tokenizer.uri} has: delete {step.uri} and run the "
            "tokens stage again"
        )


def statistics(records: list[dict[str, Any]], tokenizer: Artifact) -> dict[str, Any]:
    """The stage's statistics, summed over the records of its batches. `tokens`, `documents`, `copies`, `by_domain`,
    `by_source` and `rewrites` count the training split, tokens and bytes with every copy; `heldout` has the held-out
    one by domain, `left_out` the documents that the mix gives no copy."""
    tables: dict[str, dict[str, dict[str, Any]]] = {"by_domain": {}, "by_source": {}, "heldout": {}, "rewrites": {}}
    for record in records:
        for stream in record["streams"]:
            counts = {name: stream[name] for name in COUNTS}
            if stream["split"] == "heldout":
                _add(tables["heldout"], stream["domain"], counts)
                continue
            _add(tables["by_domain"], stream["domain"], counts)
            _add(tables["by_source"], stream["source"], counts)["licence"] = stream["licence"]
            if stream["rewrites"]:
                _add(tables["rewrites"], "all", counts)
    for rows in tables.values():
        for counts in rows.values():
            counts["bytes_per_token"] = round(counts["bytes"] / counts["tokens"], 4)
    train = tables["by_domain"].values()
    vocabulary = tokenizer.statistics["vocabulary"]
    splits = [row["split"] for record in records for row in record["shards"]]
    return {
        **{name: sum(counts[name] for counts in train) for name in ("tokens", "documents", "copies")},
        "by_domain": tables["by_domain"],
        "by_source": tables["by_source"],
        "rewrites": tables["rewrites"].get("all", {"documents": 0, "copies": 0, "tokens": 0, "bytes": 0}),
        "heldout": tables["heldout"],
        **{name: sum(record[name] for record in records) for name in ("empty", "left_out")},
        "shards": {split: splits.count(split) for split in SPLITS},
        "vocabulary": vocabulary,
        "end_of_document": special_ids(vocabulary)[EOS],
        "tokenizer": tokenizer.fingerprint,
        "tokenizer_sha256": sha256_of(tokenizer),
    }


def _add(table: dict[str, dict[str, Any]], name: str, counts: dict[str, int]) -> dict[str, Any]:
    total = table.setdefault(name, dict.fromkeys(counts, 0))
    for key, value in counts.items():
        total[key] += value
    return total
