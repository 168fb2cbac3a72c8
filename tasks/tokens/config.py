"""Configurations of the tokenizer and of the token shards."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from model.config import Config
from model.vocabulary import special_ids


class TokenizerConfig(Config):
    """A byte-level BPE: trained on a sample of the corpus, or an existing tokenizer.json."""

    vocabulary: int = Field(default=163_840, ge=1)
    """Entries, special tokens included; at 163,840 (K2's size) the special tokens have K2's ids."""
    digits: Literal[1, 3] = 3
    """Most digits in one token. 1 keeps every digit apart, which small models need for arithmetic."""
    sample_bytes: int = Field(default=10_000_000_000, ge=1)
    """Bytes of text the merges are learned from, over all domains."""
    mix: dict[str, float] = Field(default_factory=dict)
    """Share of each domain in the sample; a domain not named gets none. Empty: every domain in proportion to its
    bytes. A domain smaller than its share is taken whole."""
    longest_token: int = Field(default=64, ge=1)
    """Most bytes in one token, so that rulers of dashes do not fill the vocabulary."""
    seed: int = 0
    """Chooses which documents the sample has."""
    file: str | None = Field(default=None, exclude=True)
    """An existing tokenizer.json to use instead of training one. Where it lies is not identity: `sha256` is."""
    sha256: str | None = None
    """sha256 of `file`, required with it."""

    @model_validator(mode="after")
    def _possible(self) -> TokenizerConfig:
        special_ids(self.vocabulary)
        if (self.file is None) != (self.sha256 is None):
            raise ValueError("`file` and `sha256` go together: an existing tokenizer is identified by its content")
        if any(not 0 <= weight < float("inf") for weight in self.mix.values()) or (
            self.mix and not sum(self.mix.values())
        ):
            raise ValueError("`mix` needs weights of at least 0, one of them above 0")
        return self


class TokensConfig(Config):
    """Token shards and the held-out split."""

    heldout_fraction: float = Field(default=0.001, ge=0, lt=1)
    """Part of the documents kept out of training, chosen by a hash of the id; a rewrite goes where its source goes."""
    seed: int = 0
    """Chooses which documents are held out."""
    shard_bytes: int = Field(default=1 << 30, ge=1024)
    """Largest shard; only a single document that is longer makes a longer one."""
    batch_bytes: int = Field(default=1 << 30, ge=1)
    """Parquet bytes tokenised as one unit of work by one worker: what a kill repeats. Every batch begins shards of its
    own for each split, domain and source, so that small batches make small shards; a byte of Parquet gives some 3 of
    tokens."""
    begin_documents: bool = False
    """Whether [BOS] opens every document. K2's released chat format has none, so none by default; [EOS] always ends."""
