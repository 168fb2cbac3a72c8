"""Environments of reinforcement learning: what a problem is, and what judges the replies to it.

Their table is not imported here: what needs a problem or one judge alone would depend on every other and its files.
"""

from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.protocol import (
    Environment,
    EnvironmentLawBroken,
    Observation,
    Outcome,
    Problem,
)
from training.rl.environments.services import Services

__all__ = [
    "Environment",
    "EnvironmentLawBroken",
    "EnvironmentUnavailable",
    "Observation",
    "Outcome",
    "Problem",
    "Services",
]
