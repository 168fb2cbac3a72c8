"""K2's schedule, as the preset has it."""

from __future__ import annotations

from functools import cache

from flows.preset import load_preset
from flows.request import PresetName, Request
from training.schedule import StagePlan


@cache
def k2_stages() -> StagePlan:
    """The stages of `flows/presets/k2.yaml`."""
    return load_preset(Request(preset=PresetName.k2)).pretrain.stages
