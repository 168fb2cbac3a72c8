"""Configuration of the scores: the examples a classifier learns from, the judge, and the quality buckets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from model.config import Config
from model.engines.choice import EngineConfig
from model.engines.engine import Sampling
from tasks.corpus.config import HEAD_CHARS
from tasks.corpus.sources import Domain

AXES = ("coherence", "informativeness", "education")
"""What a judge grades (K1.5 report, appendix B)."""
UNSCORED = "unscored"
"""The bucket of every document where no classifier is asked for."""


class Selection(Config):
    """Examples, by where they stand in the corpus; whatever one of the fields names is taken."""

    sources: tuple[str, ...] = ()
    """Kept documents of these sources."""
    domains: tuple[Domain, ...] = ()
    """Kept documents of these domains."""
    rejected: tuple[str, ...] = ()
    """What curation rejected, by reason or by stage: the heads of the texts in the `rejected` table."""

    def __bool__(self) -> bool:
        return bool(self.sources or self.domains or self.rejected)


class ClassifierConfig(Config):
    """A linear model over hashed n-grams of words (for Chinese: of single characters), as fastText's (Joulin et al.,
    arXiv 1607.01759), which K1.5 and others filter text with. `positives` and `negatives`, `labelled` or `judged` must
    give both sides."""

    positives: Selection = Selection(domains=("web", "code", "math", "knowledge"))
    """Examples of text that is wanted more of."""
    negatives: Selection = Selection(rejected=("quality",))
    """Examples of text that is wanted less of."""
    labelled: str | None = Field(default=None, exclude=True)
    """A JSONL file of your own, `{"text": ..., "label": 0 or 1}` a line, added to both sides. Where it lies is not
    identity: `labelled_sha256` is."""
    labelled_sha256: str | None = None
    """sha256 of `labelled`, required with it."""
    judged: float | None = Field(default=None, ge=0, le=5)
    """Where set, the judge's sample is added: documents whose mean grade is at least this are positives, the others
    negatives."""
    characters: int = Field(default=HEAD_CHARS, ge=50)
    """Characters of a text that are read, from its beginning, in training and in scoring alike. 600 is what the
    `rejected` table keeps; raise it where both sides are whole documents."""
    characters_min: int = Field(default=200, ge=1)
    """Shorter texts are no examples."""
    examples: int = Field(default=50_000, ge=10)
    """Most examples of a side, chosen by seed. Both sides weigh the same, however many they are."""
    ngrams: int = Field(default=2, ge=1, le=5)
    """Longest n-gram: 2 takes single words and pairs."""
    bits: int = Field(default=20, ge=8, le=26)
    """N-grams are hashed to 2^bits weights."""
    epochs: int = Field(default=5, ge=1)
    """Passes over the training part."""
    learning_rate: float = Field(default=0.5, gt=0, le=10)
    """Adagrad's (Duchi et al., 2011)."""
    calibration_fraction: float = Field(default=0.15, gt=0, lt=1)
    """Part of the examples that the curve from scores to probabilities (Platt, 1999) is fitted on."""
    heldout_fraction: float = Field(default=0.15, gt=0, lt=1)
    """Part of the examples that the figures are measured on. Parts are drawn by source file: none is in two."""
    seed: int = Field(default=0, ge=0)
    """Chooses examples, parts and the order of training."""

    @model_validator(mode="after")
    def _possible(self) -> ClassifierConfig:
        if self.calibration_fraction + self.heldout_fraction >= 0.9:
            raise ValueError("calibration and held-out part leave less than a tenth to train on: lower the fractions")
        if self.characters_min > self.characters:
            raise ValueError("`characters_min` is above `characters`: no text would be an example")
        if (self.positives.rejected or self.negatives.rejected) and self.characters > HEAD_CHARS:
            raise ValueError(
                f"the `rejected` table keeps {HEAD_CHARS} characters of a text: with rejected examples `characters` is "
                "at most that, or the classifier would learn lengths"
            )
        if (self.labelled is None) != (self.labelled_sha256 is None):
            raise ValueError("`labelled` and `labelled_sha256` go together: labels are identified by their content")
        if self.labelled is None and self.judged is None and not (self.positives and self.negatives):
            raise ValueError("name `positives` and `negatives`, or give labels by `labelled` or `judged`")
        for field in ("sources", "domains", "rejected"):
            if both := sorted(set(getattr(self.positives, field)) & set(getattr(self.negatives, field))):
                raise ValueError(f"'{both[0]}' is among the positives and the negatives: a text has one label")
        return self


class JudgeConfig(EngineConfig):
    """A language model that grades a sample, from 0 to 5 on each axis, by the rubric in tasks/corpus/scoring."""

    context: int = Field(default=4096, ge=256)
    """Tokens of the engine's context: prompt and answer together. `embedded` only."""
    documents: int = Field(default=500, ge=1)
    """Documents graded, chosen by seed over the whole corpus."""
    again: float = Field(default=0.1, ge=0, le=1)
    """Part of them that is graded a second time with the axes in the opposite order: a judge that does not agree with
    itself tells little."""
    languages: tuple[str, ...] = Field(default=("en", "zh"), min_length=1)
    """Languages that the judge reads."""
    characters: int = Field(default=3000, ge=50)
    """Characters of a document that are shown, from its beginning."""
    sampling: Sampling = Sampling(temperature=0)
    """How the answer is drawn."""
    max_tokens: int = Field(default=96, ge=16)
    """Longest answer."""
    seed: int = Field(default=0, ge=0)
    """Chooses the documents, and seeds the engine."""


class ScoresConfig(Config):
    """The quality of every document."""

    classifier: ClassifierConfig | None = ClassifierConfig()
    """None scores nothing: every document is then in the bucket `unscored`."""
    judge: JudgeConfig | None = None
    """None asks no language model."""
    buckets: dict[str, Annotated[float, Field(ge=0, lt=1)]] = Field(
        default={"low": 0.0, "medium": 0.3, "high": 0.7}, min_length=1
    )
    """Quality buckets by their least probability; the lowest begins at 0."""

    @model_validator(mode="after")
    def _possible(self) -> ScoresConfig:
        edges = sorted(self.buckets.values())
        if edges[0] != 0 or len(set(edges)) != len(edges):
            raise ValueError("`buckets` need different edges, the lowest 0, or some document would have none")
        if taken := sorted(set(self.buckets) & {UNSCORED, "rewrite"}):
            raise ValueError(f"a bucket may not be called '{taken[0]}': the mix has another of that name")
        if self.classifier and self.classifier.judged is not None and self.judge is None:
            raise ValueError("`classifier.judged` takes the judge's grades and there is no `judge`")
        return self
