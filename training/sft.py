"""Supervised fine-tuning: dialogues packed into rows, the assistant's tokens trained, pretraining text beside them.

    python -m training.sft --config job.json      inputs: base, dialogues, tokens, tokenizer

K2 trains RL on tasks of moderate difficulty for the SFT model. A small model and few families turn that round: a family
whose sampled pass rate on development problems has entered the band (20 to 50 %) rests from then on, for a model that
has learned all of it leaves reinforcement learning nothing to win; a family that falls below the band is taken up
again. Dialogues with tools never rest. The run ends when all that is trained rests, or with its last update. The
summary says which families RL shall train on.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from training.fidelity import fidelity, tool_turns, try_tools
from training.heldout import HeldoutText
from training.inputs import Example
from training.job import JobError
from training.packing import Packed
from training.posttraining import PostTraining
from training.pretrain import parts_of
from training.rl.environments import Services
from training.rl.rollout import Evaluation, evaluate
from training.selection import select
from training.sft_config import SftConfig, SftStage
from training.trainer import Trainer, main

VERSION = 6  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

REASONS = {
    "band": "every family's sampled pass rate had entered the band",
    "budget": "it had taken its last update",
}
"""Why a run stopped."""


class Tuning(PostTraining):
    """The assistant's next token, each family until its pass rate is in the band."""

    settings, source = SftConfig, "base"
    measures = ("dialogue_loss", "ptx_loss")

    def __init__(self, trainer: Trainer) -> None:
        """Refuses rows that are longer than the base model's window; opens the pretraining tokens where they are mixed
        in."""
        super().__init__(trainer)
        config = self.config
        self.require_window("sft", config.longest)
        self._require_rows()
        self.steps = config.updates
        with_tools = {problem.environment for problem in self.development.problems if problem.tools}
        known = {example.environment for example in self.train.examples}
        measured = {problem.environment for problem in self.problems}
        if unknown := sorted(set(config.gate) - known - measured):
            raise JobError(f"gate names {unknown[0]!r}, and the dialogues are of {', '.join(sorted(known))}")
        self.families = sorted(set(config.gate) or known - with_tools - {"world"})
        """Those that rest."""
        if self.families and not measured & set(self.families):
            raise JobError(f"no development problem is of {', '.join(self.families)}: nothing says when they rest")
        self.never_rest = sorted(known - set(self.families))
        self.packed: dict[tuple[int, tuple[str, ...]], Packed] = {}
        """Rows by the stage and by what rests in it."""
        self.heldout = HeldoutText(trainer, trainer.job.input("tokens"))
        self.heldout.warn_without(config.text_sequence_length, f"text of {config.text_sequence_length} tokens")
        wanted = config.text_samples and config.text_weight
        self.pretraining = self.text_loader(config.text_sequence_length) if wanted else None

    def _require_rows(self) -> None:
        """Raise `JobError` where a dialogue is too long for all stages, or every one for some stage: a stage that
        cannot begin must not be found out when the one before it is done."""
        lengths = [len(each.ids) for each in self.train.examples]
        if (most := max(lengths, default=0)) > self.config.longest:
            raise JobError(
                f"a dialogue has {most} tokens and the longest row {self.config.longest}: raise sequence_length, or "
                "lower dialogues.max_tokens"
            )
        shortest = min(stage.sequence_length for stage in self.config.stages)
        if not any(length <= shortest for length in lengths):
            raise JobError(f"no dialogue has at most {shortest} tokens, the rows of a stage: raise its sequence_length")

    def begin(self) -> None:
        self.counts = {"evaluated": 0, "tokens": 0, "trained": 0, "text": 0, "resting": [], "stopped": None}

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self, number: int) -> str:
        """One update."""
        trainer, config = self.trainer, self.config
        place, own = staged(config.stages, number)
        stage = config.stages[place]
        parts, read, trained = self.dialogues(self._awake(place), own - 1)
        if self.pretraining is not None:
            parts += self.text(self.pretraining, number - 1, config.text_samples, config.text_weight)
            self.counts["text"] += config.text_samples * config.text_sequence_length
        # Dialogues go to other experts than the base's text: without balance a few took ten times their share.
        totals, values = trainer.update(parts, stage.rate(own), bias_update_rate=self.model.bias_update_rate)
        self.counts["tokens"] += read
        self.counts["trained"] += trained
        counted = {name: self.counts[name] for name in ("tokens", "trained")}
        self.record(number, counted | values, read, stage.sequence_length)
        return f"loss {totals.loss:.3f}"

    def _awake(self, place: int) -> Packed:
        """Rows of what does not rest, for the stage at that place."""
        resting, config = tuple(self.counts["resting"]), self.config
        if (place, resting) not in self.packed:
            stage = config.stages[place]
            fitting = [each for each in self.train.examples if len(each.ids) <= stage.sequence_length]
            order = f"{config.seed}/{place}" if place else config.seed
            rows = (stage.sequence_length, stage.rows, order, self.model.pad_token_id)
            self.packed[place, resting] = Packed(awake(fitting, resting), *rows)
        return self.packed[place, resting]

    # ------------------------------------------------------------------------------------------------- evaluation

    def evaluates(self, number: int) -> bool:
        return number % self.config.evaluate_every == 0 or number == self.steps

    def milestone(self, number: int) -> bool:
        """An evaluation, or the end of a stage."""
        return self.evaluates(number) or number in self.stage_ends

    @property
    def stage_ends(self) -> Collection[int]:
        return set(accumulate(stage.updates for stage in self.config.stages))

    def measure_first(self) -> bool:
        """The base model's loss on held-out text."""
        self.counts["text_before"] = self._text_losses()
        return True

    def evaluate(self, number: int) -> None:
        """Hold each family's pass rate against the band; where the run ends, measure everything."""
        counts, low = self.counts, self.config.band[0]
        found = self._rates(self.families) if self.families else None
        if found is not None:
            record = found.record()
            rates = {name: entry["sampled"] for name, entry in record["by_environment"].items()}
            counts["resting"] = [name for name in self.families if rates.get(name, low) >= low]
            self.trainer.metrics.write("evaluation", number, resting=counts["resting"], **record)
            told = ", ".join(f"{name} {rate:.0%}" for name, rate in sorted(rates.items()))
            log.info("update %d, right of sampled replies: %s", number, told)
        counts["evaluated"] = number
        if self.families and not self.never_rest and set(counts["resting"]) == set(self.families):
            counts["stopped"] = "band"
        elif number >= self.steps:
            counts["stopped"] = "budget"
        if counts["stopped"]:
            self._measure()

    def _measure(self) -> None:
        """What the summary says of the finished model, all of it on development problems and held-out text."""
        trainer, config, counts = self.trainer, self.config, self.counts
        names = {example.environment for example in self.train.examples}
        found = self._rates(names).record()
        counts["last"] = found
        rates = {name: entry["sampled"] for name, entry in found["by_environment"].items() if name in names}
        counts["selection"] = select(rates, config.band)
        counts["text_after"] = self._text_losses()
        turns = tool_turns(trainer.job.input("dialogues"), "development", config.evaluate_prompts)
        if turns:
            model, budget = trainer.whole(trainer.model).eval(), config.rewards.budget_of("tool_call")
            tried = try_tools(model, self.chat, turns, budget, config.dtype, trainer.watchdog.beat)
            counts["tools"] = fidelity(turns, tried)
        below = [name for name in self.families if rates.get(name, 1.0) < config.band[0]]
        if below:
            log.warning("after the last update these families never reached the band: %s", ", ".join(below))

    def _rates(self, environments: Collection[str]) -> Evaluation:
        config = self.config
        problems = [problem for problem in self.problems if problem.environment in environments]
        with Services() as services:
            player = self.evaluator(config.rewards, services)
            return evaluate(player, problems, config.evaluate_samples, f"sft/{config.seed}/evaluation")

    def _text_losses(self) -> dict[str, float]:
        config = self.config
        return self.heldout.losses(config.text_sequence_length, config.text_evaluated, partial(parts_of, self.trainer))

    @property
    def finished(self) -> bool:
        return self.counts["stopped"] is not None

    def summary(self) -> dict[str, Any]:
        counts, config = self.counts, self.config
        before, after = counts["text_before"], counts["text_after"]
        return {
            "updates": self.trainer.done,
            "stopped": counts["stopped"],
            "stopped_because": REASONS[counts["stopped"]],
            "band": list(config.band),
            "pass_rate": counts["last"]["sampled"],
            "greedy_pass_rate": counts["last"]["greedy"],
            "evaluation": counts["last"],
            "selection": counts["selection"],
            "resting": counts["resting"],
            "tools": counts.get("tools", {}),
            "text": {"before": before, "after": after, "rise": _mean(after) - _mean(before)},
            "tokens": counts["tokens"],
            "trained_tokens": counts["trained"],
            "text_tokens": counts["text"],
            "dialogues": len(self.train.examples),
            **super().summary(),
        }


def staged(stages: Sequence[SftStage], number: int) -> tuple[int, int]:
    """The place of the stage that update `number` of the run belongs to, and its number within that, from 1."""
    for place, stage in enumerate(stages):
        if number <= stage.updates:
            return place, number
        number -= stage.updates
    raise ValueError("the stages have fewer updates")


def _mean(losses: Mapping[str, float]) -> float:
    return sum(losses.values()) / len(losses) if losses else 0.0


def awake(examples: Sequence[Example], resting: Collection[str]) -> list[Example]:
    """The dialogues of environments that do not rest; all of them where every one does."""
    return [each for each in examples if each.environment not in resting] or list(examples)


if __name__ == "__main__":
    sys.exit(main(Tuning, "training.sft"))
