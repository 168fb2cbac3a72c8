"""Token shards out of the text that this repository carries: no network is needed, and the stages are the real ones."""

from __future__ import annotations

from pathlib import Path

from tasks.artifact import Artifact, Step
from tasks.tokens import shards, tokenizer
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tests.tasks.tokens.corpus import publish, record

DOMAINS = {".py": "code", ".md": "web", ".yaml": "knowledge"}


def make(root: Path, house: Path, vocabulary: int, most: int) -> tuple[Artifact, Artifact]:
    """Tokens and tokenizer of at most `most` of the files of each domain."""
    parts: dict[str, list[dict[str, str]]] = {}
    for folder in ("docs", "model", "training", "tasks", "flows", "benchmarks"):
        for path in sorted((house / folder).rglob("*")):
            rows = parts.setdefault(DOMAINS.get(path.suffix, ""), [])
            if path.suffix in DOMAINS and len(rows) < most and "pairs" not in path.parts:
                rows.append(record(path.read_text(encoding="utf-8"), DOMAINS[path.suffix]))
    parts.pop("", None)
    corpus = publish(root, "corpus", "documents", parts)
    rewrites = publish(root, "rewrites", "rewrites", {})
    learned = Step("tokenizer", TokenizerConfig(vocabulary=vocabulary), str(root), (corpus[0],))
    made = tokenizer.build(learned, corpus[1])
    step = Step("tokens", TokensConfig(heldout_fraction=0.2), str(root), (corpus[0], rewrites[0], learned))
    return shards.build(step, corpus[1], rewrites[1], made), made
