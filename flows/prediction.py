"""What a run of the rephrasing stage would ask, cost and take, said before anything is started."""

from __future__ import annotations

from flows.preset import load_preset
from flows.request import Request
from flows.steps import graph
from tasks.rephrase.rewriting import predict_run


def predicted(request: Request) -> list[str]:
    """Sentences for a person. Raises NotReady where there is no corpus yet."""
    preset = load_preset(request)
    found = graph(request, preset)
    step, execution = found["rewrites"], preset.execution
    if step.artifact() is not None:
        return ["rephrase is up to date: a run would ask nothing."]
    slots = execution.slots(preset.rephrase.engine)
    answers = execution.answers_folder(request.root)
    some = predict_run(step, found["corpus"].require(), execution.engine_url, slots, execution.engine_price, answers)
    told = [f"rephrase: {some.prediction.sentence()}."]
    if some.written:
        told.append(f"{some.written:,} documents are written already and left out of this.")
    if some.answers_kept:
        told.append("Answers of earlier runs are kept: what was asked then is not asked again, and it will be less.")
    return told
