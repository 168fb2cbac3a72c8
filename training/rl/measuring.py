"""What RL has around its iterations: problems, services, the policy that plays, measurements before and after."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

from model.transformer import Transformer
from training.inputs import Dialogues
from training.intervals import paired_difference
from training.job import JobError
from training.posttraining import PostTraining
from training.rl.checkpoint_engine import ColocatedEndpoint
from training.rl.config import DEVELOPMENT, TEST, RlConfig
from training.rl.endpoint import Endpoint
from training.rl.environments import Problem, Services, verifiers
from training.rl.environments.fidelity_process import FidelityProcess
from training.rl.environments.table import SETS
from training.rl.judge import Judge
from training.rl.records import Records
from training.rl.rollout import Evaluation, Player, evaluate, first_of_each
from training.trainer import Trainer

log = logging.getLogger(__name__)


def made(
    config: RlConfig, fits: Callable[[Problem], bool] = lambda problem: True
) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """The problems of `rl.sets` to practise on, of development and of test: none is in two of them.

    Args:
        fits: whether the model's window has room for a reply to it; where it has none, the problem is left out.

    Raises:
        JobError: that leaves nothing to practise of a set.
    """
    train: list[Problem] = []
    development: list[Problem] = []
    test: list[Problem] = []
    for name, count in config.sets.items():
        watched, reported = max(1, count // DEVELOPMENT), max(1, count // TEST)
        asked = count + watched + reported
        if name == "verifiers" and config.library is not None:
            drawn = verifiers.problems(asked, str(config.seed), config.library)
        else:
            drawn = SETS[name](asked, str(config.seed))
        there = {problem.id: problem for problem in drawn}
        found = [problem for problem in there.values() if fits(problem)]
        if long := len(there) - len(found):
            log.warning("rl.sets: %d of %d problems of '%s' fill the model's window: left out", long, len(there), name)
        # a set that has fewer gives each its share
        ends = len(found) - max(1, round(len(found) * reported / asked))
        begins = ends - max(1, round(len(found) * watched / asked))
        if long and begins < 1:
            raise JobError(
                f"rl.sets has {name!r}, of which {len(found)} of {len(there)} problems leave room for a reply in the "
                "model's window: too few for practice, development and test; leave it out, or give the model more"
            )
        train += found[:begins]
        development += found[begins:ends]
        test += found[ends:]
    return train, development, test


class Measuring(PostTraining):
    """An objective that plays, and is held against its beginning on the same problems with the same draws."""

    config: RlConfig

    def __init__(self, trainer: Trainer) -> None:
        """Opens what environments share."""
        super().__init__(trainer)
        config = self.config
        train, development, test = made(config, self._fits)
        self.made = sorted({problem.environment for problem in train})
        """Environments of `rl.sets`."""
        self.train = Dialogues(self.train.examples, [*self.train.problems, *train])
        self.problems = first_of_each([*self.development.problems, *development], config.evaluate_prompts)
        self.reported = first_of_each([*self.test.problems, *test], config.evaluate_prompts)
        """Of test: looked at before and after, and never in between."""
        self.open = ExitStack()
        self.judge = self.open.enter_context(Judge(config.judge, trainer.job.judge_url)) if config.judge else None
        support = self.judge.support if self.judge else None
        if config.fidelity is not None:
            support = self.open.enter_context(FidelityProcess(config.fidelity)).support
        self.records = Records(trainer.job.work, self.chat, config.record, config.iterations, trainer.world.rank == 0)
        self.endpoint: Endpoint | None = None
        if config.rollouts is not None:
            servers = Endpoint if config.rollouts.sync == "files" else ColocatedEndpoint
            self.endpoint = self.open.enter_context(servers(config.rollouts, trainer.world, trainer.watchdog.beat))
        self.services = self.open.enter_context(Services(support=support, judge=self.judge, library=config.library))

    def _fits(self, problem: Problem) -> bool:
        return len(self.chat.prompt(problem.messages, problem.tools)) < self.model.max_position_embeddings

    def fill(self, model: Transformer) -> None:
        super().fill(model)
        model.float32_head = self.config.float32_head

    def begin(self) -> None:
        self.load({"state": {"seen": {}, "tokens": 0, "responses": 0, "paused": []}})

    def close(self) -> None:
        self.open.close()

    def player(self, version: int, temperature: float, progress: float) -> Player:
        """The present policy, as it is sampled in this iteration."""
        config, trainer, rewards = self.config, self.trainer, self.config.rewards
        if progress < rewards.length_from:
            rewards = rewards.model_copy(update={"length_weight": 0.0})
        policy = trainer.whole(trainer.model).eval()
        if self.endpoint is not None:
            trainer.watchdog.beat("the rollouts' servers")
            self.endpoint.sync(policy, config.dtype, config.agreement)
            trainer.world.barrier()
        return Player(
            *(policy, self.chat, temperature, rewards, config.dtype, self.services),
            *(version, config.segment, trainer.world, trainer.watchdog.beat, config.replay_routing),
            endpoint=self.endpoint,
        )

    def measure(self, split: Literal["development", "test"]) -> Evaluation:
        """Pass rates of the present policy: on problems of test, whose replies are recorded, before and after; on those
        of development, one sample each, for a point of the curve."""
        config, trainer = self.config, self.trainer
        player, seed = self.evaluator(config.rewards, self.services), f"rl/{config.seed}/evaluation"
        if split == "test":
            recorded = partial(self.records.measured, trainer.done)
            found = evaluate(player, self.reported, config.evaluate_samples, seed, seen=recorded)
        else:
            found = evaluate(player, self.problems, 1, seed, greedy=False)
        trainer.metrics.write("evaluation", trainer.done, split=split, **found.record())
        return found

    def measure_first(self) -> bool:
        """The policy before any practice."""
        if self.config.evaluate_every:
            self.measure("development")
        self.counts["before"] = vars(self.measure("test"))
        return True

    def evaluates(self, number: int) -> bool:
        every = self.config.evaluate_every
        return number == self.steps or bool(every and number % every == 0)

    def evaluate(self, number: int) -> None:
        """A point of the curve, and at the end what is held against the beginning."""
        if self.config.evaluate_every:
            self.measure("development")
        if number == self.steps:
            self.counts["after"] = vars(self.measure("test"))

    def milestone(self, number: int) -> bool:
        return number == self.steps

    def summary(self) -> dict[str, Any]:
        counts = self.counts
        before, after = (Evaluation(**counts[name]) for name in ("before", "after"))
        names = sorted(set(before.environments))
        rises = {name: _rise(before.of(name), after.of(name)) for name in names}
        if lost := fallen(rises):
            log.warning(
                "right less often than before: %s. `rl.environments` gives them a larger share", ", ".join(lost)
            )
        return {
            "iterations": self.trainer.done,
            "before": before.record(),
            "after": after.record(),
            "rise": {**_rise(before, after), "by_environment": rises},
            "responses": counts["responses"],
            "response_tokens": counts["tokens"],
            "prompts_seen": len(counts["seen"]),
            **super().summary(),
        }


def _rise(before: Evaluation, after: Evaluation) -> dict[str, Any]:
    """By how much the policy is oftener right on the same problems, with paired 95 % intervals."""
    rises: dict[str, Any] = {}
    for kind in ("sampled", "greedy"):
        found = paired_difference(getattr(before, kind), getattr(after, kind))
        rises[kind] = {"rise": found.value, "interval": [found.low, found.high]}
    return rises


def fallen(rises: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The environments whose pass rate fell by more than chance, with the points that they lost."""
    lost = {name: rise["sampled"] for name, rise in rises.items() if rise["sampled"]["interval"][1] < 0}
    return [f"{name} ({100 * found['rise']:.0f} points)" for name, found in lost.items()]
