"""Make the table that the check of fluency reads: how much likelier each kind of word is behind each other one than
anywhere. Learned from the texts of `train` (tasks/rephrase/calibration/pairs), sources and faithful rewrites.

    python -m benchmarks.fluency_table     # writes tasks/rephrase/alignment/fluency.safetensors

The same pairs give the same bytes. The table in the repository is of the pairs of 2026-11-23; those written since would
give another one, which nobody has measured.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tasks.rephrase.alignment.fluency import HAN, OTHER, SCALE, TABLE, kind, tokens
from tasks.rephrase.calibration.pairs import FAITHFUL, load

NAMED = 100
"""Words, and as many Chinese characters, that are themselves; all others are kinds."""
PRIOR = 5
"""Pairs that each word is supposed to have been seen before, in the proportions of the whole."""


def main(place: Path = TABLE) -> None:
    texts = sorted({text for row in load(["train"]) if row.kind == FAITHFUL for text in (row.source, row.rewrite)})
    counts = Counter(word.lower() for text in texts for word in tokens(text) if word[0].isalpha())
    letters = sorted(counts, key=lambda word: (-counts[word], word))
    names = [word for word in letters if not HAN.match(word)][:NAMED] + [w for w in letters if HAN.match(w)][:NAMED]
    names += OTHER
    index = {name: place for place, name in enumerate(names)}
    pairs = np.zeros((len(names), len(names)))
    for text in texts:
        kinds = [index[kind(word, index)] for word in tokens(text)]
        for one, other in pairwise(kinds):
            pairs[one, other] += 1
    share = (pairs.sum(axis=0) + 0.5) / (pairs.sum() + 0.5 * len(names))
    behind = (pairs + PRIOR * share) / (pairs.sum(axis=1, keepdims=True) + PRIOR)
    gains = np.clip(np.round(np.log(behind / share) * SCALE), -127, 127).astype(np.int8)
    save_file({"gains": gains}, place, metadata={"names": "\n".join(names)})


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help writes nothing
    main()
