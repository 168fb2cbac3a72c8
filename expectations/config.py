"""What must hold at each dataset boundary before the next stage may read.

A gate's configuration holds thresholds only. What can never be right (a document without a licence, an id that is
not the hash of its text, a held-out document in the training shards) has no threshold: it is always refused.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from model.config import Config

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Band = tuple[float, float]
NOT_CHOSEN = "another play of its task was better"
"""Why a dialogue is not there that no filter refused (`dialogues.player.candidates`)."""


def _kept(value: Any) -> Any:
    # Presets are merged field by field: without a word for "not this one" an extending preset could only add.
    return {name: limit for name, limit in value.items() if limit is not None} if isinstance(value, dict) else value


Shares = Annotated[dict[str, Share], BeforeValidator(_kept)]
"""By name; `null` drops one that an extended preset has."""


class Gate(Config):
    """Thresholds of one gate; bands are (least, most)."""

    @model_validator(mode="after")
    def _bands_ascend(self) -> Gate:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) == 2 and value[0] > value[1]:
                raise ValueError(f"{name} is a band (least, most), but {value[0]} > {value[1]}: swap the two")
        return self


class CorpusGate(Gate):
    """Thresholds for the curated corpus. The defaults are what any corpus must satisfy; what is expected of certain
    sources stands beside them, in the preset that names them."""

    documents: int = Field(default=1, ge=1)
    """Fewest documents."""
    bytes: int = Field(default=1, ge=1)
    """Least UTF-8 bytes of text over all documents."""
    sources: int = Field(default=1, ge=1)
    """Fewest sources that must have given documents. One that gave none is refused by name whatever stands here."""
    domains: Shares = {}
    """Least share of the bytes by domain. K2's corpus has four domains (K2 report 2.2). Where some are listed each of
    them must be there, and no other may. A preset that extends another drops one with `null`."""
    languages: Shares = {}
    """Least share of the bytes by language; other languages may be there. `null` drops one here too."""
    largest_source: Share = 1.0
    """Greatest share of the bytes that one source may have: beyond it the model learns that source's manner."""
    characters: Band = (1, 2_000_000)
    """Shortest and longest text of a document in characters. Shorter ones are menus and errors, longer ones are
    archives that nobody split."""
    median_characters: Band = (100, 100_000)
    """Band for each domain's median length: an extraction that cuts or joins documents moves it."""
    damaged: Share = 0.02
    """Greatest share of documents with a replacement character (U+FFFD): a charset was guessed wrong."""
    rejected: Band = (0.0, 0.9)
    """Share of the documents read that curation may reject. None at all of a real corpus means that the rules did not
    run; nearly all means that an extractor broke."""
    unreadable: Share = 0.05
    """Greatest share of the records, and of the raw bytes, that could not be read."""
    unreadable_source: Share = 0.5
    """The same of the raw bytes of any one source: a lost file is one record, and may be half of its source."""
    sample: int = Field(default=20_000, ge=1)
    """About so many documents are looked at for what takes more than a column: near duplicates and personal data. Drawn
    by hashes of their text, so that the same corpus gives the same sample; a smaller corpus is looked at whole."""
    near_duplicates: Share = 0.01
    """Greatest share of the sampled documents that have a near duplicate left, by exact similarity at the corpus's own
    threshold. Not zero: deduplication proposes pairs by MinHash, which misses one in a hundred at the threshold
    (`corpus.dedup.near.recall`), and what is cut out afterwards brings some closer."""
    personal: Share = 0.005
    """Greatest share of the sampled documents with an e-mail address or a key left, where the corpus replaces those.
    Not zero: an address in a program may be code, and what is one is a matter of opinion at the edges."""

    @field_validator("domains", "languages")
    @classmethod
    def _satisfiable(cls, value: dict[str, float]) -> dict[str, float]:
        # Floats: shares such as 0.7, 0.2 and 0.1 add up to a little more than 1.
        if (total := sum(value.values())) > 1 + 1e-9:
            raise ValueError(f"the least shares add up to {total:.2f}, more than there is: lower them to 1 at most")
        return value


class RewritesGate(Gate):
    """Thresholds for the rephrased documents."""

    documents: int = Field(default=0, ge=0)
    """Fewest rewritten documents. A corpus may have none that fits `rephrase.characters`."""
    segments: int = Field(default=0, ge=0)
    """Fewest attempted segments."""
    acceptance_rate: Band = (0.2, 1.0)
    """Accepted share of the attempts at segments. Below the floor the rewriter is too weak for its prompts (or the
    engine answers with errors) and its cost buys nothing; a ceiling below 1 catches a check that has stopped
    refusing."""
    retry_rate: Share = 0.9
    """Greatest share of the segments that had to be asked for again. Near 1 the first prompt hardly ever succeeds, and
    every document costs twice."""
    fallback_rate: Share = 0.6
    """Greatest share of the segments that no attempt rewrote: their original text stays, which is one more epoch of it,
    or their document is dropped."""
    group: int = Field(default=200, ge=1)
    """Attempts from which a style, or a domain, is held to floors and ceilings of its own: over fewer a rate is
    chance."""
    group_acceptance_rate: Share = 0.1
    """Smallest accepted share of the attempts in each style and in each domain that is large enough: below it that
    style's prompt does not work, whatever the others make of the whole."""
    group_retry_rate: Share = 0.95
    """The same for segments asked for again."""
    group_fallback_rate: Share = 0.85
    """The same for segments that no attempt rewrote."""
    refused: Shares = {"seam": 0.1, "language": 0.05, "engine": 0.02}
    """Greatest share of the attempts that one check may refuse, by its name: a rewriter that repeats itself, answers in
    another language, or refuses prompts is the wrong one, or wrongly set up. `null` drops one."""
    seams: Share = 0.02
    """Greatest share of accepted segments that say a sentence of the accepted segment before again: recomputed here,
    apart from the check."""
    other_language: Share = 0.01
    """Greatest share of rewrites that are not in the script of the language that their row names: recomputed here."""
    other_numbers: Share = 0.0
    """Greatest share of accepted segments of which the alignment check found a number lost or invented: it has the one
    rule of what is the same number (`numbers` in the recorded scores)."""
    length_ratio: Band = (0.3, 3.0)
    """Characters of an accepted rewrite over those of its source segment, in styles and at levels of detail without a
    band of their own; those that have one are held to it."""
    same_text: Share = 0.1
    """Greatest share of rewrites that are, letter for letter, another rewrite again: of one source in two styles."""
    copies: Share = 0.1
    """Greatest share of accepted segments that repeat their source word for word: copies teach nothing new and are
    what a weak rewriter passes a fidelity check with."""


class TokensGate(Gate):
    """Thresholds for the token shards."""

    tokens: int = Field(default=1, ge=1)
    """Fewest training tokens. The default is what any corpus has."""
    heldout_tokens: int = Field(default=1, ge=0)
    """Fewest held-out tokens of each domain: with fewer the held-out loss is noise. A domain of few documents may have
    none, as each is held out or not by a hash of its id: 0 lets it."""
    bytes_per_token: dict[str, Band] = {}
    """Band of UTF-8 bytes per token by domain. Near 1 the merges do not fit the text (or were not applied); far above
    the usual 3 to 5 text was lost on the way. Where some domains are listed each of them must be there, and no other
    may; where none is, those that are there are held to `bytes_per_token_any`."""
    bytes_per_token_any: Band = (1.5, 8.0)
    """The same of any domain, where `bytes_per_token` lists none."""
    heldout_share: Band = (0.0005, 0.2)
    """Share of all tokens that is held out."""

    @model_validator(mode="after")
    def _bytes_per_token_ascend(self) -> TokensGate:
        for domain, (least, most) in self.bytes_per_token.items():
            if least > most:
                raise ValueError(f"bytes_per_token.{domain} is a band (least, most), but {least} > {most}: swap them")
        return self


class ToolsGate(Gate):
    """Thresholds for the synthetic tools."""

    tools: int = Field(default=1, ge=1)
    """Fewest tools."""
    domains: int = Field(default=1, ge=1)
    """Fewest state models that they work on."""
    operations: int = Field(default=1, ge=1)
    """Fewest kinds of things that they do."""
    categories: Shares = {}
    """Least share of the tools by category; others may be there. `null` drops one."""
    largest_category: Share = 0.5
    """Greatest share of one category."""
    rejected: Band = (0.0, 0.9)
    """Share of the candidates that was refused."""
    sample: int = Field(default=5000, ge=1)
    """About so many tools are compared with each other."""
    similar: Share = 0.01
    """Greatest share of the tools with a near duplicate left in that sample, recomputed at the stage's threshold."""


class TrajectoriesGate(Gate):
    """Thresholds for the tasks and trajectories that agents learn from."""

    tasks: int = Field(default=1, ge=1)
    """Fewest different problems."""
    trajectories: int = Field(default=1, ge=1)
    """Fewest dialogues."""
    environment: int = Field(default=1, ge=1)
    """Fewest dialogues of an environment on each side of a split."""
    wordings: Share = 0.0
    """Least share of the dialogues whose request is worded as no other's."""
    rejected: Band = (0.0, 0.9)
    """Share of the dialogues that the filters refused; those that another play outdid do not count."""


class SuitesGate(Gate):
    """Thresholds for what a release scores on the suites of `evaluate.suites`."""

    floors: Shares = {}
    """Least score by suite, of bf16 and of INT4. `null` drops one that an extended preset has."""
    contaminated: Share = 0.1
    """Greatest share of a suite's items that may stand in the training corpus."""


class GatesConfig(Config):
    """The gates of the recipe."""

    corpus: CorpusGate = CorpusGate()
    """Judges the curated corpus before anything is rewritten, tokenised or trained on."""
    rewrites: RewritesGate = RewritesGate()
    """Judges the rewrites before they are tokenised."""
    tokens: TokensGate = TokensGate()
    """Judges the shards before training."""
    tools: ToolsGate = ToolsGate()
    """Judges the synthetic tools before dialogues are made with them."""
    dialogues: TrajectoriesGate = TrajectoriesGate()
    """Judges tasks and trajectories before fine-tuning and RL."""
    suites: SuitesGate = SuitesGate()
    """Judges what the release scores."""
