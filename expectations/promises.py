"""What a corpus says of itself, held against its documents by other means than it was made by: its policy lets every
licence in, no near duplicate above its threshold is left, what it replaces is gone.

A promise is judged where the corpus's own configuration makes it: one that was never asked for personal data has not
broken its word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import xxhash

from expectations.config import CorpusGate
from expectations.licence import allowed
from expectations.personal import personal
from expectations.rules import Rule, Table, few, never
from expectations.similarity import Sample


class Promises:
    """Looks at every batch of documents once and keeps a sample of bounded size."""

    def __init__(self, gate: CorpusGate, manifest: Mapping[str, Any], documents: int) -> None:
        """`manifest`: the corpus's, whose `config` makes the promises; `documents`: how many there are to see."""
        config = manifest.get("config") or {}
        near = (config.get("dedup") or {}).get("near") or {}
        self.gate = gate
        self.share = min(1.0, gate.sample / max(documents, 1))
        stated = (manifest.get("statistics") or {}).get("licence_patterns")
        self.policy: list[str] = list(stated or config.get("licences") or ())
        self.kinds = frozenset(((config.get("safety") or {}).get("pii") or {}).get("kinds") or ()) & {"EMAIL", "KEY"}
        self.threshold = float(near.get("threshold") or 0.0) if near.get("enabled", True) else 0.0
        self.near = Sample(int(near.get("ngram") or 5), self.share) if self.threshold else None
        self.asked = 0
        self.left: list[dict[str, str]] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Look at a batch (`id`, `text`, `source`, `url`)."""
        if self.near:
            self.near.add(frame)
        if self.kinds:
            for name, text, source, url in frame.select("id", "text", "source", "url").iter_rows():
                if self._drawn(str(name)):
                    self.asked += 1
                    if found := personal(text or "", self.kinds):
                        self.left.append({"id": name, "source": source, "url": url, "found": found})

    def _drawn(self, name: str) -> bool:
        return xxhash.xxh3_64_intdigest(name.encode()) < self.share * 2.0**64

    def tables(self, fingerprint: str, groups: pl.DataFrame) -> list[Table]:
        """The metrics with their rules; none where nothing is promised."""
        found = [self._licences(groups)] if self.policy else []
        row: dict[str, Any] = {"corpus": fingerprint}
        rules: list[Rule] = []
        if self.near:
            rules.append(self._near(row, self.near))
        if self.kinds:
            rules.append(self._personal(row))
        if rules:
            found.append(Table("sample", "a sample of the documents", "corpus", pl.DataFrame([row]), tuple(rules)))
        return found

    def _near(self, row: dict[str, Any], sample: Sample) -> Rule:
        pairs = sample.pairs(self.threshold)
        row["compared"] = len(sample.ids)
        row["near_duplicates_share"] = pairs["other"].n_unique() / max(len(sample.ids), 1)
        return few(
            f"Few documents have a near duplicate left at {self.threshold:g}",
            "near_duplicates_share",
            "what occurs in several versions is trained on several times",
            "compare the two under `examples`: check that deduplication runs over all sources together",
            self.gate.near_duplicates,
            examples=pairs.sort("similarity", "id", descending=[True, False]).lazy(),
        )

    def _personal(self, row: dict[str, Any]) -> Rule:
        row["looked_at"] = self.asked
        row["personal_share"] = len(self.left) / max(self.asked, 1)
        left = pl.DataFrame(self.left, schema=dict.fromkeys(("id", "source", "url", "found"), pl.String))
        return few(
            "Few documents have an e-mail address or a key left",
            "personal_share",
            "a model says by heart what it has read, and whose it is does not matter to it",
            "look at what was found: correct the pattern under `corpus.safety.pii` that should have replaced it",
            self.gate.personal,
            examples=left.sort("id").lazy(),
        )

    def _licences(self, groups: pl.DataFrame) -> Table:
        frame = groups.group_by("licence").agg(
            pl.col("documents", "bytes").sum(), pl.col("source").unique().sort().str.join(", ")
        )
        verdicts = [allowed(licence, self.policy) for licence in frame["licence"]]
        frame = frame.with_columns(
            refused=pl.when(pl.Series(verdicts, dtype=pl.Boolean)).then(0).otherwise(pl.col("documents"))
        ).sort("bytes", "licence", descending=[True, False])
        rule = never(
            "Every document's licence is one that the policy lets in",
            "refused",
            "nobody may release a model that was trained on what may not enter",
            "leave the source out, or allow its licence under `corpus.licences` if it may enter",
            unit="documents",
        )
        return Table("licences", "the corpus by licence", "licence", frame, (rule,))
