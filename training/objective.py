"""What a run trains for, as the trainer asks it: its steps, its evaluations, its end."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from model.config import Config, ModelConfig
from model.transformer import Transformer
from training.config import MuonClipConfig, SpikeConfig
from training.spikes import Rollback

if TYPE_CHECKING:
    from training.trainer import Trainer


class Diverged(RuntimeError):
    """The loss or the gradient went out of bounds, or is not a number, more often than the run may go round it."""


class Objective:
    """What a run trains for. Its methods are called by every rank, in the same order, with the same numbers."""

    settings: ClassVar[type[Config]]
    """The class of its configuration."""
    unit: ClassVar[str] = "updates"
    """What its steps are."""
    measures: ClassVar[tuple[str, ...]] = ()
    """Names of what its losses measure beside themselves."""
    spikes: SpikeConfig | None = None
    """What a spike is; without it only a loss or a gradient that is not finite, which ends the run."""
    weights: str = "float32"
    """Precision of the weights on the ranks that work with them."""
    model: ModelConfig
    """The network's shape."""
    optimizer: MuonClipConfig
    """MuonClip's constants."""
    steps: int
    """Those of the whole run, at most."""
    identity: dict[str, Any]
    """What a checkpoint must have in common with the run that takes it up, by name."""

    def __init__(self, trainer: Trainer) -> None:
        """Read and check the inputs."""
        self.trainer = trainer

    def fill(self, model: Transformer) -> None:
        """Give the rank's part of the network, whose numbers are not set, the weights to begin with."""
        raise NotImplementedError

    def begin(self) -> None:
        """Be as before the first step; it comes again where the run goes back."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the objective, as JSON has it."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""

    def measure_first(self) -> bool:
        """Measure what has to be known before the first step of a new run; whether there was anything, so that it is
        put into a checkpoint."""
        return False

    def step(self, number: int) -> str:
        """Take step `number`, from 1: one `Trainer.update` or several. A word on it for who watches.

        Raises `Spike`, having changed no weight, where it must not be taken.
        """
        raise NotImplementedError

    def evaluates(self, number: int) -> bool:
        """Whether there is an evaluation after step `number`."""
        return False

    def evaluate(self, number: int) -> None:
        """The evaluation after step `number`."""

    def milestone(self, number: int) -> bool:
        """Whether step `number`, and the evaluation after it, are followed by a checkpoint in any case."""
        return False

    @property
    def finished(self) -> bool:
        """Whether the run has reached its end."""
        return self.trainer.done >= self.steps

    @property
    def stage_ends(self) -> Collection[int]:
        """Steps with which a stage ends, for the retention of checkpoints."""
        return ()

    def rollback(self, number: int, to: int, reason: str) -> Rollback:
        """What is left out when the run goes back from step `number`, a spike, to step `to`."""
        raise Diverged(f"step {number}: {reason}: nothing was applied; lower the learning rate")

    def progress(self) -> dict[str, Any]:
        """What `progress.json` tells beside the count of steps."""
        return {}

    def summary(self) -> dict[str, Any]:
        """The stage's statistics at the end."""
        return {}

    def close(self) -> None:
        """Let go of what is open."""
