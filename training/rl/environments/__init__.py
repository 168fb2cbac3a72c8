"""Environments of reinforcement learning: what a problem is, and what judges the replies to it."""

from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.protocol import (
    Environment,
    EnvironmentLawBroken,
    Observation,
    Outcome,
    Problem,
)
from training.rl.environments.services import Services
from training.rl.environments.table import ENVIRONMENTS, SETS, environment, play

__all__ = [
    "ENVIRONMENTS",
    "SETS",
    "Environment",
    "EnvironmentLawBroken",
    "EnvironmentUnavailable",
    "Observation",
    "Outcome",
    "Problem",
    "Services",
    "environment",
    "play",
]
