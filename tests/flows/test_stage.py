"""What every stage's flow has in common, against a real server: its log, its lock, its signs of life."""

from __future__ import annotations

import logging
import threading
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import FlowRunContext
from prefect.logging.handlers import APILogWorker
from prefect.states import Crashed

from flows import stage as stage_module
from flows import watch
from flows.preset import PresetError, load_preset
from flows.request import PresetName, Request
from flows.stage import progress_artifacts, stage
from flows.steps import reviewed
from tasks.agentic.verdicts import append_verdict, verdicts_file
from tasks.artifact import Artifact
from tasks.lock import alone
from tasks.progress import Progress

pytestmark = pytest.mark.prefect
DONE = Artifact("done", "nowhere", "0")


def log_of(run: UUID) -> list[tuple[int, str]]:
    """Level and text of every line of a run's log but Prefect's own."""
    APILogWorker.drain_all()
    with get_client(sync_client=True) as client:
        lines = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])), limit=200)
    return [(line.level, line.message) for line in lines if not line.name.startswith("prefect")]


def current() -> FlowRun:
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    return context.flow_run


@pytest.fixture
def request_(tmp_path) -> Request:
    return Request(preset=PresetName.test, root=str(tmp_path / "root"))


def test_a_run_follows_the_preset_and_the_verdicts_that_it_began_with(tmp_path):
    """Whoever writes the file of the next run, or reviews this one's dialogues, must not change its later stages."""
    file, seen = tmp_path / "mine.yaml", list[tuple[int, tuple[str, ...]]]()
    request = Request(preset_file=str(file), root=str(tmp_path / "root"))

    def write(documents: int) -> None:
        file.write_text(f"extends: test\ndescription: mine\nrephrase: {{documents: {documents}}}\n")

    @stage("inner")
    def inner(request: Request) -> Artifact:
        preset = reviewed(load_preset(request), request)
        seen.append((preset.rephrase.documents, preset.dialogues.refused))
        return DONE

    @stage("outer")
    def outer(request: Request) -> Artifact:
        inner(request)
        write(4)
        append_verdict(verdicts_file(request.root), "a", "reject", "copy", "mine")
        inner(request)
        return DONE

    write(3)
    outer(request)
    inner(request)
    assert seen == [(3, ()), (3, ()), (4, ("a",))]


def test_progress_of_any_label_has_a_key_that_prefect_takes(monkeypatch):
    """A listener that fails is dropped, and with it the progress of all that follows."""
    keys: list[str | None] = []

    def create(percent: float, key: str, description: str) -> UUID:
        keys.append(ArtifactCreate(key=key, type="progress", data=percent).key)
        return UUID(int=0)

    monkeypatch.setattr("flows.stage.create_progress_artifact", create)
    with progress_artifacts(), Progress("source python3.11", 1, "MB"):
        pass
    assert keys == ["progress-source-python3-11"]


def test_a_run_s_log_holds_its_stages_lines_and_each_stage_its_own(server, request_):
    runs: dict[str, UUID] = {}

    @stage("inner")
    def inner(request: Request) -> Artifact:
        runs["inner"] = current().id
        logging.getLogger("training.somewhere").info("of the stage")
        thread = threading.Thread(target=logging.getLogger("tasks.somewhere").error, args=("of a thread, 100 %",))
        thread.start()
        thread.join()
        with Progress("counting", 500, "steps", every=0.0) as progress:
            for _ in range(500):
                progress.advance()
        return DONE

    @stage("outer")
    def outer(request: Request) -> Artifact:
        runs["outer"] = current().id
        logging.getLogger("flows.somewhere").info("before")
        logging.getLogger("flows.somewhere").debug("too fine")
        logging.getLogger("somebody.else").error("not ours")
        inner(request)
        return DONE

    outer(request_)
    logging.getLogger("tasks.somewhere").error("after the run")
    stages = log_of(runs["inner"])
    assert (logging.INFO, "of the stage") in stages
    assert (logging.ERROR, "of a thread, 100 %") in stages
    counted = [text for _, text in stages if text.startswith("counting")]
    assert len(counted) >= 2, "the first and the last tick"
    assert len(counted) < 100, "a line every few seconds"
    assert "500 of 500 steps" in counted[-1]
    assert [text for _, text in log_of(runs["outer"])] == ["before", *(text for _, text in stages)]


def test_a_run_s_log_and_progress_have_no_secrets_and_nothing_that_a_terminal_obeys(server, request_, monkeypatch):
    """Whoever starts it: no command of ours has prepared the process of a deployment's run."""
    monkeypatch.setattr(logging, "_logRecordFactory", logging.LogRecord)
    runs: list[UUID] = []
    shown: list[str] = []
    create = stage_module.create_progress_artifact
    monkeypatch.setattr(
        stage_module, "create_progress_artifact",
        lambda *given, **more: (shown.append(more["description"]), create(*given, **more))[1],
    )  # fmt: skip

    @stage("telling")
    def telling(request: Request) -> Artifact:
        runs.append(current().id)
        logging.getLogger("tasks.somewhere").warning("could not read %s", "https://h/a?sig=geheim \x1b[2J")
        with Progress("reading", 1, "files") as progress:
            progress.advance(note="https://h/b?sig=geheim \x1b[2J")
        return DONE

    telling(request_)
    told = [text for _, text in log_of(runs[0])] + shown
    assert "could not read https://h/a?sig=[hidden] ␛[2J" in told
    assert any("https://h/b?sig=[hidden]" in text for text in told)
    assert not [text for text in told if "geheim" in text or "\x1b" in text]


def test_a_run_waits_for_another_on_its_root_and_says_so(server, request_):
    runs: list[UUID] = []

    @stage("short")
    def short(request: Request) -> Artifact:
        runs.append(current().id)
        return DONE

    inside = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with alone(request_.root, "a command"):
            inside.set()
            leave.wait()

    def release(record: logging.LogRecord) -> bool:
        leave.set()
        return True

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    waiting = logging.getLogger("tasks.lock")
    waiting.addFilter(release)  # the holder leaves as soon as it is waited for
    try:
        short(request_)
    finally:
        waiting.removeFilter(release)
        leave.set()
        holder.join()
    assert any("in use by a command" in text for level, text in log_of(runs[0]) if level == logging.WARNING)


def test_a_run_is_named_after_the_recipe_that_it_follows(server, request_, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: test\n")
    names: list[str] = []

    @stage("named")
    def named(request: Request) -> Artifact:
        names.append(current().name)
        return DONE

    named(request_)
    named(request_.model_copy(update={"preset_file": str(mine)}))
    assert names == ["named-test", f"named-{mine}"]


def test_a_form_that_cannot_be_followed_waits_for_nobody(server, request_):
    @stage("never")
    def never(request: Request) -> Artifact:
        raise AssertionError("it must not begin")

    with alone(request_.root, "the test"), pytest.raises(PresetError, match="no such field"):
        never(request_.model_copy(update={"overrides": ["mix.epoks=2"]}))


def test_a_run_has_its_server_watch_it_and_is_put_right_where_it_lives(server, request_, monkeypatch):
    monkeypatch.setattr(watch, "EVERY", 0.1)

    @stage("long")
    def long(request: Request) -> Artifact:
        run = current()
        with get_client(sync_client=True) as client:
            while not client.read_automations_by_name(watch.NAME):
                threading.Event().wait(0.05)
            client.set_flow_run_state(run.id, Crashed(message=watch.MESSAGE), force=True)
            while (state := client.read_flow_run(run.id).state) is None or not state.is_running():
                threading.Event().wait(0.05)
        return DONE

    assert long(request_, return_state=True).type == StateType.COMPLETED
    long(request_)
    with get_client(sync_client=True) as client:
        assert len(client.read_automations_by_name(watch.NAME)) == 1
