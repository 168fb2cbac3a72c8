"""The layout is what docs/tokens.md says: the reader printed there reads what the stage wrote."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Step
from tasks.tokens.config import TokensConfig
from tasks.tokens.shards import build
from training.shards import TokenShards

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tokens.md"


def test_the_reader_of_the_page_reads_every_document(
    tmp_path: Path,
    corpus: tuple[Step, Artifact],
    rewrites: tuple[Step, Artifact],
    learned: tuple[Step, Artifact],
) -> None:
    config = TokensConfig(heldout_fraction=0.2, shard_bytes=4096, batch_bytes=20_000)
    step = Step("tokens", config, str(tmp_path), (corpus[0], rewrites[0], learned[0]))
    uri = build(step, corpus[1], rewrites[1], learned[1]).uri
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    reader: dict[str, Any] = {}
    exec(code, reader)  # noqa: S102 - our own page
    shards = TokenShards(uri)
    for split in ("train", "heldout"):
        read = [(name, source, tokens.tolist()) for name, source, _, tokens in reader["documents"](uri, split)]
        assert len(read) > 10
        expected = [
            (row["id"], row["source"], shard.tokens_T[row["start"] : row["end"]].tolist())
            for stream in shards.streams(split).values()
            for shard in stream
            for row in pa.Table.from_batches(shard.rows()).to_pylist()
        ]
        assert read == expected


def test_the_identity_is_the_hash_that_the_page_tells(
    tmp_path: Path,
    corpus: tuple[Step, Artifact],
    rewrites: tuple[Step, Artifact],
    learned: tuple[Step, Artifact],
) -> None:
    step = Step("tokens", TokensConfig(), str(tmp_path), (corpus[0], rewrites[0], learned[0]))
    artifact = build(step, corpus[1], rewrites[1], learned[1])
    rows = pq.read_table(artifact.file("shards")).to_pylist()
    found = hashlib.sha256()
    for name in ("key", "source", "tokens", "documents", "sha256"):
        found.update(json.dumps([name, [row[name] for row in rows]], ensure_ascii=False).encode())
    assert TokenShards(artifact.uri).content == found.hexdigest()


def test_a_lookup_reads_one_group_of_an_index(tmp_path: Path) -> None:
    """An index of many documents is written in groups whose statistics tell their spans."""
    from tasks.tokens.table import ROW_GROUP, write_index
    from tasks.tokens.writing import INDEX

    count = 3 * ROW_GROUP
    starts = [7 * number for number in range(count)]
    columns = [starts, [start + 7 for start in starts], [f"{start:x}" for start in starts]]
    columns += [[value] * count for value in ("books", "CC0-1.0", False, None)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INDEX, strict=True)]
    write_index(pa.Table.from_arrays(arrays, schema=INDEX), tmp_path / "index.parquet")
    file = pq.ParquetFile(tmp_path / "index.parquet")
    assert file.schema_arrow == INDEX
    spans = [
        (group.column(0).statistics.min, group.column(1).statistics.max)
        for group in (file.metadata.row_group(number) for number in range(file.num_row_groups))
    ]
    assert spans == [(0, 7 * ROW_GROUP), (7 * ROW_GROUP, 14 * ROW_GROUP), (14 * ROW_GROUP, 21 * ROW_GROUP)]
