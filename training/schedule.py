"""The pretraining schedule as data: stages, and for every update its stage, rate, window, batch and samples.

A plan is a list of stages. Stage borders are counts of tokens; the update that crosses one belongs to the stage it
starts in. The learning rate is a chain of curves over tokens, one per stage, except that a stage without a rate of its
own goes on with the curve of the stage before it. An update runs at the rate of the tokens consumed when it is done, so
that update k of a 500-update warm-up runs at peak * k / 500 and a curve's last update at its end (K2 report 2.5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, model_validator

from model.config import Config


class Rate(Config):
    """One curve of the learning rate, from `start` to `end`."""

    start: float = Field(ge=0, allow_inf_nan=False)
    """Learning rate at the curve's first token."""
    end: float = Field(ge=0, allow_inf_nan=False)
    """Learning rate at its last token."""
    shape: Literal["linear", "cosine"] = "cosine"
    """How it gets there; a constant rate is a linear one from a value to itself."""

    @model_validator(mode="after")
    def _learns(self) -> Rate:
        if not self.start and not self.end:
            raise ValueError("the learning rate goes from 0 to 0: nothing would be learned; give it a start or an end")
        return self

    def at(self, progress: float) -> float:
        """The rate after a share `progress` in [0, 1] of the curve's tokens."""
        if progress >= 1:
            return self.end
        share = progress if self.shape == "linear" else (1 - math.cos(math.pi * progress)) / 2
        return self.start + (self.end - self.start) * share


class MixChange(Config):
    """Another mix from some sample of a stage on."""

    sample: int = Field(gt=0)
    """Samples of the stage before it."""
    mix: dict[str, float] | None
    """As in `Stage.mix`."""

    @model_validator(mode="after")
    def _weights(self) -> MixChange:
        require_weights(self.mix)
        return self


class Stage(Config):
    """One stage of pretraining. Exactly one of `updates`, `tokens` and `until_tokens` says how long it is."""

    name: str = Field(min_length=1)
    """What people call it: warm-up, constant, decay, annealing, long context."""
    updates: int | None = Field(default=None, gt=0)
    """Length in optimizer updates."""
    tokens: int | None = Field(default=None, gt=0)
    """Length in tokens."""
    until_tokens: int | None = Field(default=None, gt=0)
    """Its end as a count of tokens from the start of the run."""
    sequence_length: int = Field(gt=0)
    """Tokens in a sample: so many inputs and as many next-token targets."""
    batch: int = Field(gt=0)
    """Samples in the global batch of one update."""
    rate: Rate | None = None
    """The learning rate's curve; None goes on with the curve of the stage before, over the tokens of both."""
    yarn_factor: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    """YaRN's factor over the model's original window; 1 is plain RoPE."""
    samples: Literal["windows", "best_fit"] = "windows"
    """What a sample is: a window that slides over the documents of a shard, or a row of whole documents with the least
    padding (`training/samples.py`)."""
    document_tokens_min: int = Field(default=0, ge=0)
    """Documents with fewer tokens are left out, so that a stage with a long window has positions that see far back;
    with `samples: best_fit` alone. 0 takes all."""
    mix: dict[str, float] | None = None
    """Weights in the samples, by domain (`web`), source (`web/NAME`) or `*` for all that no narrower name takes; None
    takes the corpus as it is."""
    mix_changes: tuple[MixChange, ...] = ()
    """Other mixes from given samples of the stage on, ascending."""

    @model_validator(mode="after")
    def _one_length(self) -> Stage:
        given = [name for name in ("updates", "tokens", "until_tokens") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"stage {self.name!r}: give exactly one of updates, tokens and until_tokens, not {given or 'none'}"
            )
        if self.document_tokens_min and self.samples == "windows":
            raise ValueError(
                f"stage {self.name!r}: document_tokens_min = {self.document_tokens_min} takes whole documents, and "
                "windows slide over all of them: set samples to best_fit, or leave it out"
            )
        try:
            require_weights(self.mix)
        except ValueError as error:
            raise ValueError(f"stage {self.name!r}: {error}") from None
        starts = [change.sample for change in self.mix_changes]
        if any(after <= before for before, after in pairwise(starts)):
            raise ValueError(f"stage {self.name!r}: mix_changes ascend by their sample, not {starts}")
        return self

    @property
    def tokens_per_update(self) -> int:
        """Tokens of one global batch."""
        return self.sequence_length * self.batch


@dataclass(frozen=True)
class Span:
    """Where a stage lies in the run, once the stages before it are known."""

    stage: Stage
    first_update: int
    """Updates before the stage."""
    updates: int
    """Updates of the stage."""
    first_token: int
    """Tokens before the stage's first update: its border, or a little after it."""
    border: int
    """Tokens at which the stage ends, as configured; its last update may go past it."""
    stream: int
    """Number of the stream of samples it reads: stages that cut the corpus alike share a stream."""
    first_sample: int
    """Samples of that stream consumed before the stage."""


@dataclass(frozen=True)
class Update:
    """Everything that the schedule decides about one optimizer update."""

    number: int
    """From 1."""
    stage: Stage
    span: int
    """Index of the stage in the plan."""
    learning_rate: float
    tokens_before: int
    """Tokens consumed by the updates before it."""
    stream: int
    first_sample: int
    """Id of its first sample in that stream; it takes `stage.batch` consecutive ones."""

    @property
    def tokens_after(self) -> int:
        """Tokens consumed once it is done."""
        return self.tokens_before + self.stage.tokens_per_update


class StagePlan(Config):
    """The stages of a run in their order, refused where they do not fit together; a plain list of stages will do."""

    stages: tuple[Stage, ...] = Field(min_length=1)
    """The stages, first to last."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, values: Any) -> Any:
        return {"stages": values} if isinstance(values, list | tuple) else values

    @model_validator(mode="after")
    def _fits(self) -> StagePlan:
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            raise ValueError(f"stage names must differ, to tell checkpoints and metrics apart: {names}")
        if self.stages[0].rate is None:
            raise ValueError(f"stage {names[0]!r} is the first and has no curve to go on with: give it a rate")
        rates = [stage.rate for stage in self.stages if stage.rate is not None]
        owners = [stage.name for stage in self.stages if stage.rate is not None]
        for (before, after), name in zip(pairwise(rates), owners[1:], strict=True):
            if not math.isclose(before.end, after.start, rel_tol=1e-9):
                raise ValueError(
                    f"the learning rate jumps from {before.end:g} to {after.start:g} at the start of stage {name!r}; "
                    "let its rate start where the one before ends"
                )
        for earlier, later in pairwise(self.stages):
            if later.yarn_factor < earlier.yarn_factor:
                raise ValueError(
                    f"yarn_factor falls from {earlier.yarn_factor:g} to {later.yarn_factor:g} at the start of stage "
                    f"{later.name!r}: what the model learned of longer positions would be lost; keep it or raise it"
                )
        start = 0
        for span in self.spans:
            name, step = span.stage.name, span.stage.tokens_per_update
            if span.border <= start:
                raise ValueError(
                    f"stage {name!r} ends at until_tokens = {span.border:,}, and the stages before it end at "
                    f"{start:,}: put its end after that, or say its length with tokens"
                )
            if span.border - start < step:
                raise ValueError(
                    f"stage {name!r} is {span.border - start:,} tokens long and one update of it takes {step:,}: "
                    "lengthen it or make its batch smaller"
                )
            if span.updates < 1:
                raise ValueError(
                    f"stage {name!r} has no update left: it ends at {span.border:,} tokens and {span.first_token:,} "
                    "are consumed before it; lengthen it or make the batch of the stage before smaller"
                )
            start = span.border
            samples = span.updates * span.stage.batch
            last = max((change.sample for change in span.stage.mix_changes), default=0)
            if last >= samples:
                raise ValueError(
                    f"stage {span.stage.name!r} has {samples} samples and a mix change at {last}: give that mix to the "
                    "next stage"
                )
        return self

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The stages laid end to end."""
        spans: list[Span] = []
        reached: dict[tuple[str, int, int], tuple[int, int]] = {}  # cut -> its stream, and the next sample of that
        border = update = token = 0
        for stage in self.stages:
            stream, sample = reached.get(_cut(stage), (len(reached), 0))
            if stage.updates is not None:
                border = token + stage.updates * stage.tokens_per_update
            else:
                border = stage.until_tokens if stage.until_tokens is not None else border + (stage.tokens or 0)
            updates = math.ceil((border - token) / stage.tokens_per_update)
            spans.append(Span(stage, update, updates, token, border, stream, sample))
            update += updates
            token += updates * stage.tokens_per_update
            reached[_cut(stage)] = stream, sample + updates * stage.batch
        return tuple(spans)

    @property
    def streams(self) -> int:
        """How many streams of samples the stages read."""
        return 1 + max(span.stream for span in self.spans)

    @property
    def updates(self) -> int:
        """Updates of the whole run."""
        return self.spans[-1].first_update + self.spans[-1].updates

    @property
    def tokens(self) -> int:
        """Tokens of the whole run, the last update's excess included."""
        last = self.spans[-1]
        return last.first_token + last.updates * last.stage.tokens_per_update

    def update(self, number: int) -> Update:
        """What update `number` (from 1) does. Raises `IndexError` outside the run."""
        if not 1 <= number <= self.updates:
            raise IndexError(f"update {number} is outside this plan, which has updates 1 to {self.updates}")
        at = max(index for index, span in enumerate(self.spans) if span.first_update < number)
        span = self.spans[at]
        done = number - 1 - span.first_update
        tokens_before = span.first_token + done * span.stage.tokens_per_update
        return Update(
            number=number,
            stage=span.stage,
            span=at,
            learning_rate=self.rate(at, tokens_before + span.stage.tokens_per_update),
            tokens_before=tokens_before,
            stream=span.stream,
            first_sample=span.first_sample + done * span.stage.batch,
        )

    def rate(self, at: int, tokens: float) -> float:
        """The learning rate after so many tokens of the run, by the curve that is in force in stage `at`."""
        curve, first, last = self._curve(at)
        return curve.at((tokens - first) / (last - first))

    def borders(self, at: int) -> tuple[int, int]:
        """The tokens at which stage `at` starts and ends, as configured."""
        return self.spans[at - 1].border if at else 0, self.spans[at].border

    def mixes(self, stream: int) -> list[tuple[int, dict[str, float] | None]]:
        """The stream's mixes, each with the id of the first sample it holds for."""
        mixes: list[tuple[int, dict[str, float] | None]] = []
        for span in self.spans:
            if span.stream == stream:
                changes = [(change.sample, change.mix) for change in span.stage.mix_changes]
                for sample, mix in [(0, span.stage.mix), *changes]:
                    if not mixes or mixes[-1][1] != mix:
                        mixes.append((span.first_sample + sample, mix))
        return mixes

    def _curve(self, at: int) -> tuple[Rate, int, int]:
        """The rate curve in force in stage `at`, with its first and last token."""
        owner = max(index for index in range(at + 1) if self.stages[index].rate is not None)
        last = owner
        while last + 1 < len(self.stages) and self.stages[last + 1].rate is None:
            last += 1
        rate = self.stages[owner].rate
        assert rate is not None
        return rate, self.borders(owner)[0], self.spans[last].border


def require_weights(mix: dict[str, float] | None) -> None:
    """Raise ValueError for a mix that cannot be drawn from."""
    if mix is None:
        return
    for name, weight in mix.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"the weight of {name!r} in the mix is {weight:g}: give a number of at least 0")
    if not any(mix.values()):
        raise ValueError("the mix has no entry with a weight above 0: name at least one, or leave the mix out")


def unread_words(sources: Sequence[str], share: float) -> str:
    """A sentence on sources that no sample reads."""
    more = f" and {len(sources) - 5:,} more" if len(sources) > 5 else ""
    return (
        f"no sample reads {', '.join(sources[:5])}{more} ({share:.2%} of the tokens): nothing of them is long enough "
        "for the stages' samples; shorten sequence_length, take samples: best_fit, or give small sources one name"
    )


def unmeasured_words(length: int) -> str:
    """What is said of samples of `length` tokens where no held-out shard has one."""
    return (
        f"will have no held-out loss: no held-out shard has {length + 1} tokens, a sample and its last target; a "
        "larger tokens.heldout_fraction or tokens.batch_bytes makes them larger"
    )


def _cut(stage: Stage) -> tuple[str, int, int]:
    """How a stage cuts the corpus into samples."""
    return stage.samples, stage.sequence_length, stage.document_tokens_min


def share(count: int, rank: int, world: int) -> tuple[int, int]:
    """(offset, size) of rank `rank`'s slice of `count` samples: consecutive slices that differ by at most one, because
    K2's 16,384 do not divide by every number of data-parallel ranks (RECIPE 7)."""
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is not one of {world}")
    low, high = count * rank // world, count * (rank + 1) // world
    return low, high - low
