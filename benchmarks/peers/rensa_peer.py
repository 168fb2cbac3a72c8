"""rensa's side of `benchmarks/curation.py`: what somebody writes who builds near-deduplication around it.

    python rensa_peer.py DOCUMENTS.jsonl

Words in lower case, n-grams of five joined to strings, rensa's batch R-MinHash and LSH, pairs above the threshold by
its estimate, connected components.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from time import process_time

from rensa import RMinHash, RMinHashLSH

WORD = re.compile(r"\w+")
NGRAM, PERMUTATIONS, BANDS, THRESHOLD = 5, 112, 14, 0.8


def shingles(text: str) -> list[str]:
    words = WORD.findall(text.lower())
    return [" ".join(words[at : at + NGRAM]) for at in range(max(len(words) - NGRAM + 1, 1))]


def labels(texts: list[str]) -> list[int]:
    """The cluster of each text, named by its first member."""
    sketches = RMinHash.from_token_sets([shingles(text) for text in texts], num_perm=PERMUTATIONS, seed=42)
    index = RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=BANDS)
    index.insert_many(sketches)
    parent = list(range(len(texts)))

    def find(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    for one, met in enumerate(index.query_all(sketches)):
        for other in met:
            if other > one and sketches[one].jaccard(sketches[other]) >= THRESHOLD:
                low, high = sorted((find(one), find(other)))
                parent[high] = low
    return [find(at) for at in range(len(texts))]


def main(documents: str) -> None:
    texts = [json.loads(line)["text"] for line in Path(documents).read_text(encoding="utf-8").split("\n") if line]
    labels(texts[:20])
    began = process_time()
    found = labels(texts)
    print(json.dumps({"cpu": process_time() - began, "labels": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
