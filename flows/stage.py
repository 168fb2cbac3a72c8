"""What every stage's flow has in common: a form for its parameters, the lock of its root, signs of life, its log, and
its progress as Prefect artifacts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from uuid import UUID

from prefect import flow
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.flows import Flow
from prefect.runtime import flow_run

from flows.held import held
from flows.preset import load_preset
from flows.request import Request
from flows.run_log import logged
from flows.watch import watched
from tasks.artifact import Artifact
from tasks.interrupts import answered
from tasks.lock import alone
from tasks.logs import plain, plain_logs
from tasks.progress import Tick, listen

EVERY = 5.0  # seconds between two updates of a progress artifact


def stage(name: str) -> Callable[[Callable[[Request], Artifact]], Flow[[Request], Artifact]]:
    """A Prefect flow from a function of one `Request`; its ticks appear as progress artifacts of the run."""

    def decorate(function: Callable[[Request], Artifact]) -> Flow[[Request], Artifact]:
        @flow(name=name, flow_run_name=f"{name}-{{request.name}}", validate_parameters=True)
        @wraps(function)
        def run(request: Request) -> Artifact:
            plain_logs()  # a worker that runs a deployment has not done so
            with held():
                load_preset(request)  # a form that can't be followed waits for nobody
                with (
                    answered(),
                    watched(),
                    logged(),
                    alone(request.root, f"the run '{flow_run.name}'"),
                    progress_artifacts(),
                ):
                    return function(request)

        return run

    return decorate


@contextmanager
def progress_artifacts() -> Iterator[None]:
    """Mirror every tick into one progress artifact per label, at most every few seconds. Each belongs to the run that
    entered this block: within the recipe a tick shows once under the recipe's run and once under its stage's."""
    run = copy_context()
    shown: dict[str, tuple[UUID, float]] = {}

    def hear(tick: Tick) -> None:
        percent = min(100.0, 100.0 * tick.done / tick.total) if tick.total else 0.0
        now = time.monotonic()
        if tick.label not in shown:
            key = re.sub(r"[^a-z0-9-]", "-", f"progress-{tick.label}".lower())  # Prefect takes nothing else
            found = run.copy().run(create_progress_artifact, percent, key=key, description=plain(tick.sentence()))
            shown[tick.label] = (found, now)  # type: ignore[assignment]
        elif now - shown[tick.label][1] >= EVERY or tick.finished:
            identity = shown[tick.label][0]
            update_progress_artifact(identity, percent, description=plain(tick.sentence()))
            shown[tick.label] = (identity, now)

    with listen(hear):
        yield
