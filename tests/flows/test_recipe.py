"""The whole chain on the test preset: to its report, in an object store and in a folder, again with nothing to do, and
killed at several points."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import fsspec
import pytest

from flows.request import PresetName, Request
from flows.server import PRIVATE, Server
from flows.steps import graph
from model.precision import speed
from tests.flows.chain import finish, plan, start

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
TRAINED = ("base", "sft", "rl")


@pytest.fixture(scope="module")
def told(kept_bucket) -> str:
    """What an undisturbed run says, in an object store: every stage, the training jobs among them, with two worker
    processes."""
    return finish(f"{kept_bucket}/run")


@pytest.fixture(scope="module")
def stored(kept_bucket, told) -> str:
    """The root of that run."""
    assert "report.html" in told
    return f"{kept_bucket}/run"


@pytest.fixture(scope="module")
def straight(stored, tmp_path_factory) -> Path:
    """What that run left, moved to a folder."""
    root = tmp_path_factory.mktemp("straight")
    fsspec.filesystem("s3").get(f"{stored}/", str(root), recursive=True)
    return root


def contents(root: Path | str) -> dict[str, dict[str, str]]:
    """sha256 of every part of every step, but for what tells the time (metrics carry seconds)."""
    found = {}
    for step in plan(root).newest():
        parts = step.require().parts()
        found[f"{step.name}/{step.fingerprint}"] = {part.key: part.sha256 for part in parts if part.key != "metrics"}
    return found


def test_every_step_is_published_and_the_report_stands_alone(straight):
    for step in plan(straight).newest():
        assert step.require().parts(), step.name
    page = (straight / "report.html").read_text()
    assert "<html" in page
    assert 'src="http' not in page
    assert 'href="http' not in page.split("<body")[0]


def test_every_stage_of_pretraining_was_trained(straight):
    metrics = plan(straight)["base"].require().file("metrics").read_text().splitlines()
    stages = {json.loads(line).get("stage") for line in metrics}
    assert {"warm-up", "constant", "decay", "annealing", "long context"} <= stages


def test_a_rerun_with_nothing_changed_does_no_work(straight):
    """In a root that was moved, too."""
    assert plan(straight)["tokens"].require().made_from("tokenizer")
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.is_file()}
    assert "nothing to do" in finish(straight)
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.is_file()} == before


def test_a_changed_field_runs_only_what_depends_on_it(straight):
    request = Request(preset=PresetName.test, root=str(straight), overrides=["pretrain.seed=9"])
    states = {step.name: step.artifact() is not None for step in graph(request).newest()}
    assert [name for name, there in states.items() if not there] == [
        "base",
        "sft",
        "rl",
        "release",
        "evaluation",
        "base-suites",
        "sft-suites",
        "rl-suites",
        "release-suites",
        "release-suites-gate",
    ]


def test_a_small_machine_trains_in_float32(straight, told, tmp_path):
    """The two variables make a CPU that multiplies bfloat16 fast behave like one that does not. Such a one has done so
    in the undisturbed run."""
    root = straight
    if speed("cpu").fast != "float32":
        root = tmp_path / "small"
        shutil.copytree(straight, root)
        for name in TRAINED:
            shutil.rmtree(root / name)
        told = finish(root, ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")
    assert "Training in float32: this CPU multiplies bfloat16" in told
    steps = {step.name: step for step in plan(root).newest()}
    for name in TRAINED:
        config = steps[name].require().manifest["config"]
        assert config["dtype"] == config["optimizer"]["newton_schulz_dtype"] == "float32", name


def begun(root: Path, pattern: str, text: str = "") -> Callable[[], bool]:
    return lambda: any(text in path.read_text(errors="replace") for path in root.glob(pattern) if path.is_file())


def reached(root: Path, step: str, done: int) -> Callable[[], bool]:
    def there() -> bool:
        for path in root.glob(f"{step}/*/work/progress.json"):
            try:
                return json.loads(path.read_text())["done"] >= done
            except ValueError:
                return False
        return False

    return there


def answered(root: Path, least: int) -> Callable[[], bool]:
    """Whether the rewriter has given so many answers."""

    def there() -> bool:
        try:
            with closing(sqlite3.connect(f"file:{root}/answers/answers.sqlite?mode=ro", uri=True)) as answers:
                return answers.execute("SELECT count(*) FROM answers").fetchone()[0] >= least
        except sqlite3.OperationalError:  # not there, or not yet a table
            return False

    return there


@pytest.fixture(scope="module")
def access(told, tmp_path_factory) -> Iterator[dict[str, str]]:
    """The environment of runs that share a Prefect server: to start one costs as much as most stages."""
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder, PRIVATE)
    server.start()
    yield server.access
    server.stop()


def test_killed_at_many_points_it_ends_with_the_bytes_of_the_undisturbed_run(stored, tmp_path, access):
    """In a folder, what the other made in an object store. Between these: the stages' own tests kill them there."""
    root = tmp_path / "killed"
    moments = {
        "corpus": begun(root, "corpus/*/records/candidates*.json"),
        "scores": begun(root, "scores/*/records/*.json"),
        "rewrites": answered(root, 2),
        "mix": begun(root, "mix/*/records/*.json"),
        "long context": reached(root, "base", 57),
        "RL": reached(root, "rl", 2),
        "release": begun(root, "release/*/records/*.json"),
    }
    killed = []
    for name, moment in moments.items():
        if moment():
            continue  # too quick: it went past before it could be killed there
        # With a server of its own once: where most processes run.
        process = start(root, **({} if name == "rewrites" else access))
        while not moment() and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed.append(name)
        process.communicate(timeout=120)  # ends once every process that shares its output has: nothing outlives it
    assert "rewrites" in killed
    assert len(killed) >= 5, f"the run was too quick to be killed at most points: only at {killed}"
    finish(root, **access)
    assert contents(root) == contents(stored)


def test_in_an_object_store_there_is_nothing_left_to_do(stored):
    """That it gives the fingerprints and bytes of a folder, the killed run shows."""
    assert "nothing to do" in finish(stored)


def test_two_runs_never_work_in_one_root(straight, access):
    """The second waits, says for whom, and goes on when the first has ended."""
    first = start(straight, "report", **access)
    lock = straight / ".lock" / "disk"  # `.lock` is what the store had
    while not lock.exists() or f"process {first.pid} " not in lock.read_text():
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # it holds the root until the second has come
    second = start(straight, "report", **access)
    heard = ""
    while f"process {first.pid} " not in heard:
        line = second.stdout.readline()
        assert line, heard
        heard = " ".join(f"{heard} {line}".split())
    assert "waiting" in heard
    first.send_signal(signal.SIGCONT)
    for process in (first, second):
        assert "report.html" in process.communicate(timeout=120)[0]
    assert (first.returncode, second.returncode) == (0, 0)


def test_an_unwritable_root_is_one_sentence(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    process = start(blocked)
    told, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Traceback" not in told
    assert str(blocked) in told
