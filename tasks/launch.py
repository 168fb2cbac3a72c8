"""Launching a training job: a module of `training/` under torchrun or DeepSpeed's launcher, in its own process group.

The job reads one JSON file, writes `metrics.jsonl` and `progress.json` while it runs, and `final/` and `summary.json`
when it is done. SIGTERM makes it write a checkpoint and leave; whatever ended it, starting it again resumes it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field, field_validator, model_validator

from model.cache import cache_folder
from model.config import Config
from model.engines.engine import Price, RequestLimits
from model.storage import is_local, local_path
from tasks import process
from tasks.address import Address, Endpoint
from tasks.artifact import Artifact, Step
from tasks.job_log import JobLog
from tasks.progress import Progress
from training.job import RANKS
from training.metrics import replace_file
from training.precision import Precision

log = logging.getLogger(__name__)

PROGRESS, PREEMPTED = "progress.json", "preempted.json"
ATTEMPTS = "attempts.json"
"""Seconds of every attempt of a job, by its name: a kill leaves no part, whose record would say it."""
RENDEZVOUS, STORE = "rendezvous", "ranks"
"""Files by which the ranks of one node find each other. torchrun's and torch's own way is a port that is open to the
network and takes pickles from whoever writes to it."""
ERROR = re.compile(r"^[\w.]*(Error|Exception|Exit|Missing|Refused|Diverged|Bad|Broken|Unavailable)\w*:")
"""How a line of a job's log begins that names what ended it."""
POLL = 0.25  # seconds between two looks at a job's progress
NOTED = 10.0  # seconds between two notes of how long an attempt has taken: what a kill may leave out
ENDPOINT_SLOTS = 64
GRACE = 120.0  # seconds a job gets to write its checkpoint after SIGTERM
RANKS_GRACE = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(GRACE) - 10)}
"""How long torchrun waits for its ranks then, in place of 30 seconds: it must kill them before it is killed itself."""
CPU_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",  # spinning threads on a shared machine: a sixteenth of the rate (docs/LOG.md)
    # Memory that a step gives back is kept, in huge pages: fresh pages cost a fifth of a step (docs/model.md). Where
    # libc is not glibc nobody reads this.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296"
    ":glibc.malloc.trim_threshold=4294967296",
}
"""For processes that compute on CPUs; it has to stand before they start."""


class Execution(Config):
    """How a recipe runs on this machine or pool. Nothing here enters a fingerprint."""

    workers: int = Field(default=2, ge=1)
    """CPU processes for data stages."""
    executor: Literal["processes", "dask"] = "processes"
    """Where the jobs of curation run: in processes of this machine or on a Dask cluster (the extra `dask`)."""
    dask_address: Address | None = None
    """The scheduler's address, such as tls://host:8786; None starts a cluster of `workers` processes here."""
    memory_bytes: int = Field(default=1 << 30, ge=64 << 20)
    """Working memory that deduplication takes in each worker, on top of what Python and its libraries take: 64 MB at
    least (`dedup.plan.MEMORY_MIN`), or it would find that out when everything is refined."""
    launcher: Literal["torchrun", "deepspeed"] = "torchrun"
    """What starts the ranks of a training stage."""
    processes: int = Field(default=1, ge=1)
    """Ranks a node."""
    nodes: int = Field(default=1, ge=1)
    """Nodes. Above 1, OPENK2_RENDEZVOUS names host:port of the node that runs the flow; it logs the line that starts
    the ranks of each other node."""
    threads: int = Field(default=2, ge=1)
    """CPU threads a rank."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where training runs; `auto` takes CUDA where there is one."""
    device_bytes: int | None = Field(default=None, ge=1 << 20)
    """Memory of a rank's device. A preset whose model replies could not be sampled from there is refused; None leaves
    that to the dry run (`openk2 plan ranks`)."""
    precision: Precision = "auto"
    """What `auto` stands for in every `dtype` and `newton_schulz_dtype`, which do enter fingerprints: itself `auto`, it
    is the precision that the run began with, else what the device multiplies fast (docs/pretraining.md)."""
    engine_url: Endpoint | None = None
    """An OpenAI-compatible endpoint for rewriting (such as vLLM's); None starts the embedded llama.cpp server."""
    judge_url: Endpoint | None = None
    """The same for the judges of a sample's quality (`scores.judge`), of rewritten segments
    (`rephrase.alignment.judge`) and of replies (`rl.judge`), which may be other models."""
    engine_slots: int | None = Field(default=None, ge=1)
    """Requests in flight of a stage that asks an engine; None: `workers` for the embedded one, 64 for an endpoint."""
    engine_requests: RequestLimits = RequestLimits()
    """How long engines are waited for, and how often they are asked again."""
    engine_price: Price = Price()
    """What the rewriting engine charges per million tokens: for the prediction and the ledger."""
    answers: Address | None = None
    """Folder of the engines' answers, shared by all configurations, so that nothing is asked twice; None: `answers`
    under the artifacts' root (in the cache where that is remote). On a disk of this machine."""
    answers_bytes: int = Field(default=8 << 30, ge=0)
    """Size above which the answers longest unused are forgotten; 0 keeps answers only until their stage is done."""
    price_per_hour: float = Field(default=0.0, ge=0)
    """Money per hour of the machine, for the cost column of the report."""
    watts: float = Field(default=100.0, ge=0)
    """What a machine is taken to draw while a stage runs, for the energy that a release states: 100 is an assumption
    for a computer without GPUs."""
    signing_key: Address | None = None
    """SSH private key (or its .pub, where an agent holds it) that signs a release's checksums; None leaves them
    unsigned."""

    @model_validator(mode="after")
    def _dask(self) -> Execution:
        if self.dask_address is not None and self.executor != "dask":
            raise ValueError("dask_address names a Dask scheduler but executor is 'processes': set executor to 'dask'")
        return self

    @field_validator("answers")
    @classmethod
    def _on_a_disk(cls, answers: str | None) -> str | None:
        if answers is not None and not is_local(answers):
            raise ValueError("the engines' answers are kept on a disk of this machine: name a local folder")
        return answers

    def slots(self, engine: str) -> int:
        """Requests to keep in flight of an engine of this kind (`embedded`, `endpoint`)."""
        return self.engine_slots or (self.workers if engine == "embedded" else ENDPOINT_SLOTS)

    def answers_folder(self, root: str) -> Path | None:
        """Where engines' answers are kept for artifacts under `root`; None where they are not kept."""
        if not self.answers_bytes:
            return None
        if self.answers is not None:
            return local_path(self.answers)
        return local_path(root) / "answers" if is_local(root) else cache_folder() / "answers"


class JobFailed(RuntimeError):
    """A training job ended without its result; the message carries its last words and where its log lies."""


class JobPreempted(JobFailed):
    """A job was ended from outside after it had made itself resumable: start it again."""


def run_job(step: Step, execution: Execution) -> Artifact:
    """Run `python -m {step.module} --config job.json` to its end under the launcher and publish what it made.

    Progress is relayed while it runs. Raises JobPreempted where the job was ended from outside, JobFailed otherwise.
    """
    inputs, work = step.read(), step.workspace()
    with _alone(work) as lock:
        step.begin()  # waiting for another job is no time of this one's
        step.record_begun()
        job = work / "job.json"
        job.write_text(
            json.dumps(
                {
                    "config": step.config.model_dump(mode="json"),
                    "inputs": {name: artifact.uri for name, artifact in inputs.items()},
                    "work": str(work),
                    "threads": execution.threads,
                    "device": execution.device,
                    "code": step.code,
                    "judge_url": execution.judge_url,
                },
                indent=1,
            )
        )
        if _read(work / "summary.json") is None:  # a machine that lost its power may have kept the name alone
            _supervise(step, job, execution, lock)
        return _publish(step, work, execution)


def command(module: str, job: Path, execution: Execution, node: int = 0) -> list[str]:
    """The launcher's command line for one node; node 0 is where the flow runs."""
    # One node opens no port, whatever the environment says: ranks meet by a file there.
    address = os.environ.get("OPENK2_RENDEZVOUS", "") if execution.nodes > 1 else f"127.0.0.1:{_free_port()}"
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        stands = f"'{address}'" if address else "not set"
        raise JobFailed(
            f"execution.nodes is {execution.nodes} but OPENK2_RENDEZVOUS is {stands}: give it host:port of this node, "
            "as the others reach it"
        )
    if execution.launcher == "torchrun":
        where = (
            ["--rdzv-backend=c10d", f"--rdzv-endpoint={address}", f"--node-rank={node}"]
            if execution.nodes > 1
            else ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={job.parent / RENDEZVOUS}"]
        )
        ranks = [f"--nnodes={execution.nodes}", f"--nproc-per-node={execution.processes}"]
        launcher = ["torch.distributed.run", *where, *ranks, "-m"]
    else:
        where = [f"--master_addr={host}", f"--master_port={port}", f"--node_rank={node}"]
        launcher = [
            "deepspeed.launcher.launch",
            f"--world_info={_world(execution)}",
            *where,
            "--no_local_rank",
            "--module",
        ]
    return [sys.executable, "-m", *launcher, module, "--config", str(job)]


def _world(execution: Execution) -> str:
    """DeepSpeed's world_info: the local ranks of every node, as base64 of JSON."""
    nodes = {f"node-{index}": list(range(execution.processes)) for index in range(execution.nodes)}
    return base64.urlsafe_b64encode(json.dumps(nodes).encode()).decode()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def progress_of(step: Step) -> dict[str, Any] | None:
    """How far this machine's job of a step came, as it last said itself (`done`, `total`, `unit`, `status`, `note`)."""
    return _read(step.work / PROGRESS)


def meeting(work: Path) -> dict[str, str]:
    """The environment by which the ranks of one node find each other, by a file in `work`."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "OPENK2_STORE": str(work / STORE),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


def _supervise(step: Step, job: Path, execution: Execution, lock: int) -> None:
    work = job.parent
    journal = work / "log.txt"
    said = JobLog(journal)
    began = said.at
    house = str(Path(__file__).resolve().parent.parent)
    environment = {
        **CPU_ENVIRONMENT,
        **RANKS_GRACE,
        "OMP_NUM_THREADS": str(execution.threads),
        "PYTHONPATH": os.pathsep.join(filter(None, [house, os.environ.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if execution.device == "cpu":
        environment["DS_ACCELERATOR"] = "cpu"
    if execution.nodes == 1:
        for name in (RENDEZVOUS, STORE):
            (work / name).unlink(missing_ok=True)
        environment |= meeting(work)
    (work / PREEMPTED).unlink(missing_ok=True)  # an earlier attempt's: this one may fail before it would remove it
    for node in range(1, execution.nodes):
        patient = [f"{name}={value}" for name, value in RANKS_GRACE.items()]
        line = shlex.join(["env", *patient, "python", *command(step.module, job, execution, node)[1:]])
        log.warning("node %d of %d, from the project's folder: %s", node, execution.nodes, line)
    reached = _read(work / PROGRESS)  # by an earlier attempt, maybe beyond the checkpoint that this one begins with
    child = process.start(command(step.module, job, execution), journal, environment, keep=[lock])
    try:
        _relay(child, step, reached, said)
    finally:
        code = process.stop(child, GRACE)
        _note_time(step)
    if (work / "summary.json").exists() and code == 0:
        return
    told = last_words(journal, began)
    if (work / PREEMPTED).exists():
        raise JobPreempted(f"{step.name} was ended from outside and wrote a checkpoint; run it again to resume")
    if code < 0:
        raise JobPreempted(
            f"{step.name} was killed by signal {-code}; run it again to resume from its newest checkpoint"
        )
    raise JobFailed(f"{step.name} failed (exit code {code}): {told} (its log: {journal})")


def _relay(child: Any, step: Step, before: dict[str, Any] | None, said: JobLog) -> None:
    """Turn the job's progress.json, once it is not the one of `before`, into ticks, and its log into ours, until the
    job ends."""
    progress: Progress | None = None
    noted = time.monotonic()
    while True:
        ended = child.poll() is not None
        said.relay(ended)
        if time.monotonic() - noted >= NOTED:
            noted = time.monotonic()
            _note_time(step)
        state = progress_of(step)
        if state and state != before and state.get("total"):
            if progress is None:
                progress = Progress(step.name, state["total"], state.get("unit", "steps"), first=state["done"])
            progress.total = state["total"]
            if state["done"] != progress.done or ended:
                progress.set(state["done"], state.get("note", ""))
        if ended:
            return
        time.sleep(POLL)


def _note_time(step: Step) -> dict[str, float]:
    """Note how long the attempt under way has taken; the seconds of all attempts of this job, by name."""
    file = step.work / ATTEMPTS
    attempt, elapsed = step.attempt()
    seconds = {**(_read(file) or {}), attempt: round(elapsed, 3)}
    replace_file(file, json.dumps(seconds))
    return seconds


def _read(file: Path) -> dict[str, Any] | None:
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None  # not written yet, or this very moment, or cut


def last_words(journal: Path, began: int) -> str:
    """The last line that names an error in what a log has had since byte `began`, or its last line."""
    with journal.open("rb") as file:
        file.seek(began)
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [re.sub(r"^\[?rank\d+\]?:\s*", "", line) for line in lines]
    errors = [line for line in named if ERROR.match(line)]
    ours = [line for line in errors if "ChildFailedError" not in line]
    killed = re.search(r"rank +: (\d+)[^=]*?Signal \d+ \((\w+)\) received", text)  # as torchrun tells it
    if killed and not ours:
        return f"rank {killed[1]} was killed by {killed[2]}; the same command goes on from the newest checkpoint"
    return (ours or errors or named or ["it said nothing"])[-1][:600]


def _publish(step: Step, work: Path, execution: Execution) -> Artifact:
    summary = json.loads((work / "summary.json").read_text())
    files = sorted(path for path in (work / "final").rglob("*") if path.is_file())
    parts = {f"model/{path.relative_to(work / 'final').as_posix()}": path for path in files}
    parts |= {f"rollouts/{path.stem}": path for path in sorted((work / "rollouts").glob("*.parquet"))}
    parts["metrics"] = work / "metrics.jsonl"
    for key, path in parts.items():
        step.adopt(key, path)
    attempts = _note_time(step)
    cost = {"money": round(sum(attempts.values()) / 3600 * execution.price_per_hour * execution.nodes, 6)}
    return step.publish(summary, parts, cost=cost, code=summary.pop("code", ()), attempts=attempts)


@contextmanager
def _alone(work: Path) -> Iterator[int]:
    """Hold the workspace's lock, which the launcher inherits, once no rank of an earlier job is left: two jobs never
    write in one workspace. A job whose launcher was killed gets a moment to write its checkpoint and leave."""
    with (work / "lock").open("w") as file, (work / RANKS).open("a+") as ranks:
        deadline = time.monotonic() + GRACE
        _lock(file, f"another job is still running in {work}", deadline)
        _lock(ranks, f"ranks of an earlier job, whose launcher is gone, are still running in {work}", deadline)
        fcntl.flock(ranks, fcntl.LOCK_UN)  # now it is for the ranks of this job
        yield file.fileno()


def _lock(file: IO[str], held: str, deadline: float) -> None:
    waits = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise JobFailed(f"{held}: wait until that has ended, or end it") from None
            if not waits:
                log.warning("%s: waiting until that has ended, %.0f seconds at most", held, deadline - time.monotonic())
            waits = True
            time.sleep(0.5)
