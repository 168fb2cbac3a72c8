"""What each training stage of a recipe asks of its ranks: base, SFT, RL and QAT, in the order in which they run.

By configuration alone and without torch: a preset is held against it when it is read, and `training.dry_run` weighs it.
Lengths are those of the longest rows that may come: a reply is taken to use its whole budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.config import ModelConfig, cache_values_per_token, flops_per_token, parameter_count
from model.footprint import MemoryConfig
from training.config import MuonClipConfig, PretrainConfig, RunConfig
from training.layout import Layout, LayoutError
from training.rl.config import DEVELOPMENT, MAX_ROWS, TEST, RlConfig
from training.sft_config import SftConfig

if TYPE_CHECKING:
    from training.plan import Hardware

DIALOGUES = "dialogues"
LOGIT_BYTES = 16  # a logit and its logarithm in float32, the probability in float64 (`model.generate`)


@dataclass(frozen=True)
class Phase:
    """Updates of one shape."""

    name: str
    """No other of its workload has it."""
    sequence_length: int
    """Tokens of a row."""
    batch: int
    """Rows of an update, over all ranks."""
    micro_batch: int
    """Rows of one forward and backward."""
    memory: MemoryConfig
    tokens: int
    """Of the whole run, padding included."""
    batch_field: str
    """What a user sets the batch by."""


@dataclass(frozen=True)
class Sampling:
    """Replies that the ranks share, each rank sampling its own from the whole model."""

    rounds: int
    """How often in the run."""
    replies: int
    """Of a round."""
    prompt: int
    """Tokens of the longest prompt."""
    budget: int
    """Tokens of the longest reply."""

    def rows(self, ranks: int) -> int:
        """Replies that are under way at once on a rank."""
        return min(MAX_ROWS, -(-self.replies // ranks))

    def steps(self, ranks: int) -> int:
        """Tokens that a rank samples one after the other in the whole run."""
        return self.rounds * -(-self.replies // ranks // MAX_ROWS) * self.budget


@dataclass(frozen=True)
class Workload:
    """One training stage."""

    name: str
    """`base`, `sft` or `rl`."""
    section: str
    """Of the preset."""
    model: ModelConfig
    """With the window that it has in this stage."""
    run: RunConfig
    optimizer: MuonClipConfig
    dtype: str
    """Precision of the products."""
    weights: str
    """Precision of the weights on the ranks."""
    phases: tuple[Phase, ...]
    sampling: tuple[Sampling, ...] = ()
    int4: bool = False
    """Whether replies are sampled with the routed experts rounded, which is a copy of them."""

    @property
    def layout(self) -> Layout:
        """How the ranks are arranged."""
        return self.run.layout

    def require(self, ranks: int, device_bytes: float | None = None) -> None:
        """Raise `ValueError` (`LayoutError` where they are too many or do not divide), naming the field and what to do,
        where `ranks` with so much memory each cannot run this stage at all."""
        try:
            self.layout.require(self.model)
            readers = self.layout.data(ranks) * self.layout.expert
        except LayoutError as error:
            raise LayoutError(f"{self.section}.run.layout: {error}") from None
        for phase in self.phases:
            if phase.batch < readers:
                raise LayoutError(
                    f"{phase.batch_field} is {phase.batch:,} for {readers:,} data-parallel ranks (execution.processes "
                    f"x execution.nodes / {self.section}.run.layout.pipeline): some would have nothing to train on; "
                    "raise it, or take fewer ranks or more pipeline ranks"
                )
        if device_bytes is not None and (needed := self.sampling_bytes(ranks)) > device_bytes:
            raise ValueError(
                f"stage {self.name} samples replies from the whole model on every rank, which takes "
                f"{needed / 1e9:,.1f} GB, and execution.device_bytes is {device_bytes / 1e9:,.1f} GB: take a smaller "
                "model or devices with more memory (sampling over several ranks is not built)"
            )

    def sampling_bytes(self, ranks: int) -> int:
        """What a rank takes to sample replies, beside what it trains with; temporaries of a layer apart.

        The whole model, put together from all ranks' parts where none has all of it, and the experts that are rounded;
        the generator's own copy in the precision of the products; and for the replies under way what the cache keeps of
        their tokens, and the logits and probabilities of the next one.
        """
        if not self.sampling:
            return 0
        count, size = parameter_count(self.model), 4 if self.dtype == "float32" else 2
        cached, logits = size * cache_values_per_token(self.model), LOGIT_BYTES * self.model.vocab_size
        rows = max(each.rows(ranks) * ((each.prompt + each.budget) * cached + logits) for each in self.sampling)
        gathered = 4 * count.total * (self.layout.copy_ranks > 1)
        rounded = 4 * count.components["routed_experts"] // self.layout.copy_ranks * self.int4
        return gathered + rounded + size * count.total + rows

    def seconds(self, ranks: int, hardware: Hardware) -> float:
        """How long it takes: matrix products at the share of the peak that `hardware` achieves, and for every token of
        a reply all weights read once from its memory."""
        flops = sum(phase.tokens * flops_per_token(self.model, phase.sequence_length) for phase in self.phases)
        size = (2 if self.dtype == "bfloat16" else 4) * parameter_count(self.model).total
        steps = sum(each.steps(ranks) for each in self.sampling)
        return flops / hardware.achieved_flops / ranks + steps * size / hardware.memory_bandwidth


def chain(
    pretrain: PretrainConfig, sft: SftConfig, rl: RlConfig, dialogue_tokens: int, environments: int
) -> tuple[Workload, Workload, Workload]:
    """The three stages of a recipe whose longest dialogue has `dialogue_tokens`, its problems in so many environments.

    Each begins with the model that the one before it made; the window is the one to which pretraining stretched it.
    """
    after = pretrain.model
    if (factor := pretrain.stages.stages[-1].yarn_factor) > 1:
        after = after.with_yarn(factor)
    return (
        of_pretraining(pretrain),
        of_sft(sft, after, dialogue_tokens, environments),
        of_rl(rl, after, dialogue_tokens, environments),
    )


def of_pretraining(config: PretrainConfig) -> Workload:
    """Pretraining: a phase for each of its stages."""
    phases = tuple(
        Phase(
            span.stage.name,
            span.stage.sequence_length,
            span.stage.batch,
            config.run.micro_batch,
            config.run.memory_in(span.stage.name),
            span.updates * span.stage.tokens_per_update,
            f"the batch of {span.stage.name!r} in pretrain.stages",
        )
        for span in config.stages.spans
    )
    return Workload(
        "base", "pretrain", config.model, config.run, config.optimizer, config.dtype, config.weights, phases
    )


def of_sft(config: SftConfig, model: ModelConfig, dialogue_tokens: int, environments: int) -> Workload:
    """SFT to its last update, the band never reached."""
    rounds = -(-config.updates // config.evaluate_every) + 1  # the last one, of all families, measures the end
    phases = [
        _rows(
            f"{DIALOGUES}, stage {place + 1}" if place else DIALOGUES,
            f"sft.then[{place - 1}].rows" if place else "sft.rows",
            *(stage.sequence_length, stage.rows, stage.updates, config.run),
        )
        for place, stage in enumerate(config.stages)
    ]
    if config.text_weight and config.text_samples:
        text = (config.text_sequence_length, config.text_samples, config.updates, config.run)
        phases.append(_text("sft.text_samples", *text))
    return _tuning(
        "sft",
        model,
        config,
        tuple(phases),
        (_evaluation(config, environments, rounds, dialogue_tokens, _longest(config.budget, config.budgets)),),
    )


def of_rl(config: RlConfig, model: ModelConfig, dialogue_tokens: int, environments: int) -> Workload:
    """RL: a row is a prompt with all its responses (`training.rl.tree`); beside them rows of pretraining tokens."""
    budget = _longest(config.rewards.budget, config.rewards.budgets)
    row = min(dialogue_tokens + config.responses * (budget - 1), model.max_position_embeddings)
    phases = [
        Phase(
            "replies",
            row,
            config.prompts,
            max(1, config.run.micro_tokens // row),
            config.run.memory,
            config.iterations * config.prompts * row,
            "rl.prompts",
        )
    ]
    steps = config.iterations * config.updates  # each has pretraining tokens and dialogues of its own
    if config.ptx_weight and config.ptx_samples:
        text = (config.ptx_sequence_length, config.ptx_samples, steps, config.run)
        phases.append(_text("rl.ptx_samples", *text))
    if config.dialogue_weight and config.dialogue_rows:
        rows = (config.dialogue_sequence_length, config.dialogue_rows, steps, config.run)
        phases.append(_rows(DIALOGUES, "rl.dialogue_rows", *rows))
    practice = Sampling(config.iterations, config.prompts * config.responses, dialogue_tokens, budget)
    curve = 2 + (config.iterations - 1) // config.evaluate_every if config.evaluate_every else 0
    watched, reported = (
        config.evaluate_prompts * environments + config.held_out(share) for share in (DEVELOPMENT, TEST)
    )
    measured = Sampling(2, reported * (config.evaluate_samples + 1), dialogue_tokens, budget)
    shown = Sampling(curve, watched, dialogue_tokens, budget)
    return _tuning("rl", model, config, tuple(phases), (practice, measured, shown))


def _tuning(
    name: str,
    model: ModelConfig,
    config: SftConfig | RlConfig,
    phases: tuple[Phase, ...],
    sampling: tuple[Sampling, ...],
) -> Workload:
    # weights in float32, whatever the base was trained in (`training.objective`)
    stage = (config.run, config.optimizer, config.dtype, "float32", phases, sampling, config.int4)
    return Workload(name, name, model, *stage)


def _rows(name: str, field: str, length: int, rows: int, updates: int, run: RunConfig) -> Phase:
    """Updates on rows into which dialogues are packed."""
    return Phase(name, length, rows, run.micro_batch, run.memory, updates * rows * length, field)


def _text(field: str, length: int, samples: int, updates: int, run: RunConfig) -> Phase:
    """Samples of pretraining text beside what an update is about."""
    tokens = updates * samples * length
    return Phase("pretraining tokens", length, samples, run.micro_batch, run.memory, tokens, field)


def _evaluation(config: SftConfig, environments: int, rounds: int, prompt: int, budget: int) -> Sampling:
    """Sampled replies and a greedy one to each held-out problem."""
    replies = config.evaluate_prompts * environments * (config.evaluate_samples + 1)
    return Sampling(rounds, replies, prompt, budget)


def _longest(budget: int, budgets: dict[str, int]) -> int:
    return max([budget, *budgets.values()])
