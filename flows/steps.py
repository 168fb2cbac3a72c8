"""The graph of a request: its preset read, the recipe drawn, the precision decided."""

from __future__ import annotations

from dataclasses import replace

from flows.graph import Graph, Stages
from flows.held import once
from flows.preset import Preset, load_preset
from flows.recipe import recipe
from flows.request import Request
from tasks.agentic.verdicts import refused
from tasks.artifact import NotReady, Step
from training.precision import PRECISIONS, decided, undecided


def graph(request: Request, preset: Preset | None = None) -> Graph:
    """The recipe's steps for `request`, their precision decided: what their training was begun in under
    `request.root`, else what this machine multiplies fast."""
    p = preset or load_preset(request)
    if not undecided(p):
        return drawn(request, p)
    drawings = {precision: drawn(request, decided(p, precision)) for precision in PRECISIONS}
    chosen, _ = precision_of(drawings, p.execution.device)
    (other,) = (found for precision, found in drawings.items() if precision != chosen)
    return replace(drawings[chosen], other=other)


def drawn(request: Request, p: Preset) -> Graph:
    """What the recipe says of a preset, and of what people said of its dialogues."""
    stages = Stages(request.root, p.sources.snapshot)
    recipe(reviewed(p, request), stages)
    return stages.graph


def reviewed(p: Preset, request: Request) -> Preset:
    """The preset without the dialogues of this recipe that people refused."""
    root, name = request.root, request.recipe
    if not (said := once(("refused", root, name), lambda: refused(root, name))):
        return p
    ids = tuple(sorted({*p.dialogues.refused, *said}))
    return p.model_copy(update={"dialogues": p.dialogues.model_copy(update={"refused": ids})})


def precision(request: Request, p: Preset) -> tuple[str, bool]:
    """What `auto` stands for in a preset that leaves it open, and whether its training was begun in that."""
    return precision_of({each: drawn(request, decided(p, each)) for each in PRECISIONS}, p.execution.device)


def precision_of(drawings: dict[str, Graph], device: str) -> tuple[str, bool]:
    """Which of the drawings, by their precision, is to be followed, and whether its training was begun."""
    begun = begun_in(drawings)
    if len(begun) == 1:
        return begun[0], True
    from model.precision import speed  # here, because torch takes a second and a half to import

    fast = speed(device).fast
    return fast, fast in begun


def begun_in(drawings: dict[str, Graph]) -> list[str]:
    """The precisions in which training has been begun or is done."""
    for pair in zip(*(found.steps for found in drawings.values()), strict=True):
        if not known(pair[0]):
            return []
        if len({step.fingerprint for step in pair}) > 1:  # the first stage on which the choice tells
            return [name for name, step in zip(drawings, pair, strict=True) if step.under_way()]
    return []


def known(step: Step) -> bool:
    """Whether the step has a fingerprint yet."""
    try:
        return bool(step.fingerprint)
    except NotReady:
        return False


def next_snapshot(found: Graph, preset: Preset) -> Step:
    """The sources of the snapshot that follows the newest. Raises NotReady where the preset pins another."""
    if preset.sources.snapshot is not None:
        raise NotReady(
            f"sources.snapshot pins the corpus to snapshot {preset.sources.snapshot}: set it to null to refresh"
        )
    return replace(found["sources"], inputs=(found["sources"],))
