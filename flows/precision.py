"""In which precision a run trains: decided once, when it is submitted, and said in one sentence.

A run keeps the precision that it began with, on whatever machine it goes on; a new one takes what its device multiplies
fast; what a preset or an override says outright is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.preset import Preset, load_preset
from flows.request import Request
from flows.steps import precision as precision_of
from model.precision import speed
from training.precision import decided, precisions, undecided

FIELD = "execution.precision"


@dataclass(frozen=True)
class Settled:
    """A request that leaves no precision open, and what a person should hear of it."""

    request: Request
    decision: str = ""
    """What `auto` came to stand for, and why; empty where nothing was open."""
    warning: str = ""
    """What the run keeps, or was told to take, that its device multiplies slowly; empty where nothing is."""


def settle(request: Request) -> Settled:
    """`request` with its precision decided, for the run and for every flow and worker that it is passed on to."""
    preset = load_preset(request)
    measured = speed(preset.execution.device)
    decision, kept, settled = "", False, request
    if undecided(preset):
        precision, kept = precision_of(request, preset)
        preset, settled = decided(preset, precision), _with(request, precision)
        why = ", in which this run was begun" if kept else f": {measured.of('bfloat16')}"
        decision = f"Training in {precision}{why}"
    if slow := _slow(request, preset, measured.fast):
        value, outright = precisions(preset)[slow[0]], [name for name in slow if name not in _open(request)]
        what, field = (f"{', '.join(outright)} = {value}", outright[0]) if outright else (value, FIELD)
        effect = "begins training anew" if kept else "is faster"
        warning = f"{what} is slow here: {measured.of(value)}; `--set {field}={measured.fast}` {effect}"
        return Settled(settled, decision, warning)
    return Settled(settled, decision)


def _slow(request: Request, preset: Preset, fast: str) -> list[str]:
    """The precisions of `preset` worth a warning. bfloat16 where it is slow takes many times as long, whoever asked;
    float32 costs less, and a preset that says so has its reasons (laptop's `rl`): only whoever else chose it hears."""
    told = {*_open(request), *(text.partition("=")[0].strip() for text in request.overrides)}
    return [
        name for name, value in precisions(preset).items() if value != fast and (value == "bfloat16" or name in told)
    ]


def _open(request: Request) -> list[str]:
    """The precisions that the preset itself leaves open."""
    return undecided(load_preset(_with(request, "auto")))


def _with(request: Request, precision: str) -> Request:
    return request.model_copy(update={"overrides": [*request.overrides, f"{FIELD}={precision}"]})
