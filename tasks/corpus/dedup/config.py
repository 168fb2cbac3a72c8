"""Configuration of deduplication: each method with its thresholds and their reasons."""

from __future__ import annotations

import math
from functools import cache

from pydantic import Field, model_validator

from model.config import Config


@cache
def banding(threshold: float, permutations: int, recall: float) -> tuple[int, int]:
    """(bands, rows): the most rows a band may have so that a pair at `threshold` meets in some band with a chance of
    at least `recall`; more rows mean fewer pairs to verify."""
    for rows in range(permutations, 0, -1):
        bands = permutations // rows
        if -math.expm1(bands * math.log1p(-(threshold**rows))) >= recall:
            return bands, rows
    raise ValueError(f"{permutations} permutations find pairs at {threshold} with no recall of {recall}: ask for more")


class NearConfig(Config):
    """When two documents are near duplicates: MinHash and LSH propose, the true Jaccard similarity decides."""

    enabled: bool = True
    """Every published web corpus drops near duplicates; sources of manuals repeat each other as much."""
    threshold: float = Field(default=0.8, gt=0, lt=1)
    """Jaccard similarity of shingle sets from which on two documents are the same."""
    ngram: int = Field(default=5, ge=1)
    """Tokens to a shingle (FineWeb 3.4); a Han character is a token."""
    permutations: int = Field(default=112, ge=8)
    """MinHash values to a document (FineWeb 3.4: 112)."""
    recall: float = Field(default=0.99, gt=0, lt=1)
    """Chance with which a pair at the threshold shares a band: the banding follows from it."""
    seed: int = Field(default=1, ge=0)
    """Of the permutations."""

    @model_validator(mode="after")
    def _reachable(self) -> NearConfig:
        banding(self.threshold, self.permutations, self.recall)
        return self


class PassagesConfig(Config):
    """Paragraphs and lines that stand in several documents, word for word but for case, spaces and punctuation.

    Never inside code fences or formulas, never headings, never in programs.
    """

    enabled: bool = True
    """What boilerplate and quotation leave behind when whole documents have been compared."""
    paragraph_words_min: int = Field(default=30, ge=1)
    """Words from which on a paragraph may be removed (1.7 Han characters are one); shorter ones are often set phrases
    that a text needs. Ours."""
    paragraph_documents_min: int = Field(default=2, ge=2)
    """Documents from which on a paragraph is kept in one of them only, the longest (dolma's paragraph deduplication and
    CCNet, arXiv 1911.00359, keep the first)."""
    paragraph_boilerplate_min: int = Field(default=50, ge=2)
    """Documents from which on a paragraph is boilerplate and kept in none. Ours."""
    line_words_min: int = Field(default=6, ge=1)
    """Words from which on a line may be removed: labels such as `See also` are shorter. Ours."""
    line_documents_min: int = Field(default=7, ge=2)
    """Documents from which on a line is boilerplate and kept in none (Llama 3, arXiv 2407.21783, 3.1.1: more than 6
    times in a bucket of 30 million documents)."""
    bucket_documents: int = Field(default=30_000_000, ge=1)
    """Documents up to which the two bounds for boilerplate hold as they are; in larger corpora they grow in proportion
    (Llama 3 counts per bucket), as any plain sentence stands somewhere else in enough text."""

    @model_validator(mode="after")
    def _order(self) -> PassagesConfig:
        if self.paragraph_boilerplate_min <= self.paragraph_documents_min:
            raise ValueError(
                "paragraph_boilerplate_min must be above paragraph_documents_min: repeated comes before boilerplate"
            )
        return self


class SubstringConfig(Config):
    """Runs of tokens that stand in several documents, wherever they begin."""

    enabled: bool = False
    """Off: what it removes beyond paragraphs are quotations and standard wordings inside texts that then lack them."""
    tokens: int = Field(default=50, ge=4)
    """Words or Han characters of the shortest run (Lee et al., arXiv 2107.06499: 50 BPE tokens; ours are longer)."""
    window: int = Field(default=25, ge=1)
    """Runs among which one fingerprint is kept (winnowing, Schleimer et al. 2003): the index holds about
    2 / (window + 1) of them, and every repeated run of at least tokens + window - 1 is found."""

    @model_validator(mode="after")
    def _no_gaps(self) -> SubstringConfig:
        if self.window > self.tokens:
            raise ValueError("window must not be above tokens, or what is found of a long run has gaps")
        return self


class SemanticConfig(Config):
    """Documents that say the same in other words (SemDeDup, arXiv 2303.09540)."""

    enabled: bool = False
    """Off: an embedding costs a thousand times what all else does, and ranks changed numbers above paraphrases."""
    threshold: float = Field(default=0.95, gt=0, lt=1)
    """Cosine similarity from which on two documents say the same. Ours."""
    cluster_documents: int = Field(default=1024, ge=2)
    """Documents to a cluster on average: pairs are compared within clusters only."""
    iterations: int = Field(default=10, ge=1)
    """Of k-means."""


class DedupConfig(Config):
    """What counts as the same text twice. Documents of equal texts always do: an id, the hash of the text, is one
    document's in the gate, in lineage and in the held-out split. What shall be read several times has epochs in the
    mix."""

    near: NearConfig = NearConfig()
    """Near duplicates."""
    passages: PassagesConfig = PassagesConfig()
    """Paragraphs and lines."""
    substring: SubstringConfig = SubstringConfig()
    """Runs of tokens."""
    semantic: SemanticConfig = SemanticConfig()
    """Documents of the same meaning."""
