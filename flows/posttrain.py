"""Post-training: the base model and synthetic dialogues in; SFT, RL and INT4 quantisation-aware training."""

from __future__ import annotations

from flows.dag import dag
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.agentic.tasks import synthesise
from tasks.artifact import Artifact
from tasks.training import train


@stage("posttrain")
def posttrain(request: Request) -> Artifact:
    """Dialogues, supervised fine-tuning, reinforcement learning with verifiable rewards, QAT."""
    preset = load_preset(request)
    plan, execution = dag(request, preset), preset.execution
    tokenizer, tokens, base = plan.tokenizer.require(), plan.tokens.require(), plan.base.require()
    dialogues = synthesise(plan.dialogues, tokenizer)
    tuned = train("training.sft", plan.sft, {"base": base, "dialogues": dialogues, "tokenizer": tokenizer}, execution)
    practised = {"sft": tuned, "dialogues": dialogues, "tokens": tokens, "tokenizer": tokenizer}
    reinforced = train("training.rl.train", plan.rl, practised, execution)
    quantised = {"rl": reinforced, "dialogues": dialogues, "tokenizer": tokenizer}
    return train("training.qat", plan.qat, quantised, execution)
