"""Configuration of safety and rights: personal data, block lists, evaluation sets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from model.config import Config

Kind = Literal["EMAIL", "IP", "PHONE", "CARD", "IBAN", "ID", "KEY", "PASSWORD"]
"""What a placeholder can stand for; ID is a resident id, KEY an API key, token or private key."""


class PiiConfig(Config):
    """Which personal data and secrets are replaced by placeholders."""

    kinds: tuple[Kind, ...] = ("EMAIL", "IP", "PHONE", "CARD", "IBAN", "ID", "KEY", "PASSWORD")
    """What is replaced; none at all leaves every text as it is."""
    regions: tuple[str, ...] = tuple("US GB CN DE FR ES IT NL IN AU CA JP HK TW SG".split())
    """Regions (ISO 3166) whose national telephone numbers are known; those with a country code are known everywhere."""
    consistent: bool = False
    """Number the placeholders within a document (`<PII:EMAIL:1>`), the same for the same value, so that a dialogue of
    two addresses stays one. Off: fewer spellings for the model to learn."""

    @field_validator("regions")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        import phonenumbers

        unknown = [region for region in value if region not in phonenumbers.SUPPORTED_REGIONS]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is no region with telephones: give ISO 3166 codes in capitals, such as US"
            )
        return value


class BlockConfig(Config):
    """What may not enter because of where it was found; long lists come with the sources (`sources.blocklists`)."""

    domains: tuple[str, ...] = ()
    """Domains that are blocked with all their subdomains, in any spelling (case, IDNA, port)."""
    urls: tuple[str, ...] = ()
    """Beginnings of addresses (`host/path`), or shell patterns over the whole address where an entry has a `*`."""
    words: tuple[str, ...] = ()
    """Words, one of which in an address blocks it (RefinedWeb G.1: hard whole words)."""
    subwords: tuple[str, ...] = ()
    """Strings that block an address wherever they stand in it (RefinedWeb G.1: strict subwords)."""
    soft_words: tuple[str, ...] = ()
    """Words of which `soft_words_min` different ones must stand in an address to block it (RefinedWeb G.1: soft)."""
    soft_words_min: int = Field(default=2, ge=1)
    """How many soft words block (RefinedWeb, arXiv 2306.01116, G.1: 2)."""
    paths: bool = True
    """Also judge a document's path within its source: a mirror keeps pages under the names of their hosts."""

    @field_validator("domains", "urls", "words", "subwords", "soft_words")
    @classmethod
    def _filled(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not entry.strip() for entry in value):
            raise ValueError("an entry is empty and would block everything: remove it")
        return value


class DecontaminationConfig(Config):
    """When a document holds an item of an evaluation set, and what is done about it."""

    ngram: int = Field(default=13, ge=3)
    """Words to a run that document and item share. GPT-3 (arXiv 2005.14165, appendix C): 13; PaLM (arXiv 2204.02311,
    section 8): 8; Llama 2 (arXiv 2307.09288, A.6): 10 tokens."""
    ngram_min: int = Field(default=8, ge=3)
    """An item of fewer words than `ngram` must be found whole if it has this many (GPT-3's lower bound: 8); one still
    shorter is not looked for."""
    share_min: float = Field(default=0.0, ge=0, le=1)
    """Share of an item's words that shared runs must cover. GPT-3: one run is enough (0); PaLM: 0.7; Llama 2: 0.8
    for what it calls dirty."""
    words_min: int = Field(default=4, ge=0)
    """Different words that a run must have to count, numbers and single letters apart: `1 2 3 4 ...` is in every text
    on sorting, `8 9 A B C` in every one on hexadecimal numbers. Ours."""
    action: Literal["reject", "remove"] = "reject"
    """Drop the document, or cut the passage out of it."""
    margin: int = Field(default=200, ge=0)
    """Characters that are cut on either side with a passage (GPT-3, appendix C: 200)."""
    pieces_max: int = Field(default=10, ge=1)
    """A document that cutting would leave in more pieces, or nothing of, is dropped (GPT-3, appendix C: 10)."""

    @model_validator(mode="after")
    def _ordered(self) -> DecontaminationConfig:
        if self.ngram_min > self.ngram:
            raise ValueError(f"ngram_min = {self.ngram_min} exceeds ngram = {self.ngram}: lower it")
        if self.words_min > self.ngram_min:
            raise ValueError(f"words_min = {self.words_min} exceeds ngram_min = {self.ngram_min}: no item could match")
        return self


class SafetyConfig(Config):
    """Personal data, block lists and evaluation sets."""

    pii: PiiConfig = PiiConfig()
    """What is replaced by placeholders."""
    blocks: BlockConfig = BlockConfig()
    """What is kept out by its address."""
    decontamination: DecontaminationConfig = DecontaminationConfig()
    """What is kept out, or cut, because an evaluation set has it."""
