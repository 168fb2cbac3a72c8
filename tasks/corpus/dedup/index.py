"""The map side: one compact file per partition that the reduce side needs no text beside.

Per document: id, size, url, band keys, sketch and shingles; per paragraph, line and fingerprint: its hash, the
document's rank and where it stands. Keys are sorted within each run of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.corpus.codepoints import tokens
from tasks.corpus.dedup import passages, substring
from tasks.corpus.dedup.config import DedupConfig
from tasks.corpus.dedup.minhash import sign_tokens
from tasks.corpus.dedup.partitions import ids_of
from tasks.corpus.dedup.passages import Fingerprints
from tasks.corpus.dedup.store import StoreWriter
from tasks.corpus.records import is_code

RUN_DOCUMENTS = 1 << 14
"""Documents of a run: some 50 MB are held before they are written."""
_BATCH = 512


class IndexWriter:
    """Takes the candidate rows of one partition in their order and writes its index."""

    def __init__(self, config: DedupConfig, embed: Callable[[Sequence[str]], np.ndarray] | None = None) -> None:
        """embed: int8 vectors of texts, for semantic deduplication; by default the packaged model."""
        self._config = config
        self._embed = embed
        self._writer = StoreWriter()
        self._held: dict[str, list[np.ndarray]] = {}
        self._in_run = 0
        self.rows = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Index some candidate rows (id, text, url, meta), after those before them."""
        at = 0
        while at < len(rows):
            batch = rows[at : at + min(_BATCH, RUN_DOCUMENTS - self._in_run)]
            self._take(batch)
            at += len(batch)
            if self._in_run == RUN_DOCUMENTS:
                self._flush()

    def write(self, path: Path) -> None:
        """Finish the index at `path`; the writer is spent."""
        if self._in_run:
            self._flush()
        self._writer.write(path, rows=self.rows)

    def _take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        texts = [row["text"] for row in rows]
        numbers = np.arange(self.rows, self.rows + len(rows), dtype=np.uint32)
        ids = ids_of(row["id"] for row in rows)
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        urls = [row["url"].encode("utf-8", "surrogatepass") for row in rows]
        ranks = rank(sizes, ids)
        self._hold(numbers=numbers, ids=ids, sizes=sizes)
        self._hold(urls=np.frombuffer(b"".join(urls), np.uint8), url_counts=np.array([len(url) for url in urls]))
        config = self._config
        found = tokens(texts, places=config.passages.enabled or config.substring.enabled)
        if config.near.enabled:
            signed = sign_tokens(found.hashes, found.starts, config.near)
            counts = np.diff(signed.starts)
            worded = np.flatnonzero(counts)  # a text without a word is like no other
            self._hold(
                shingles=signed.shingles,
                shingle_counts=counts,
                sketches=signed.sketches,
                near_keys=signed.keys[worded].reshape(-1),
                near_rows=np.repeat(numbers[worded], signed.keys.shape[1]),
            )
        # A paragraph of a program is part of a function: without it the rest may not even be parsed.
        prose = np.array([not is_code(row["meta"]) for row in rows], bool)
        if config.passages.enabled:
            shown = [text if wanted else "" for text, wanted in zip(texts, prose, strict=True)]
            self._hold_places("passages", passages.fingerprints(shown, found, config.passages), numbers, ranks)
        if config.substring.enabled:
            self._hold_places("substring", substring.fingerprints(found, prose, config.substring), numbers, ranks)
        if config.semantic.enabled:
            self._hold(vectors=self._vectors(texts))
        self._in_run += len(rows)
        self.rows += len(rows)

    def _hold_places(self, method: str, found: Fingerprints, numbers: np.ndarray, ranks: np.ndarray) -> None:
        arrays = {
            "keys": found.keys,
            "rows": numbers[found.documents],
            "ranks": ranks[found.documents],
            "begins": found.begins,
            "ends": found.ends,
        }
        self._hold(**{f"{method}_{name}": array for name, array in arrays.items()})

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        if self._embed is None:
            from tasks.corpus.dedup.semantic import embedder

            self._embed = embedder()
        return self._embed(texts)

    def _hold(self, **arrays: np.ndarray) -> None:
        for name, array in arrays.items():
            self._held.setdefault(name, []).append(array)

    def _flush(self) -> None:
        run = {name: np.concatenate(arrays) for name, arrays in self._held.items()}
        for counts in [name for name in run if name.endswith("_counts")]:
            run[counts.replace("_counts", "_starts")] = np.concatenate([[0], np.cumsum(run.pop(counts))])
        order = np.lexsort([run["ids"][:, 1], run["ids"][:, 0]])
        run |= {"exact_keys": run["ids"][order, 0], "exact_lows": run["ids"][order, 1]}
        run["exact_rows"] = run["numbers"][order]
        run["first"] = run.pop("numbers")[:1]
        for method in ("near", "passages", "substring"):
            if f"{method}_keys" in run:
                order = np.argsort(run[f"{method}_keys"], kind="stable")
                for name in [name for name in run if name.startswith(f"{method}_")]:
                    run[name] = run[name][order]
        self._writer.append(run)
        self._held.clear()
        self._in_run = 0


def rank(sizes: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """uint64 [N]: smaller stays before larger: the longest, of equals that of the smallest id. 0 is free."""
    room = np.uint64((1 << 24) - 1)
    short = room - np.minimum(sizes.astype(np.uint64), room - np.uint64(1))
    return (short << np.uint64(40)) | (ids[:, 0] >> np.uint64(24))
