"""Supervised fine-tuning: dialogues packed into rows, the assistant's tokens trained, stopped at a pass rate.

    python -m training.sft --config job.json      inputs: base, dialogues, tokenizer

K2 trains RL on tasks of moderate difficulty for the SFT model. A small model and few families turn that round: SFT
stops as soon as the sampled pass rate on held-out problems enters the band (20 to 50 %), for a model that has learned
all of it leaves reinforcement learning nothing to win. Where the rate jumps over the band between two evaluations, the
run goes back to the earlier one and looks four times as often.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import torch
from torch import Tensor

from training.inputs import device_of, load_chat, load_model, load_splits
from training.job import Job, JobError
from training.muonclip import MuonClip
from training.packing import IGNORED, Packed
from training.rl.config import RewardConfig
from training.rl.rollout import evaluate, first_of_each
from training.run import Run, main, update
from training.sft_config import SftConfig

log = logging.getLogger(__name__)


class Tuning:
    """One SFT run."""

    def __init__(self, job: Job) -> None:
        self.config = job.configured(SftConfig)
        self.chat = load_chat(job.input("tokenizer"))
        train, heldout = load_splits(job.input("dialogues"))
        self.problems = first_of_each(heldout.problems, self.config.evaluate_prompts)
        self.device = device_of(job)
        self.model = load_model(job.input("base")).to(self.device)
        window = self.model.config.max_position_embeddings
        if self.config.sequence_length > window:
            raise JobError(
                f"sft.sequence_length = {self.config.sequence_length}: the base model's window is {window} tokens; "
                "pack shorter rows, and lower dialogues.max_tokens with them"
            )
        pad = self.model.config.pad_token_id
        self.packed = Packed(train.examples, self.config.sequence_length, self.config.rows, self.config.seed, pad)
        self.optimizer = MuonClip.for_model(self.model, self.config.optimizer)
        self.run = Run(job, self.config, self.model, self.optimizer, "updates", self.config.max_updates)
        self.began = time.monotonic()

    def fit(self) -> None:
        """Train until the band or the last update, and write `final/`."""
        config, run = self.config, self.run
        if not run.state:
            run.state = {"every": config.evaluate_every, "evaluated": 0, "tokens": 0, "trained": 0}
            run.save()
        state = run.state
        while True:
            if state["evaluated"] < run.step and (run.step % state["every"] == 0 or run.step == config.max_updates):
                verdict = self._judge(state)
                if verdict is not None:
                    run.finish(self._summary(verdict))
                    return
                state = run.state  # of an earlier step, where the run went back
            run.pause_if_asked()
            began = time.monotonic()
            values, tokens, trained = self._update()
            run.step += 1
            state["tokens"] += tokens
            state["trained"] += trained
            timing = {"seconds": time.monotonic() - began}
            run.metrics.write(
                "update", run.step, tokens=state["tokens"], trained=state["trained"], **values, timing=timing
            )
            run.tell(f"loss {values['loss']:.3f}")

    def _judge(self, state: dict[str, Any]) -> str | None:
        """Evaluate; why the run ends here, or None where it goes on (perhaps from an earlier step)."""
        config, run = self.config, self.run
        rewards = RewardConfig(budget=config.budget, budgets=config.budgets)
        seed = f"sft/{config.seed}/evaluation"
        samples, dtype = config.evaluate_samples, config.dtype
        found = evaluate(self.model, self.chat, self.problems, samples, seed, rewards, dtype)
        rate = found.of(config.gate).record()
        low, high = config.band
        earlier = state["evaluated"]
        if rate["sampled"] > high and state["every"] > 1:
            log.info("pass rate %.2f at update %d: over the band, going back to %d", rate["sampled"], run.step, earlier)
            run.back_to(earlier)
            run.state["every"] = max(1, state["every"] // 4)
            run.save()
            return None
        run.metrics.write("evaluation", run.step, gate=rate, **found.record())
        state["evaluated"] = run.step
        state["last"] = {"gate": rate, **found.record()}
        run.tell(f"pass rate {rate['sampled']:.0%} sampled, {rate['greedy']:.0%} greedy")
        if rate["sampled"] > high:
            return "over"
        if rate["sampled"] >= low:
            return "band"
        if run.step >= config.max_updates:
            log.warning("the pass rate is %.2f after the last update: it never reached the band", rate["sampled"])
            return "budget"
        run.save()
        return None

    def _update(self) -> tuple[dict[str, float], int, int]:
        """One update: its metrics, the tokens read and the tokens trained."""
        config = self.config
        lr = config.learning_rate * min(1.0, (self.run.step + 1) / max(1, config.warmup))
        tokens_BS, targets_BS, documents_BS, positions_BS = (
            tensor.to(self.device) for tensor in self.packed.batch(self.run.step)
        )
        trained_BS = targets_BS != IGNORED

        def forward() -> tuple[Tensor, Tensor | None]:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
                output = self.model(tokens_BS, positions_BS=positions_BS, document_ids_BS=documents_BS, max_logits=True)
                # Logits only where something is learned.
                loss = self.model.loss(output.hidden_BSD[trained_BS][None], targets_BS[trained_BS][None])
            return loss + output.aux_loss, output.max_logits_LH

        values = update(self.model, self.optimizer, lr, config.gradient_clip, [forward])
        read = int((documents_BS >= 0).sum())
        return {"learning_rate": lr, **values}, read, int(trained_BS.sum())

    def _summary(self, verdict: str) -> dict[str, Any]:
        """The stage's statistics."""
        state = self.run.state
        reasons = {
            "band": "the sampled pass rate entered the band",
            "over": "the sampled pass rate was above the band at once",
            "budget": "the last update came before the band",
        }
        return {
            "updates": self.run.step,
            "stopped": verdict,
            "stopped_because": reasons[verdict],
            "band": list(self.config.band),
            "pass_rate": state["last"]["gate"]["sampled"],
            "greedy_pass_rate": state["last"]["gate"]["greedy"],
            "evaluation": state["last"],
            "tokens": state["tokens"],
            "trained_tokens": state["trained"],
            "dialogues": len(self.packed.examples),
            "seed": self.config.seed,
            "seconds": round(time.monotonic() - self.began, 3),
        }


def run(job: Job) -> None:
    """The job."""
    Tuning(job).fit()


if __name__ == "__main__":
    sys.exit(main(run, "training.sft"))
