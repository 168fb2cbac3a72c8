"""Runs whose process died are shown as Crashed, not as running for ever.

A run says every few seconds, as a Prefect event, that it lives. An automation of the server ends it as Crashed when
that stops. Every run sees to it that its server has the automation, so that any server will do.

A server that was away has forgotten whom it waited for. So `make ui` (`flows.deployment`) and every run that
begins ask the runs that are shown as running whether they live: who does not say so in time is ended like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import FlowRunContext
from prefect.events import Event, Resource
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.states import Running

log = logging.getLogger(__name__)

# Events of our own: Prefect's heartbeats come every three minutes, from runs that are not ours as well, and cost each
# flow a second at its end.
LIVES = "openk2.flow-run.lives"
ASKED = "openk2.flow-run.asked"
EVERY = 20.0  # seconds between two signs of life
SILENCE = 80.0  # seconds without one until a run is ended
NAME = "openk2: runs that died"
MESSAGE = f"No sign of life for {SILENCE:g} s: the run's process has died. Run it again: it goes on where it was."


def automation() -> AutomationCore:
    """Ends as Crashed whichever run gave a sign of life, or was asked for one, and then gave none and did not end."""
    ends = [f"prefect.flow-run.{name}" for name in ("Completed", "Failed", "Cancelled", "Crashed")]
    return AutomationCore(
        name=NAME,
        description="Made by openk2. Disable it and runs whose process died stay Running.",
        trigger=EventTrigger(
            after={LIVES, ASKED},
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


def ask(ours: bool = False) -> None:
    """See to it that the server watches, and that it knows whom: the runs under way that once gave a sign of life, or,
    where the server is ours and so is every run, all of them, also those that never came to their first step."""
    states = [StateType.RUNNING, StateType.CANCELLING, *([StateType.PENDING] if ours else [])]
    under_way = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=states)))
    with get_client(sync_client=True) as client:
        if not client.read_automations_by_name(NAME):
            client.create_automation(automation())
        runs = client.read_flow_runs(flow_run_filter=under_way)
        if not ours:
            runs = [run for run in runs if _has_lived(client, run)]
        _tell(client, ASKED, runs)


def _beat(run: FlowRun, over: threading.Event) -> None:
    asked = False
    while not over.is_set():
        try:
            with get_client(sync_client=True) as client:
                if not asked:
                    ask()
                    asked = True
                else:
                    _revive(client, run)
                _tell(client, LIVES, [run])
        except Exception as error:
            log.debug("no sign of life could be given: %s", error)
        over.wait(EVERY)


def _revive(client: SyncPrefectClient, run: FlowRun) -> None:
    """Put right what the automation said of a run that lives: its machine slept, or the server was away for long."""
    state = client.read_flow_run(run.id).state
    if state is not None and state.is_crashed() and state.message == MESSAGE:
        client.set_flow_run_state(run.id, Running(message="It lives: it could not say so in time."), force=True)


def _has_lived(client: SyncPrefectClient, run: FlowRun) -> bool:
    wanted = {"event": {"name": [LIVES]}, "resource": {"id": [_resource(run)]}}
    return client.request("POST", "/events/filter", json={"filter": wanted, "limit": 1}).json()["total"] > 0


def _tell(client: SyncPrefectClient, event: str, runs: Iterable[FlowRun]) -> None:
    events = [Event(event=event, resource=Resource({"prefect.resource.id": _resource(run)})) for run in runs]
    if events:
        client.request("POST", "/events", json=[each.model_dump(mode="json") for each in events])


def _resource(run: FlowRun) -> str:
    return f"prefect.flow-run.{run.id}"
