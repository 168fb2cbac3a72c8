"""Configuration of the mix: how often each part of the corpus is read in training."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from model.config import Config
from tasks.corpus.licence import policy_error

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Epochs = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class MixConfig(Config):
    """Shares, weights, epochs and the budget. As it stands every document is read once."""

    domains: dict[str, Weight] = Field(default_factory=dict)
    """Share of each domain in the training tokens, in any unit; a domain not named gets none. Empty: whatever the
    weights below give. A domain that cannot reach its share within its epochs leaves the rest to the others, in
    proportion to theirs, and the table says so."""
    sources: dict[str, Weight] = Field(default_factory=dict)
    """How often a source is read for once that the others of its domain are: 1 where none is named, 0 leaves it out."""
    buckets: dict[str, Weight] = Field(default_factory=dict)
    """The same by quality bucket (`scores.buckets`): good text is read more often and poor text less often, as K1.5
    does (K1.5 report, appendix B); 1 where none is named."""
    rewrites: Weight = 1.0
    """The same for an accepted rewrite, which counts as text of its source document's source and domain. K2 reads ten
    rewrites once rather than one text ten times (K2 report 2.2): 1 takes every rewrite as often as a document."""
    epochs: Epochs = 4.0
    """Most copies of any text in the shards, that is, most times that one pass over them reads it; pretraining's
    `most_epochs` counts the passes, and the two multiply. Up to 4 is nearly as good as as much new text, and what is
    read 16 times adds little (Muennighoff et al., arXiv 2305.16264)."""
    source_epochs: dict[str, Epochs] = Field(default_factory=dict)
    """The same for single sources."""
    tokens: int | None = Field(default=None, ge=1)
    """Budget in training tokens, by the tokenizer's bytes per token. None: as many as the weights alone give."""
    licences: tuple[str, ...] = Field(default=("*",), min_length=1)
    """Licences that may enter this mix, as patterns over SPDX identifiers or families (`@permissive`): a stricter
    choice than the corpus's own (`corpus.licences`)."""
    auc: float = Field(default=0.0, ge=0, le=1)
    """Least area under the ROC curve of the quality classifier on its held-out part: below it, buckets that weigh
    differently would be chance, and the mix is refused."""
    seed: int = 0
    """Draws which documents of a group get the copy that a fraction of an epoch stands for."""

    @field_validator("domains")
    @classmethod
    def _some(cls, value: dict[str, float]) -> dict[str, float]:
        if value and not sum(value.values()):
            raise ValueError("every domain has the share 0: give at least one more than that, or name none at all")
        return value

    @field_validator("licences")
    @classmethod
    def _policy(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if error := policy_error(value):
            raise ValueError(error)
        return value
