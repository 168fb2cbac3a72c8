"""Serial, processes and Dask: the same answers, errors in one sentence, and no worker outlives what started it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest

from tasks.corpus import cluster as dask
from tasks.corpus.cluster import SchedulerLost, cluster
from tasks.corpus.executor import Processes, Serial, WorkerError
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from tasks.stage import make, passing

HOUSE = Path(__file__).resolve().parents[3]


def square(number: int) -> int:
    return number * number


def die_once(marker: str) -> str:
    """Kills its worker the first time it runs."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(text: str) -> None:
    raise ValueError(text)


@pytest.fixture(scope="module")
def two():
    with cluster(None, 2) as workers:
        yield workers


@pytest.fixture(params=["serial", "processes", "dask"])
def any_executor(request):
    if request.param == "dask":
        return request.getfixturevalue("two")
    return Serial() if request.param == "serial" else Processes(2)


def test_every_job_is_answered_by_name(any_executor):
    jobs = {f"job {number}": (number,) for number in range(40)}
    assert dict(any_executor.map(square, jobs)) == {f"job {number}": number * number for number in range(40)}
    assert dict(any_executor.map(square, {})) == {}


def test_a_cluster_of_our_own_answers_nobody_else(two):
    """Its wire asks for a certificate of the run's own, and its status pages, which ask for nothing, are off."""
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    ports = {entry.laddr for process in ours for entry in process.net_connections() if entry.status == "LISTEN"}
    assert len(ports) > 3
    for address, port in ports:
        assert address == "127.0.0.1"
        try:
            found = httpx.get(f"http://{address}:{port}/health", trust_env=False, timeout=60).status_code
        except httpx.ReadError:
            context = ssl._create_unverified_context()
            with socket.create_connection((address, port), timeout=60) as raw, context.wrap_socket(raw) as wire:
                with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                    wire.recv(1)  # TLS 1.3 refuses a missing certificate with the first answer
        else:
            assert found == 404


def test_the_first_exception_ends_the_rest(any_executor):
    with pytest.raises(ValueError, match="this one"):
        dict(any_executor.map(fail, {"a": ("this one",), "b": ("this one",)}))


def test_a_job_whose_worker_died_is_done_by_another(two, tmp_path):
    marker = str(tmp_path / "died")
    assert dict(two.map(die_once, {"job": (marker,)})) == {"job": "done"}
    assert Path(marker).exists()


def test_a_job_that_ends_every_worker_is_named(two):
    with pytest.raises(WorkerError, match="poison ended every worker that took it"):
        dict(two.map(die, {"poison": ()}))
    assert dict(two.map(square, {"after": (3,)})) == {"after": 9}


def test_a_worker_with_other_code_is_refused(two, monkeypatch):
    honest = dask.provenance
    monkeypatch.setattr(dask, "provenance", lambda function: honest(function) | {"pyarrow": "1.0"})
    with pytest.raises(WorkerError, match=r"pyarrow .* instead of 1\.0: install the same openk2"):
        dict(two.map(square, {"job": (3,)}))


def test_without_the_extra_or_a_scheduler_one_sentence_says_what_to_do(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "distributed", None)
        with (
            pytest.raises(WorkerError, match=r"distributed is not installed: install openk2\[dask\]"),
            workers_of(Execution(executor="dask")),
        ):
            pass
    monkeypatch.setattr(dask, "CONNECT", 1.0)
    with (
        pytest.raises(WorkerError, match=r"no Dask scheduler with workers answers at tcp://127\.0\.0\.1:9"),
        workers_of(Execution(executor="dask", dask_address="tcp://127.0.0.1:9")),
    ):
        pass


def test_an_error_of_the_work_is_not_taken_for_a_scheduler_that_is_silent():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as local:
        with pytest.raises(OSError, match="the disk is full"), cluster(local.scheduler_address, 1):
            raise OSError("the disk is full")


SCHEDULER = """
import time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


def test_a_scheduler_that_is_lost_is_told_in_a_sentence_and_the_stage_tried_again(tmp_path):
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    command = [sys.executable, str(tmp_path / "scheduler.py")]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert other.stdout is not None
    address = other.stdout.readline().strip()

    def lose() -> None:
        with cluster(address, 1) as workers:
            for name, _ in workers.map(time.sleep, {"short": (0,), "long": (600,)}):
                assert name == "short"
                os.killpg(other.pid, signal.SIGKILL)

    with pytest.raises(SchedulerLost, match=rf"scheduler at {address} was lost .*run the same command again") as caught:
        lose()
    other.wait()

    def result() -> None:
        raise caught.value

    assert passing(make, None, SimpleNamespace(result=result))


def test_an_address_without_dask_is_refused():
    with pytest.raises(ValueError, match="executor is 'processes'"):
        Execution(dask_address="tcp://127.0.0.1:8786")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", ["processes", "dask"])
def test_no_worker_outlives_its_command(tmp_path, name, number):
    (tmp_path / "work.py").write_text(
        textwrap.dedent("""
        import os, time
        from pathlib import Path

        def sleep(folder):
            Path(folder, str(os.getpid())).touch()
            time.sleep(300)
        """)
    )
    script = textwrap.dedent("""
        import signal, sys

        def interrupt(number, frame):
            raise KeyboardInterrupt

        if __name__ == "__main__":
            sys.path.insert(0, sys.argv[1])
            signal.signal(signal.SIGTERM, interrupt)
            from tasks.corpus.workers import workers_of
            from tasks.launch import Execution
            from work import sleep
            with workers_of(Execution(executor=sys.argv[2], workers=2)) as workers:
                dict(workers.map(sleep, {str(n): (sys.argv[3],) for n in range(2)}))
    """)
    (tmp_path / "command.py").write_text(script)
    pids = tmp_path / "pids"
    pids.mkdir()
    command = [sys.executable, str(tmp_path / "command.py"), str(HOUSE), name, str(pids)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until(lambda: len(list(pids.iterdir())) == 2)
    process.send_signal(number)
    process.wait(200)
    until(lambda: not any(Path("/proc", pid.name).exists() for pid in pids.iterdir()))


def until(true, seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="parents are watched by the kernel on Linux only")
@pytest.mark.parametrize("delay", [0.02, 0.2, 0.6])
def test_no_worker_outlives_a_command_that_is_killed_while_they_start(tmp_path, delay):
    script = textwrap.dedent("""
        import os, signal, sys, threading, time

        if __name__ == "__main__":
            sys.path.insert(0, sys.argv[1])
            from tasks.corpus.executor import Processes
            threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), signal.SIGKILL)).start()
            dict(Processes(2).map(time.sleep, {str(n): (300,) for n in range(2)}))
    """)
    (tmp_path / "command.py").write_text(script)
    command = [sys.executable, str(tmp_path / "command.py"), str(HOUSE), str(delay)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.communicate(timeout=300)  # returns once no process holds its output any more
    assert process.returncode == -signal.SIGKILL
