"""The layout is what docs/tokens.md says: the reader printed there reads what the stage wrote."""

from __future__ import annotations

import hashlib
import json
import random
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.artifact import Artifact, Step
from tasks.tokens import table
from tasks.tokens.config import TokensConfig
from tasks.tokens.shards import build
from tasks.tokens.writing import INDEX
from training.shards import TokenShards
from training.token_plan import INDEX_ROW_BYTES, TABLE_ROW_BYTES

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
    count = 3 * table.ROW_GROUP
    starts = [7 * number for number in range(count)]
    columns = [starts, [start + 7 for start in starts], [f"{start:x}" for start in starts]]
    columns += [[value] * count for value in ("books", "CC0-1.0", False, None)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INDEX, strict=True)]
    table.write_index(pa.Table.from_arrays(arrays, schema=INDEX), tmp_path / "index.parquet")
    file = pq.ParquetFile(tmp_path / "index.parquet")
    assert file.schema_arrow == INDEX
    spans = [
        (group.column(0).statistics.min, group.column(1).statistics.max)
        for group in (file.metadata.row_group(number) for number in range(file.num_row_groups))
    ]
    group = 7 * table.ROW_GROUP
    assert spans == [(0, group), (group, 2 * group), (2 * group, 3 * group)]


def test_rows_take_the_room_that_the_plan_says(tmp_path: Path) -> None:
    """Full shards and documents with made-up hashes, which are as hard to compress as real ones."""
    draw = random.Random(0)

    def name(bits: int) -> str:
        return f"{draw.getrandbits(bits):0{bits // 4}x}"

    hashes = "sha256", "index_sha256", "blocks_sha256"
    shards = [
        {"key": f"train/web/books/{number:06d}-000", "split": "train", "domain": "web", "source": "books"}
        | {"tokens": tokens, "documents": 268_000 + draw.randrange(1000), "bytes": 4 * tokens}
        | {"index_bytes": 10_000_000 + draw.randrange(1_000_000), **{column: name(256) for column in hashes}}
        for number, tokens in enumerate((1 << 28) - draw.randrange(1000) for _ in range(20_000))
    ]
    table.write_table(shards, tmp_path / "shards.parquet")
    assert (tmp_path / "shards.parquet").stat().st_size / len(shards) == pytest.approx(TABLE_ROW_BYTES, rel=0.15)
    ends = list(accumulate(draw.randrange(1, 2001) for _ in range(table.ROW_GROUP)))
    columns = [[0, *ends[:-1]], ends, [name(128) for _ in ends]]
    columns += [[value] * len(ends) for value in ("books", "CC0-1.0", False, None)]
    index = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, INDEX, strict=True)], schema=INDEX)
    table.write_index(index, tmp_path / "index.parquet")
    assert (tmp_path / "index.parquet").stat().st_size / len(ends) == pytest.approx(INDEX_ROW_BYTES, rel=0.1)
