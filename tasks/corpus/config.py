"""Configuration of curation: what is kept, by which published thresholds, and when two documents are the same."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from model.config import Config
from tasks.corpus.dedup.config import DedupConfig
from tasks.corpus.licence import policy_error
from tasks.corpus.quality.config import ChineseConfig, CodeConfig, DataConfig, MathematicsConfig, ProseConfig
from tasks.corpus.safety.config import SafetyConfig
from tasks.corpus.sources import SourcesConfig

__all__ = ["CorpusConfig", "SourcesConfig"]

HEAD_CHARS = 600
"""Characters of a text that the `rejected` table keeps."""


class CorpusConfig(Config):
    """Curation, from raw files to the documents of the corpus."""

    languages: tuple[str, ...] = ("en", "zh")
    """Languages that are kept (K2: English and Chinese)."""
    licences: tuple[str, ...] = (
        "Apache-2.0", "BSD-*", "CC0-1.0", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-SA-*", "GFDL-*", "GPL-*", "LGPL-*", "MIT*",
        "MPL-2.0", "PSF-2.0", "Unlicense", "ISC",
    )  # fmt: skip
    """Licences that may enter: patterns over SPDX identifiers, or families (`@permissive`, see `licence.FAMILIES`); of
    a choice (`A OR B`) one is enough. A document without a licence that can be read never enters."""
    document_chars_min: int = Field(default=200, ge=1)
    """Shorter documents are dropped. Ours."""
    document_chars_max: int = Field(default=12_000, ge=1000)
    """Longer ones are cut at section, then paragraph, then line borders. Ours: about 3,000 tokens."""
    document_seconds_max: float = Field(default=120.0, gt=0)
    """CPU seconds that a worker may spend on one document, from its bytes to its row, before it is ended and the
    document rejected as `over_time`. A net: what is known to be absurd is refused before it is parsed, by limits that
    do not depend on the machine. Ours."""
    document_memory_max: int = Field(default=4 << 30, ge=64 << 20)
    """Bytes of memory that a worker may take for one document, on top of what it holds when it begins its partition;
    beyond them the document is rejected as `over_memory`. Held on Linux alone. Ours."""
    prose: ProseConfig = ProseConfig()
    """Rules for English prose."""
    mathematics: MathematicsConfig = MathematicsConfig()
    """Rules for mathematics."""
    chinese: ChineseConfig = ChineseConfig()
    """Rules for Chinese."""
    code: CodeConfig = CodeConfig()
    """Rules for programs."""
    data: DataConfig = DataConfig()
    """Rules for data files."""
    safety: SafetyConfig = SafetyConfig()
    """Personal data, block lists and evaluation sets."""
    dedup: DedupConfig = DedupConfig()
    """Exact and near duplicates."""

    @field_validator("licences")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if error := policy_error(value):
            raise ValueError(error)
        return value

    @model_validator(mode="after")
    def _sizes(self) -> CorpusConfig:
        if self.document_chars_min * 2 > self.document_chars_max:
            raise ValueError(
                "document_chars_max must be at least twice document_chars_min, or cutting drops the pieces"
            )
        return self
