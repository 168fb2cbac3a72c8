"""Runs whose process died are shown as Crashed, not as running for ever.

A run says every few seconds, as a Prefect event, that it lives. An automation of the server ends it as Crashed when
that stops: be it that its process, its worker or its machine died, or that all of them died with the server, which
looks when it is started again. Every run sees to it that its server has the automation, so that any server will do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.states import Running

log = logging.getLogger(__name__)

# An event of our own: Prefect's own heartbeats come every three minutes, from runs that are not ours as well, and cost
# each flow a second at its end.
LIVES = "openk2.flow-run.lives"
EVERY = 20.0  # seconds between two signs of life
SILENCE = 80.0  # seconds without one until a run is ended
NAME = "openk2: runs that died"
MESSAGE = f"No sign of life for {SILENCE:g} s: the run's process has died. Run it again: it goes on where it was."


def automation() -> AutomationCore:
    """Ends as Crashed whichever run gave a sign of life and then neither another nor an end."""
    ends = [f"prefect.flow-run.{name}" for name in ("Completed", "Failed", "Cancelled", "Crashed")]
    return AutomationCore(
        name=NAME,
        description="Made by openk2. Disable it and runs whose process died stay Running.",
        trigger=EventTrigger(
            after={LIVES},
            expect={LIVES, *ends},
            match={"prefect.resource.id": "prefect.flow-run.*"},  # type: ignore[arg-type]
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE),
        ),
        actions=[ChangeFlowRunState(name=None, state=StateType.CRASHED, message=MESSAGE, force=False)],
    )


@contextmanager
def watched() -> Iterator[None]:
    """Give signs of life of the current flow run for as long as the block runs. A server that takes none costs the run
    nothing but the watch."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        yield
        return
    over = threading.Event()
    beat = threading.Thread(target=copy_context().run, args=(_beat, context.flow_run, over), daemon=True)
    beat.start()
    try:
        yield
    finally:
        over.set()


def _beat(run: FlowRun, over: threading.Event) -> None:
    asked = False
    while not over.is_set():
        try:
            if not asked:
                _ask()
                asked = True
            else:
                _revive(run)
            resource = {"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.name": run.name}
            emit_event(LIVES, resource)
        except Exception as error:
            log.debug("no sign of life could be given: %s", error)
        over.wait(EVERY)


def _ask() -> None:
    """See to it that the server watches."""
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(NAME):
            client.create_automation(automation())


def _revive(run: FlowRun) -> None:
    """Put right what the automation said of a run that lives: its machine slept, or the server was away for long."""
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run.id).state
        if state is not None and state.is_crashed() and state.message == MESSAGE:
            client.set_flow_run_state(run.id, Running(message="It lives: it could not say so in time."), force=True)
