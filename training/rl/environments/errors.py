"""What ends a job because of an environment."""

from __future__ import annotations

from training.job import JobError


class EnvironmentUnavailable(JobError):
    """An environment lacks what it needs on this machine; the text says what to install or configure."""
