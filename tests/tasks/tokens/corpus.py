"""Small inputs of the tokens stage, made through the real Step and Artifact."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tasks.artifact import Artifact, Step
from tests.shards import Nothing

WORDS = [
    "the",
    "loss",
    "of",
    "a",
    "sparse",
    "model",
    "falls",
    "with",
    "more",
    "experts",
    "while",
    "attention",
    "keeps",
    "few",
    "heads",
    "and",
    "long",
    "windows",
]
HAN = "专家越多损失越低注意力头数减半推理更快数据决定上限"


def text_of(domain: str, number: int) -> str:
    """Some plausible text of a domain, deterministic, unlike that of other numbers."""
    words = [WORDS[(number * 7 + k * k) % len(WORDS)] for k in range(30 + number % 50)]
    if domain == "code":
        return f"def step_{number}(x):\n    if x > {number}:\n        return {words}\n    return None\n"
    if domain == "math":
        return "\n".join(f"{number} + {k} = {number + k}; {number} * {k} = {number * k}" for k in range(12))
    if domain == "web":
        return "".join(HAN[(number + k * k) % len(HAN)] for k in range(60)) + f"。{number}\n"
    return " ".join(words).capitalize() + f". ({number})\n\n" + " ".join(reversed(words))


def record(text: str, domain: str, source: str = "made") -> dict[str, str]:
    return {
        "id": xxhash.xxh3_128_hexdigest(text.encode()),
        "text": text,
        "source": f"{source}-{domain}",
        "url": f"made:{domain}",
        "domain": domain,
        "language": "zh" if domain == "web" else "en",
        "licence": "CC0-1.0",
        "meta": "{}",
    }


def documents(each: int) -> dict[str, list[dict[str, str]]]:
    return {
        domain: [record(text_of(domain, number), domain) for number in range(each)]
        for domain in ("code", "knowledge", "math", "web")
    }


def rewrites_of(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    made = []
    for row in rows:
        made.append(record(f"In other words: {row['text']}", row["domain"], "made") | {"source_id": row["id"]})
    return made


def publish(root: Path, name: str, group: str, parts: dict[str, list[dict[str, str]]]) -> tuple[Step, Artifact]:
    """An artifact of documents or rewrites, one Parquet part for each entry."""
    step = Step(name, Nothing(), str(root))
    by_domain: dict[str, dict[str, int]] = {}
    for key, rows in parts.items():
        names = [*record("", ""), *(["source_id"] if group == "rewrites" else [])]
        table = pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in names]))
        step.put(f"{group}/{key}", ".parquet", partial(pq.write_table, table), table.num_rows)
        for row in rows:
            counts = by_domain.setdefault(row["domain"], {"documents": 0, "bytes": 0})
            counts["documents"] += 1
            counts["bytes"] += len(row["text"].encode())
    return step, step.publish({"by_domain": by_domain, "documents": sum(len(rows) for rows in parts.values())})


PIECES = [
    "def f(x):\n",
    "    ",
    "\t",
    "\r\n",
    "\n",
    " ",
    "  ",
    "12345",
    "损失",
    "loss",
    "é",
    "e\u0301",
    "🙂",
    "==",
    "\u2028",
    "\x1c",
    "\x85",
    "\u3000",
    "[EOS]",
    "<|im_end|>",
    "don't",
    "ＡＢ",
    "١٢٣",
]
"""What texts for a tokenizer are put together of."""
