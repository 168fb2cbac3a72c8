"""Jobs under a real launcher: relayed, published, cancelled, resumed, and their failures told in one sentence."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from model.config import Config
from tasks import launch
from tasks.artifact import Step
from tasks.launch import ERROR, Execution, JobFailed, JobPreempted, command, run_job
from tasks.progress import listen
from tests.training.ranks import free_ports
from training import shards, trainer
from training.job import Job, held

HOUSE = Path(__file__).resolve().parents[2]

# A job as the trainers are: resumes from what it wrote, leaves on SIGTERM, and does as its configuration says.
JOB = """
import json, os, pathlib, signal, sys, time
job = json.loads(pathlib.Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
work, config = pathlib.Path(job["work"]), job["config"]
(work / f"rank-{os.environ['RANK']}-of-{os.environ['WORLD_SIZE']}").touch()
if os.environ["RANK"] != "0":
    sys.exit()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
(work / "preempted.json").unlink(missing_ok=True)
state = work / "state"
done = int(state.read_text()) if state.exists() else 0
(work / "starts").open("a").write(f"{done}\\n")
while done < config["steps"]:
    time.sleep(config["pace"])
    done += 1
    if done == config["fail_at"]:
        raise RuntimeError("the loss is nan at step 3")
    if done == config["killed_at"]:
        os.kill(os.getpid(), signal.SIGKILL)
    state.write_text(str(done))
    partial = work / "progress.json.new"
    partial.write_text(json.dumps({"done": done, "total": config["steps"], "unit": "steps", "note": "n"}))
    partial.replace(work / "progress.json")
    while config["until_seen"] and not (work / "seen").exists():
        time.sleep(0.01)
    if asked:
        (work / "preempted.json").write_text("{}")
        sys.exit(75)
(work / "final").mkdir(exist_ok=True)
(work / "final" / "weights.bin").write_bytes(b"weights")
(work / "metrics.jsonl").write_text("{}\\n")
(work / "summary.json").write_text(json.dumps({"loss": 1.0}))
"""


# Joins its world, adds up over its ranks, and writes down what each process of the job listens on.
PORTS = """
import json, os, pathlib, sys
import psutil, torch
from training.parallel import join
work = pathlib.Path(json.loads(pathlib.Path(sys.argv[sys.argv.index("--config") + 1]).read_text())["work"])
with join() as world:
    assert float(world.all_reduce(torch.ones(1))) == world.size
    for process in (psutil.Process(), psutil.Process().parent()):
        ports = [entry.laddr.ip for entry in process.net_connections() if entry.status == psutil.CONN_LISTEN]
        name = "rank" if process.pid == os.getpid() else "launcher"
        (work / f"{name}-{world.rank}.ports").write_text(json.dumps(ports))
    world.barrier()
if world.rank == 0:
    (work / "final").mkdir(exist_ok=True)
    (work / "final" / "weights.bin").write_bytes(b"weights")
    (work / "metrics.jsonl").write_text("{}\\n")
    (work / "summary.json").write_text("{}")
"""


class Literals(Config):
    steps: int = 5
    pace: float = 0.01
    fail_at: int = 0
    killed_at: int = 0
    until_seen: bool = False


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "quickjob.py").write_text(JOB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def step_for(tmp_path: Path, module: str = "quickjob", **literals) -> Step:
    return Step("base", Literals(**literals), str(tmp_path / "root"), module=module)


EXECUTION = Execution(threads=1, device="cpu")


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_a_job_is_relayed_and_published(tmp_path, launcher):
    ticks = []
    step = step_for(tmp_path)
    with listen(ticks.append):
        artifact = run_job(step, EXECUTION.model_copy(update={"launcher": launcher}))
    assert [part.key for part in artifact.parts()] == ["metrics", "model/weights.bin"]
    assert artifact.statistics == {"loss": 1.0}
    assert ticks[-1].done == ticks[-1].total == 5
    assert (step.workspace() / "starts").read_text() == "0\n"


def test_the_rate_is_this_attempts_where_an_earlier_one_came_further(tmp_path, monkeypatch):
    ticks, read = [], launch._read
    step = step_for(tmp_path, until_seen=True)
    earlier = {"done": 4, "total": 5, "unit": "steps", "note": "killed before its checkpoint"}
    (step.workspace() / "progress.json").write_text(json.dumps(earlier))

    def seen(file):
        if (state := read(file)) and state.get("done") == 1:
            (step.workspace() / "seen").touch()
        return state

    monkeypatch.setattr(launch, "_read", seen)
    with listen(ticks.append):
        run_job(step, EXECUTION)
    assert ticks[0].first < 4
    assert all(tick.rate >= 0 for tick in ticks)


def test_time_and_cost_are_those_of_all_attempts(tmp_path):
    step = step_for(tmp_path, fail_at=3)
    with pytest.raises(JobFailed):
        run_job(step, EXECUTION)
    file = step.work / "attempts.json"
    (first,) = json.loads(file.read_text())
    file.write_text(json.dumps({first: 7200.0}))  # as if it had taken two hours
    (step.work / "state").write_text("4")
    manifest = run_job(step, EXECUTION.model_copy(update={"price_per_hour": 10.0})).manifest
    assert manifest["attempts"] == 2
    assert 7200.0 < manifest["seconds"] < 7500.0
    assert manifest["cost"]["money"] == pytest.approx(manifest["seconds"] / 360, rel=1e-3)


def test_the_time_of_an_attempt_is_noted_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "NOTED", 0.0)
    step = step_for(tmp_path)
    there = []
    with listen(lambda tick: there.append((step.work / "attempts.json").exists())):
        run_job(step, EXECUTION)
    assert there[0]


@pytest.mark.parametrize("left", ["", '{"loss": 1'])
def test_a_summary_that_lost_its_bytes_is_written_again(tmp_path, left):
    step = step_for(tmp_path)
    (step.workspace() / "summary.json").write_text(left)
    assert run_job(step, EXECUTION).statistics == {"loss": 1.0}


def test_a_checkpoint_is_of_one_job_where_another_machines_ended_while_it_published(tmp_path, monkeypatch):
    root, put = f"memory://{tmp_path.name}", Step.put

    def trained(machine: str) -> Step:
        """Ready to publish: on a store, the job's files lie in each machine's own cache."""
        monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / machine))
        step = Step("base", Literals(), root)
        (step.workspace() / "final").mkdir()
        for name in ("config.json", "a.safetensors", "b.safetensors"):
            (step.work / "final" / name).write_text("{}" if name == "config.json" else f"{name} of {machine}")
        (step.work / "metrics.jsonl").write_text(f"metrics of {machine}")
        (step.work / "summary.json").write_text("{}")
        return step

    def ended(step, key, *rest):
        if key == "metrics":
            raise KeyboardInterrupt
        return put(step, key, *rest)

    step = trained("first")
    monkeypatch.setattr(Step, "put", ended)
    with pytest.raises(KeyboardInterrupt):
        launch._publish(step, step.work, EXECUTION)
    assert len(step.recorded("model")) == 3
    step, written = trained("second"), []
    monkeypatch.setattr(Step, "put", lambda step, key, *rest: written.append(key) or put(step, key, *rest))
    published = launch._publish(step, step.work, EXECUTION)
    texts = {part.key: published.file(part).read_text() for part in published.parts()}
    assert texts.pop("model/config.json") == "{}"
    assert len(texts) == 3
    assert all(text.endswith("of second") for text in texts.values()), texts
    assert "model/config.json" not in written, "it is the same"


def test_a_failure_carries_the_jobs_last_words_and_where_its_log_lies(tmp_path):
    step = step_for(tmp_path, fail_at=3)
    with pytest.raises(JobFailed, match=r"RuntimeError: the loss is nan at step 3.*log\.txt") as caught:
        run_job(step, EXECUTION)
    assert not isinstance(caught.value, JobPreempted)
    assert step.artifact() is None


def test_a_job_that_cannot_begin_has_failed_though_an_earlier_attempt_was_preempted(tmp_path):
    (tmp_path / "badjob.py").write_text("raise RuntimeError('its shards are gone')\n")
    step = step_for(tmp_path, module="badjob")
    (step.workspace() / "preempted.json").write_text("{}")
    with pytest.raises(JobFailed, match="RuntimeError: its shards are gone") as caught:
        run_job(step, EXECUTION)
    assert not isinstance(caught.value, JobPreempted)


def test_every_error_that_a_job_expects_is_known_by_its_line():
    def family(kind: type[BaseException]) -> list[type[BaseException]]:
        return [kind, *(below for child in kind.__subclasses__() for below in family(child))]

    ours = [kind for root in trainer.EXPECTED for kind in family(root)]
    names = {kind.__name__ for kind in ours if kind.__module__.startswith(("training.", "model."))}
    assert shards.BadShard.__name__ in names
    assert {name for name in names if not ERROR.match(f"{name}: why")} == set()


# Tells what its launcher was told of how long to wait for it.
PATIENCE = """
import json, os, pathlib, sys
work = pathlib.Path(json.loads(pathlib.Path(sys.argv[sys.argv.index("--config") + 1]).read_text())["work"])
(work / "final").mkdir()
(work / "metrics.jsonl").write_text("{}\\n")
(work / "summary.json").write_text(json.dumps({"patience": os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")}))
"""


def test_torchrun_waits_longer_than_its_30_seconds_and_ends_its_ranks_before_it_is_ended(tmp_path):
    (tmp_path / "patientjob.py").write_text(PATIENCE)
    seconds = int(run_job(step_for(tmp_path, "patientjob"), EXECUTION).statistics["patience"])
    assert 100 <= seconds < launch.GRACE


def test_a_killed_rank_is_named(tmp_path):
    with pytest.raises(JobFailed, match=r"rank 0 was killed by SIGKILL; the same command goes on"):
        run_job(step_for(tmp_path, killed_at=2), EXECUTION)


LAUNCH = """
import sys
from model.config import Config
from tasks.artifact import Step
from tasks.launch import Execution, run_job
class Literals(Config):
    steps: int = 400
    pace: float = 0.05
    fail_at: int = 0
    killed_at: int = 0
    until_seen: bool = False
run_job(Step("base", Literals(), sys.argv[1], module="quickjob"), Execution(threads=1, device="cpu"))
"""


def wait_for(condition, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def alive(work: Path) -> bool:
    """Whether any process still works for `work`."""
    marker = str(work / "job.json").encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker in (entry / "cmdline").read_bytes():
                    return True
            except (FileNotFoundError, ProcessLookupError):
                continue
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc; the signal on a parent's death is Linux's")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_never_outlives_its_launcher_and_is_resumable(tmp_path, number):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOUSE), str(tmp_path)])}
    parent = subprocess.Popen([sys.executable, "-c", LAUNCH, str(tmp_path / "root")], env=environment)
    step = step_for(tmp_path, steps=400, pace=0.05)
    work = step.workspace()
    wait_for(lambda: (work / "state").exists() and int((work / "state").read_text() or 0) > 3)
    parent.send_signal(number)
    parent.wait(timeout=300)
    wait_for(lambda: not alive(work))
    reached = int((work / "state").read_text())
    assert (work / "preempted.json").exists()
    assert 3 < reached < 400
    (work / "job.json").unlink()
    (work / "state").write_text("398")
    assert run_job(step, EXECUTION).statistics == {"loss": 1.0}
    assert (work / "starts").read_text().splitlines() == ["0", "398"]


def test_a_job_waits_for_ranks_that_outlived_their_launcher(tmp_path, monkeypatch, caplog):
    step = step_for(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with held(step.workspace()):
            with monkeypatch.context() as patch:
                patch.setattr(launch, "GRACE", 0.1)
                with pytest.raises(JobFailed, match=r"ranks of an earlier job.*or end it"):
                    run_job(step, EXECUTION)
            caplog.clear()
            waiting = pool.submit(run_job, step, EXECUTION)
            wait_for(lambda: "ranks of an earlier job" in caplog.text)
            assert not (step.workspace() / "starts").exists()
        assert waiting.result(timeout=300).statistics == {"loss": 1.0}


def test_inputs_reach_the_job_as_uris(tmp_path):
    tokens = Step("tokens", Literals(), str(tmp_path / "root"))
    uri = tokens.publish({}).uri
    step = replace(step_for(tmp_path), inputs=(tokens,), code="hash")
    run_job(step, EXECUTION.model_copy(update={"judge_url": "http://judge:8000/v1"}))
    job = json.loads((step.workspace() / "job.json").read_text())
    assert job["inputs"] == {"tokens": uri}
    assert Job.read(step.workspace() / "job.json").judge_url == "http://judge:8000/v1"
    assert job["code"] == "hash"
    assert job["config"] == Literals().model_dump()
    assert (step.workspace() / "rank-0-of-1").exists()


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_job_on_one_node_listens_to_nobody_elsewhere(tmp_path, launcher, ranks, monkeypatch):
    monkeypatch.setenv("OPENK2_RENDEZVOUS", f"127.0.0.1:{free_ports(1)[0]}")  # for the jobs on several nodes alone
    (tmp_path / "portsjob.py").write_text(PORTS)
    step = step_for(tmp_path, "portsjob")
    run_job(step, EXECUTION.model_copy(update={"launcher": launcher, "processes": ranks}))
    listening = {path.stem: json.loads(path.read_text()) for path in step.workspace().glob("*.ports")}
    assert {f"rank-{rank}" for rank in range(ranks)} <= set(listening)
    assert all(listening[name] == [] for name in listening if name.startswith("launcher"))
    spoken = {address for name in listening for address in listening[name]}
    assert spoken == ({"127.0.0.1"} if ranks > 1 else set())


def test_many_nodes_need_a_meeting_point(tmp_path, monkeypatch):
    many = Execution(nodes=2, processes=8)
    monkeypatch.delenv("OPENK2_RENDEZVOUS", raising=False)
    with pytest.raises(JobFailed, match="OPENK2_RENDEZVOUS is not set: give it host:port"):
        command("training.pretrain", tmp_path / "job.json", many)
    for portless in ("head", "head:", ":29500", "head:port"):
        monkeypatch.setenv("OPENK2_RENDEZVOUS", portless)
        with pytest.raises(JobFailed, match=f"OPENK2_RENDEZVOUS is '{portless}': give it host:port"):
            command("training.pretrain", tmp_path / "job.json", many)
    monkeypatch.setenv("OPENK2_RENDEZVOUS", "head:29500")
    torchrun = command("training.pretrain", tmp_path / "job.json", many, node=1)
    assert {"--rdzv-endpoint=head:29500", "--node-rank=1", "--nnodes=2", "--nproc-per-node=8"} <= set(torchrun)
    many = many.model_copy(update={"launcher": "deepspeed"})
    deepspeed = command("training.pretrain", tmp_path / "job.json", many, node=1)
    assert {"--master_addr=head", "--master_port=29500", "--node_rank=1"} <= set(deepspeed)


def test_the_line_that_is_told_starts_the_other_node(tmp_path, monkeypatch, caplog):
    """Two nodes of one rank each, both on this machine: the job starts when the second has joined."""
    monkeypatch.setenv("OPENK2_RENDEZVOUS", f"127.0.0.1:{free_ports(1)[0]}")
    step = step_for(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_job, step, EXECUTION.model_copy(update={"nodes": 2}))
        wait_for(lambda: "node 1 of 2" in caplog.text)
        assert not (step.workspace() / "starts").exists()
        line = next(text for text in caplog.messages if text.startswith("node 1 of 2")).partition(": ")[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOUSE), str(tmp_path)])}
        words = [sys.executable if word == "python" else word for word in shlex.split(line)]
        other = subprocess.run(words, env=environment, timeout=300, check=False)
        assert other.returncode == 0
        assert first.result(timeout=300).statistics == {"loss": 1.0}
    assert (step.workspace() / "rank-1-of-2").exists()
