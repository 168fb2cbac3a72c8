"""Release: the quantisation-aware trained model in; bf16 and INT4 checkpoints in Kimi K2's layout, measured, out."""

from __future__ import annotations

from flows.dag import dag
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.evaluate.tasks import evaluate, publish


@stage("release")
def release(request: Request) -> Artifact:
    """Both checkpoints written and verified; then base, SFT, RL and released models on the same held-out problems."""
    preset = load_preset(request)
    plan = dag(request, preset)
    released = publish(plan.release, plan.qat.require(), plan.tokenizer.require())
    measured = {step.name: step.require() for step in (plan.base, plan.sft, plan.rl, plan.dialogues, plan.tokens)}
    return evaluate(plan.evaluation, {"release": released, **measured}, preset.execution)
