"""A stage that a test kills has no end of its own: it could reach it before the test saw where it is."""

from __future__ import annotations

import time
from typing import Any

from tasks.artifact import Artifact, Step


def without_end(name: str) -> None:
    """From now on stages of this name do all their work in this process, and are never published."""
    publish = Step.publish

    def waiting(step: Step, *arguments: Any, **named: Any) -> Artifact:
        while step.name == name:
            time.sleep(3600)
        return publish(step, *arguments, **named)

    Step.publish = waiting  # type: ignore[method-assign]
