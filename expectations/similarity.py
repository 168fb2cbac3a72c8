"""Near duplicates that deduplication should have found, recomputed apart from it: exact Jaccard similarity on a sample.

A sample of documents drawn one by one would hardly ever hold both of a pair. This one takes or leaves documents by
their smallest shingle hash, which two documents of similarity J have in common with probability J (Broder 1997): a
pair at 0.8 comes in together four times in five as often as each of the two alone.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

# Words of letters and digits, single Han characters.
TOKEN = r"[\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}]|[[\p{L}\p{N}]--[\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}]]+"
SKETCH = 16
"""Smallest shingles of a document that propose pairs (bottom-k sketch, Broder 1997). Of a pair's smallest ones each is
in both with probability J: all 16 miss a pair at 0.8 once in 10^11."""
COMMON = 50
"""Documents of one shingle that are all compared with each other; of more, each with the next."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Sample:
    """The shingle sets of a share of the documents that are shown to it."""

    def __init__(self, ngram: int, share: float) -> None:
        """`ngram` tokens are a shingle; of all documents about `share` is kept in memory."""
        self.ngram = ngram
        self.bound = min(share, 1.0) * 2.0**64
        self.ids: list[str] = []
        self.shingles: list[np.ndarray] = []

    def add(self, frame: pl.DataFrame) -> None:
        """Look at a batch of documents (`id`, `text`)."""
        tokens = frame["text"].fill_null("").str.to_lowercase().str.extract_all(TOKEN)
        lengths = tokens.list.len().to_numpy().astype(np.int64)
        hashes = _hashes(tokens)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        windows = _windows(hashes, self.ngram)
        for at in np.flatnonzero(lengths >= self.ngram):
            own = windows[starts[at] : ends[at] - self.ngram + 1]
            if float(_mixed(own.min())) < self.bound:
                self.ids.append(str(frame["id"][int(at)]))
                self.shingles.append(np.unique(own))

    def pairs(self, threshold: float) -> pl.DataFrame:
        """`id`, `other`, `similarity` of every pair of the sample that is at least `threshold` similar."""
        rows = []
        for one, other in sorted(self._proposed()):
            shared = len(np.intersect1d(self.shingles[one], self.shingles[other], assume_unique=True))
            similarity = shared / (len(self.shingles[one]) + len(self.shingles[other]) - shared)
            if similarity >= threshold:
                rows.append({"id": self.ids[one], "other": self.ids[other], "similarity": round(similarity, 4)})
        return pl.DataFrame(rows, schema={"id": pl.String, "other": pl.String, "similarity": pl.Float64})

    def _proposed(self) -> set[tuple[int, int]]:
        """Pairs that share one of their smallest shingles."""
        if not self.shingles:
            return set()
        values = np.concatenate([own[:SKETCH] for own in self.shingles])
        owners = np.repeat(np.arange(len(self.shingles)), [min(len(own), SKETCH) for own in self.shingles])
        order = np.argsort(values, kind="stable")
        values, owners = values[order], owners[order]
        borders = np.flatnonzero(np.diff(values)) + 1
        found: set[tuple[int, int]] = set()
        for group in np.split(owners, borders):
            members = group.tolist()
            found.update(combinations(members, 2) if len(members) <= COMMON else pairwise(members))
        return found


def _hashes(tokens: pl.Series) -> np.ndarray:
    """xxh3-64 of every token, in order; each different one is hashed once."""
    flat = tokens.explode().drop_nulls().to_arrow()
    coded = pc.dictionary_encode(flat)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    words = np.array([xxhash.xxh3_64_intdigest(word.encode()) for word in coded.dictionary.to_pylist()], np.uint64)
    return words[coded.indices.to_numpy()] if len(words) else words


def _windows(hashes: np.ndarray, ngram: int) -> np.ndarray:
    """A hash of every run of `ngram` tokens, over the borders of documents too."""
    rolled = np.zeros(max(len(hashes) - ngram + 1, 0), np.uint64)
    with np.errstate(over="ignore"):
        for at in range(ngram):
            rolled = (rolled ^ hashes[at : at + len(rolled)]) * _ODD
    return rolled ^ (rolled >> np.uint64(32))


def _mixed(value: np.uint64) -> np.uint64:
    """The smallest of many hashes is small: hashed again it says nothing of the document's length."""
    return np.uint64(xxhash.xxh3_64_intdigest(value.tobytes()))
