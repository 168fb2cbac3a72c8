"""Small artifacts that are right in every respect, written as the stages write them, and ways to plant one defect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import xxhash
from pydantic import Field

from expectations.config import CorpusGate, RewritesGate, TokensGate
from expectations.gate import GateFailed
from model.config import Config
from model.vocabulary import EOS, special_ids
from tasks.artifact import Step
from tests.shards import publish_shards

DOMAINS = ("code", "knowledge", "math", "web")
VOCABULARY = 1000
END = special_ids(VOCABULARY)[EOS]

CORPUS_GATE = CorpusGate(
    documents=40,
    bytes=5_000,
    sources=4,
    domains=dict.fromkeys(DOMAINS, 0.1),
    languages={"en": 0.3, "zh": 0.01},
    characters=(20, 10_000),
    median_characters=(40, 1_000),
    rejected=(0.05, 0.5),
)
REWRITES_GATE = RewritesGate(documents=4, segments=10, acceptance_rate=(0.2, 0.95), copies=0.0, group=12)
TOKENS_GATE = TokensGate(
    tokens=500, heldout_tokens=20, heldout_share=(0.01, 0.5), bytes_per_token=dict.fromkeys(DOMAINS, (1.8, 7.0))
)


class Plain(Config):
    """The configuration of a stage whose own configuration does not matter here."""

    number: int = 0
    """Makes another identity."""


class Promise(Config):
    """What a corpus may promise in its configuration, as curation's own does."""

    licences: tuple[str, ...] = ()
    """Policy."""
    dedup: dict[str, dict[str, float]] = Field(default_factory=dict)
    """`near`: threshold and ngram."""
    safety: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    """`pii`: the kinds that are replaced."""


class Rewriting(Config):
    """Of the rewrites' configuration what their gate reads."""

    alignment: dict[str, float | tuple[float, float]] = Field(
        default_factory=lambda: {"length": (0.5, 1.8), "cosine": 0.75}
    )
    """Thresholds."""


THRESHOLDS = {
    "length": {
        "field": "rephrase.alignment.length",
        "least": 0.5,
        "most": 1.8,
        "by_style": {"notes": [0.4, 2.5]},
        "by_detail": {"concise": [0.4, 1.1]},
    },
    "cosine": {"field": "rephrase.alignment.cosine", "least": 0.75, "most": None},
}


def key(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())


def documents() -> pl.DataFrame:
    """48 documents, 12 a domain, English but for one knowledge source in Chinese."""
    rows = []
    for domain in DOMAINS:
        for number in range(12):
            chinese = domain == "knowledge" and number % 3 == 0
            text = f"Document {number} of {domain}: it has {number + 7} apples and a sentence of its own. " * 3
            text = f"第{number}篇文章，关于{domain}，内容各不相同。" * 10 if chinese else text
            rows.append(
                {
                    "id": key(text),
                    "text": text,
                    "source": f"{domain}-{'zh' if chinese else 'en'}",
                    "url": f"https://example.org/{domain}/{number}",
                    "domain": domain,
                    "language": "zh" if chinese else "en",
                    "licence": "CC-BY-4.0",
                    "meta": "{}",
                }
            )
    return pl.DataFrame(rows)


def rejected() -> pl.DataFrame:
    columns = ("id", "source", "url", "stage", "reason", "value", "text_head")
    row = dict(
        zip(columns, ("ab", "web-en", "https://example.org/x", "quality", "too_short", "12", "Hi."), strict=True)
    )
    unreadable = {"id": "f" * 32, "url": "https://example.org/cut.gz", "stage": "read", "reason": "unreadable"}
    return pl.DataFrame([*(row | {"id": f"{number:032x}"} for number in range(12)), row | unreadable])


def write(step: Step, tables: dict[str, pl.DataFrame], statistics: dict) -> Step:
    for name, frame in tables.items():
        step.put(name, ".parquet", frame.write_parquet, rows=frame.height)
    step.publish(statistics)
    return step


Change = Callable[[pl.DataFrame], pl.DataFrame]


def corpus(
    root: Path,
    change: Change | None = None,
    reject: Change | None = None,
    config: Config | None = None,
    **stated: int,
) -> Step:
    """A corpus of two files; `change` alters the documents and `reject` the rejects before they are written, `stated`
    the statistics after they were counted. `config` holds what it promises."""
    frame, rejects = documents(), rejected()
    frame = change(frame) if change else frame
    rejects = reject(rejects) if reject else rejects
    statistics = {
        "documents": frame.height,
        "bytes": int(frame["text"].str.len_bytes().sum()),
        "read": frame.height + rejects.height,
        "rejected": rejects.height - 1,
        "unreadable": 1,
    } | stated
    half = frame.height // 2
    tables = {"documents/0": frame.head(half), "documents/1": frame.tail(frame.height - half), "rejected/0": rejects}
    return write(Step("corpus", config or Plain(), str(root)), tables, statistics)


def segments() -> pl.DataFrame:
    """Two segments each of the twelve mathematical and the eight English knowledge documents, every fourth refused."""
    rows = []
    frame = documents().filter(pl.col("domain").is_in(["knowledge", "math"]), pl.col("language") == "en")
    for place, document in enumerate(frame.iter_rows(named=True)):
        for index in range(2):
            source = document["text"][: len(document["text"]) // 2]
            refused = (place + index) % 4 == 3
            rows.append(
                {
                    "source_id": document["id"],
                    "style": "notes" if document["domain"] == "math" else "explain",
                    "detail": "",
                    "domain": document["domain"],
                    "index": index,
                    "attempt": 0,
                    "candidate": 0,
                    "prompt_hash": "00",
                    "engine": "engine",
                    "model": "model",
                    "seed": 0,
                    "source_text": source,
                    "rewrite_text": "Something else." if refused else f"In other words: {source}",
                    "accepted": not refused,
                    "reason": "numbers" if refused else "",
                    "scores": {"length": 1.1, "numbers": 1.0, "cosine": None if refused else 0.9, "judge": None},
                }
            )
    return pl.DataFrame(rows)


def rewritten() -> pl.DataFrame:
    origin = documents().rename({"id": "source_id", "text": "original"})
    accepted = segments().filter("accepted").group_by("source_id", "style", maintain_order=True)
    frame = accepted.agg(text=pl.col("rewrite_text").str.join("\n")).join(origin, on="source_id")
    ids = pl.Series("id", [key(text) for text in frame["text"]])
    return frame.drop("original").with_columns(ids).select("id", pl.exclude("id"))


def rewrites(
    root: Path, change: Change | None = None, segment: Change | None = None, of: Step | None = None, **stated: object
) -> Step:
    frame, parts = rewritten(), segments()
    frame = change(frame) if change else frame
    parts = segment(parts) if segment else parts
    accepted = int(parts["accepted"].sum())
    counts = {"documents": frame.height, "segments": parts.height, "accepted": accepted}
    statistics = counts | {"thresholds": THRESHOLDS} | stated
    step = Step("rewrites", Rewriting(), str(root), (of or corpus(root),))
    return write(step, {"rewrites/0": frame, "segments/0": parts}, statistics)


def shards() -> dict[str, tuple[np.ndarray, pl.DataFrame]]:
    """`split/domain/source/number` -> tokens and index; the last two documents of a domain are held out."""
    found = {}
    for domain in DOMAINS:
        frame = documents().filter(pl.col("domain") == domain)
        if domain == "math":
            held = set(frame["id"][-2:])
            extra = rewritten().filter(pl.col("domain") == "math", ~pl.col("source_id").is_in(held))
            train = pl.concat([frame[:-2].with_columns(source_id=pl.lit(None, pl.String)), extra], how="diagonal")
        else:
            train = frame[:-2].with_columns(source_id=pl.lit(None, pl.String))
        for split, part in (("train", train), ("heldout", frame[-2:].with_columns(source_id=pl.lit(None, pl.String)))):
            pieces, rows, start = [], [], 0
            for document in part.iter_rows(named=True):
                body = np.frombuffer(document["text"].encode()[::4], np.uint8).astype("<u4") + 5
                pieces += [body, np.array([END], "<u4")]
                rows.append(
                    {
                        "id": document["id"],
                        "source_id": document["source_id"],
                        "start": start,
                        "end": start + len(body) + 1,
                        "bytes": len(document["text"].encode()),
                    }
                )
                start += len(body) + 1
            found[f"{split}/{domain}/made/0"] = (np.concatenate(pieces), pl.DataFrame(rows))
    return found


def tokens(
    root: Path,
    change: Callable[[dict[str, tuple[np.ndarray, pl.DataFrame]]], None] | None = None,
    stated: Callable[[dict], None] | None = None,
) -> Step:
    source = corpus(root)
    step = Step("tokens", Plain(), str(root), (source, rewrites(root, of=source)))
    parts = shards()
    if change:
        change(parts)
    statistics: dict = {"vocabulary": VOCABULARY, "end_of_document": END, "tokens": 0, "by_domain": {}, "heldout": {}}
    for name, (body, index) in parts.items():
        split, domain, _, _ = name.split("/")
        ratio = float(index["bytes"].sum()) / max(len(body), 1)
        counts = {"tokens": len(body), "documents": index.height, "bytes_per_token": ratio}
        statistics["by_domain" if split == "train" else "heldout"][domain] = counts
        statistics["tokens"] += len(body) if split == "train" else 0
    if stated:
        stated(statistics)
    publish_shards(
        step, {name: (body, index.drop("bytes").to_arrow()) for name, (body, index) in parts.items()}, statistics
    )
    return step


def failures(failure: GateFailed) -> set[str]:
    """The metrics that failed, as `table.column`."""
    return {
        f"{expectation['table']}.{expectation['column']}"
        for expectation in failure.statistics["expectations"]
        if not expectation["success"]
    }
