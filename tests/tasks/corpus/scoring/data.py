"""A small corpus of good and poor text, written through the real Step, with what curation rejected."""

from __future__ import annotations

import random
from pathlib import Path

from model.config import Config
from tasks.artifact import Artifact, Step
from tasks.corpus import records

GOOD = "theorem proof function continuous limit derivative integral because therefore example explains".split()
POOR = "click buy cheap offer login cookie subscribe banner sale menu follow share".split()
PLAIN = "the of and to a in is it on for with this that from by as".split()
HAN = {True: "数学定理证明函数极限", False: "点击购买优惠登录广告"}


class Nothing(Config):
    """No literals."""


def text(good: bool, seed: int, chinese: bool = False) -> str:
    pick = random.Random(f"{good} {seed} {chinese}")
    if chinese:
        return "".join(pick.choices(HAN[good] + "的是在有和", k=260))
    words = PLAIN * 2 + (GOOD if good else POOR) + pick.sample(POOR if good else GOOD, 4)
    return " ".join(pick.choices(words, k=70))


def document(good: bool, seed: int, source: str, domain: str, chinese: bool = False) -> dict[str, str]:
    body = text(good, seed, chinese)
    return {
        "id": records.document_id(body),
        "text": body,
        "source": source,
        "url": f"{source}:file{seed // 3}.html#part{seed % 3}",
        "domain": domain,
        "language": "zh" if chinese else "en",
        "licence": "MIT" if seed % 2 else "CC-BY-4.0",
        "meta": "{}",
    }


def rows() -> dict[str, list[dict[str, str]]]:
    """Documents by part: two sources of good text, one of poor, one in Chinese."""
    return {
        "books/000": [document(True, seed, "books", "knowledge") for seed in range(90)],
        "papers/000": [document(True, 1000 + seed, "papers", "math") for seed in range(60)],
        "papers/001": [document(True, 2000 + seed, "papers", "math") for seed in range(30)],
        "shops/000": [document(False, seed, "shops", "web") for seed in range(90)],
        "zhihu/000": [document(seed % 2 == 0, seed, "zhihu", "web", True) for seed in range(60)],
    }


def rejects() -> list[dict]:
    bad = (document(False, 5000 + seed, "forum", "web") for seed in range(120))
    return [
        records.rejected(row["source"], row["url"], "quality", "too_few_stop_words", 1, row["text"], limit=2)
        for row in bad
    ] + [records.rejected("forum", f"forum:x{n}", "read", "unreadable", "cut short") for n in range(5)]


def publish(root: Path, parts: dict[str, list[dict[str, str]]] | None = None) -> tuple[Step, Artifact]:
    """The corpus as its stage publishes it."""
    parts = rows() if parts is None else parts
    step = Step("corpus", Nothing(), str(root))
    counts: dict[str, dict[str, dict[str, int]]] = {"by_domain": {}, "by_source": {}}
    for key, some in parts.items():
        table = records.table(some, records.DOCUMENT)
        step.put(f"documents/{key}", ".parquet", lambda path, table=table: records.write(path, table), len(some))
        for row in some:
            for name, column in (("by_domain", "domain"), ("by_source", "source")):
                group = counts[name].setdefault(row[column], {"documents": 0, "bytes": 0})
                group["documents"] += 1
                group["bytes"] += len(row["text"].encode())
    dropped = records.table(rejects(), records.REJECTED)
    step.put("rejected/forum/000", ".parquet", lambda path: records.write(path, dropped), dropped.num_rows)
    return step, step.publish({"documents": sum(map(len, parts.values())), **counts})
