"""Identity, parts, manifests: what is real, what is skipped, what is refused."""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import storage
from model.config import Config
from tasks import artifact
from tasks.artifact import Artifact, ArtifactError, NotReady, Step, digest


class Literals(Config):
    size: int = 1
    name: str = "a"


def make(root: Path | str, name: str = "stage", **options) -> Step:
    config = options.pop("config", Literals())
    return Step(name, config, str(root), **options)


def test_a_fingerprint_is_known_before_anything_runs_and_ignores_where_it_lies(tmp_path):
    here, there = make(tmp_path / "a"), make("s3://bucket/b")
    assert here.fingerprint == there.fingerprint
    assert len(here.fingerprint) == 16
    assert here.artifact() is None


def test_configuration_version_data_name_and_inputs_each_change_the_fingerprint_and_code_does_not(tmp_path):
    base = make(tmp_path)
    others = [
        make(tmp_path, config=Literals(size=2)),
        make(tmp_path, version=2),
        make(tmp_path, data="other word lists"),
        make(tmp_path, name="other"),
        make(tmp_path, inputs=(make(tmp_path, name="input"),)),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert make(tmp_path, code="other", module="tasks.moved").fingerprint == base.fingerprint
    assert make(tmp_path, gate=make(tmp_path, name="gate")).fingerprint == base.fingerprint


def test_the_record_says_which_code_made_which_parts(tmp_path):
    before, after = make(tmp_path, code="before"), make(tmp_path, code="after")
    before.put("a", ".txt", lambda path: path.write_text("a"))
    after.put("b", ".txt", lambda path: path.write_text("b"))
    artifact = after.publish({})
    assert artifact.manifest["code"] == [{"hash": "after", "parts": 1}, {"hash": "before", "parts": 1}]
    assert artifact.other_code("after")
    only = make(tmp_path / "only", code="before").publish({})
    assert not only.other_code("before")
    assert only.other_code("after")


def test_what_was_made_from_other_bytes_is_outdated(tmp_path):
    """Other code made an input anew, under the same fingerprint, and it came out otherwise."""
    first = make(tmp_path, "first")
    last = make(tmp_path, "last", inputs=(first,))
    first.put("a", ".txt", lambda path: path.write_text("a"))
    first.publish({})
    last.publish({})
    assert last.outdated() == []
    assert first.discard().manifest["parts"][0]["key"] == "a"
    assert first.artifact() is None
    assert first.part("a") is None
    assert last.outdated() == ["first"]
    first.put("a", ".txt", lambda path: path.write_text("a"))
    first.publish({})
    assert last.outdated() == []
    first.discard()
    first.put("a", ".txt", lambda path: path.write_text("b"))
    first.publish({})
    assert last.outdated() == ["first"]


@pytest.mark.parametrize("calls", range(5))
def test_taking_back_that_is_ended_leaves_it_published_or_nothing_of_it(tmp_path, monkeypatch, calls):
    """Records without a manifest would be published by the next run, as if it had made them."""
    step, left, remove = make(tmp_path), [None] * calls, storage.remove
    step.put("a", ".txt", lambda path: path.write_text("a"))
    (step.workspace() / "summary.json").write_text("{}")
    step.publish({})

    def ended(url):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        remove(url)

    monkeypatch.setattr(storage, "remove", ended)
    with suppress(KeyboardInterrupt):
        step.discard()
    assert step.artifact() is not None or (step.recorded() == [] and not step.work.exists())


def test_an_input_is_read_when_its_gate_has_let_it_through(tmp_path):
    judged = make(tmp_path, "judged")
    gate = make(tmp_path, "judged-gate", inputs=(judged,))
    reader = make(tmp_path, "reader", inputs=(replace(judged, gate=gate),))
    artifact = judged.publish({})
    with pytest.raises(NotReady, match="'judged-gate'"):
        reader.input("judged")
    gate.publish({})
    assert reader.input("judged") == artifact
    assert reader.read() == {"judged": artifact}
    with pytest.raises(ArtifactError, match="'reader' reads no 'other'"):
        reader.input("other")
    judged.discard()
    judged.put("a", ".txt", lambda path: path.write_text("made anew, and judged by nobody"))
    judged.publish({})
    with pytest.raises(NotReady, match="'judged-gate' is of other bytes of judged"):
        reader.input("judged")


def test_an_input_that_is_of_other_bytes_than_lie_there_is_not_read(tmp_path):
    first = make(tmp_path, "first")
    middle = make(tmp_path, "middle", inputs=(first,))
    last = make(tmp_path, "last", inputs=(middle,))
    first.publish({})
    middle.publish({})
    assert last.read().keys() == {"middle"}
    first.discard()
    first.put("a", ".txt", lambda path: path.write_text("made anew"))
    first.publish({})
    with pytest.raises(NotReady, match="'middle' is of other bytes of first"):
        last.read()


def test_a_changed_input_changes_everything_downstream(tmp_path):
    def last(size: int) -> str:
        first = make(tmp_path, "first", config=Literals(size=size))
        return make(tmp_path, "last", inputs=(make(tmp_path, "middle", inputs=(first,)),)).fingerprint

    assert last(1) != last(2)


def test_a_leaf_gives_its_content_for_identity(tmp_path):
    def downstream(root: Path, text: str) -> str:
        leaf = make(root, "sources", leaf=True)
        with pytest.raises(NotReady, match="sources"):
            _ = make(root, "corpus", inputs=(leaf,)).fingerprint
        leaf.put("raw", ".txt", lambda path: path.write_text(text))
        leaf.publish({})
        return make(root, "corpus", inputs=(leaf,)).fingerprint

    same, again = downstream(tmp_path / "a", "x"), downstream(tmp_path / "b", "x")
    other = downstream(tmp_path / "c", "y")
    assert same == again != other


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_parts_become_real_with_the_manifest(tmp_path, kind):
    step = make(tmp_path if kind == "local" else f"memory://{tmp_path.name}-{kind}")
    part = step.put("documents/0", ".txt", lambda path: path.write_text("hello"), rows=1, statistics={"n": 1})
    assert step.part("documents/0") == part
    assert step.artifact() is None
    with pytest.raises(NotReady, match="stage"):
        step.require()
    artifact = step.publish({"documents": 1})
    assert step.artifact() == artifact
    assert [file.read_text() for file in artifact.files("documents")] == ["hello"]
    assert artifact.parts("docu") == []
    assert Artifact.load(artifact.uri).statistics == {"documents": 1}


def test_working_parts_stay_out_of_the_manifest(tmp_path):
    step = make(tmp_path)
    step.put("extracted/0", ".txt", lambda path: path.write_text("work"))
    step.put("documents/0", ".txt", lambda path: path.write_text("kept"))
    assert [part.key for part in step.publish({}, ["documents/0"]).parts()] == ["documents/0"]


def test_an_altered_part_is_refused_by_name(tmp_path):
    step = make(tmp_path)
    step.put("documents/0", ".txt", lambda path: path.write_text("hello"))
    artifact = step.publish({})
    file = next(Path(artifact.uri).glob("parts/documents/*"))
    file.write_text("hullo")
    with pytest.raises(ArtifactError, match=file.name):
        artifact.files()
    file.unlink()
    with pytest.raises(ArtifactError, match="missing"):
        artifact.files()


@pytest.mark.parametrize("left", ["", "hullo"])
def test_a_cached_part_that_was_cut_or_altered_is_fetched_again(tmp_path, monkeypatch, left):
    monkeypatch.setattr("tasks.part._VERIFIED", set())
    step = make(f"memory://{tmp_path.name}")
    step.put("listing/web", ".txt", lambda path: path.write_text("hello"))
    artifact = step.publish({})
    (file,) = artifact.files()
    file.write_text(left)
    monkeypatch.setattr("tasks.part._VERIFIED", set())  # as another process begins
    assert [path.read_text() for path in artifact.files()] == ["hello"]
    monkeypatch.setattr(storage, "fetch", None)
    monkeypatch.setattr("tasks.part.sha256_file", None)
    assert artifact.files() == [file], "it is read once more, not every time"


def test_a_broken_manifest_is_refused_by_name(tmp_path):
    step = make(tmp_path)
    step.publish({})
    manifest = Path(step.uri) / "manifest.json"
    manifest.write_text(manifest.read_text()[:-20])
    with pytest.raises(ArtifactError, match=r"manifest\.json is not valid JSON"):
        step.artifact()


@pytest.mark.parametrize("text", [b"", b'{"part": {"key"', b"\xff\xfe\xfd"])
def test_a_record_that_was_cut_is_named_by_whoever_reads_it(tmp_path, text):
    step = make(tmp_path)
    step.put("x/0", ".txt", lambda path: path.write_text("x"))
    (Path(step.uri) / "records" / "x--0.json").write_bytes(text)
    for read in (lambda: step.part("x/0"), lambda: step.parts(["x/0"]), step.recorded, lambda: step.publish({})):
        with pytest.raises(ArtifactError, match=r"x--0\.json is not valid JSON"):
            read()


def test_a_writer_that_fails_leaves_no_record_and_no_litter(tmp_path):
    step = make(tmp_path)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        step.put("documents/0", ".txt", fail)
    assert step.part("documents/0") is None
    assert not [path for path in Path(step.uri).rglob("*") if path.is_file()]


def test_a_short_write_on_a_full_disk_is_called_so(tmp_path, monkeypatch):
    def short(path: Path) -> None:
        raise OSError("161896 requested and 137216 written")

    with pytest.raises(OSError, match="requested"):
        make(tmp_path).put("documents/0", ".bin", short)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4096))
    with pytest.raises(OSError, match="No space left") as caught:
        make(tmp_path).put("documents/0", ".bin", short)
    assert caught.value.errno == errno.ENOSPC


def test_content_is_equal_for_equal_bytes_whatever_the_order_of_writing(tmp_path):
    def content(root: Path, keys: list[str]) -> str:
        step = make(root)
        for key in keys:
            step.put(key, ".txt", lambda path, key=key: path.write_text(key))
        return step.publish({}).manifest["content"]

    assert content(tmp_path / "a", ["x/0", "x/1", "y"]) == content(tmp_path / "b", ["y", "x/1", "x/0"])


def test_time_adds_up_over_attempts(tmp_path, monkeypatch):
    step = make(tmp_path).begin()
    step.put("a", ".txt", lambda path: path.write_text("a"))
    record = Path(step.uri) / "records" / "a.json"
    told = json.loads(record.read_text())
    record.write_text(json.dumps(told | {"attempt": "earlier", "elapsed": 100.0}))
    manifest = step.publish({}).manifest
    assert manifest["attempts"] == 2
    assert 100.0 <= manifest["seconds"] < 160.0


def test_waiting_before_another_try_of_the_same_process_is_no_time(tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, strftime=time.strftime, gmtime=time.gmtime, now=0.0)
    monkeypatch.setattr(artifact, "time", clock)
    step = make(tmp_path).begin()
    clock.now += 10.0
    step.put("a", ".txt", lambda path: path.write_text("a"))
    clock.now += 5000.0
    step.begin()
    clock.now += 7.0
    manifest = step.publish({}).manifest
    assert (manifest["seconds"], manifest["attempts"]) == (17.0, 2)


def test_what_a_kill_left_half_written_goes_when_the_work_begins_anew(tmp_path):
    step = make(tmp_path)
    left = Path(step.uri) / "scratch" / "tmpkilled" / "part.bin"

    def killed() -> None:
        left.parent.mkdir(parents=True)
        left.write_bytes(b"half")

    killed()
    step.begin(alone=False)
    assert left.exists(), "another process may be writing it"
    step.begin()
    assert not left.exists()
    killed()
    step.discard()
    assert not left.exists()


def test_worker_processes_belong_to_the_attempt_that_began(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENK2_ATTEMPT", raising=False)
    make(tmp_path).begin()
    assert os.environ["OPENK2_ATTEMPT"]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_later_version_lists_the_parts_of_earlier_ones_without_copying_them(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    root = tmp_path if kind == "local" else f"memory://{tmp_path.name}-versions"
    versions: list[Artifact] = []
    for number in range(3):
        step = make(root, config=Literals(size=number))
        step.put(f"documents/{number}", ".txt", lambda path, number=number: path.write_text(f"text {number}"), rows=1)
        versions.append(step.publish({}, earlier=versions[-1] if versions else None))
    newest = versions[-1]
    assert [part.key for part in newest.parts("documents")] == ["documents/0", "documents/1", "documents/2"]
    assert [file.read_text() for file in newest.files()] == ["text 0", "text 1", "text 2"]
    assert newest.file("documents/0").read_text() == "text 0"
    assert [len(version.parts()) for version in versions] == [1, 2, 3]
    fs, path = fsspec.core.url_to_fs(newest.uri)
    assert len(fs.find(f"{path}/parts")) == 1


def test_an_altered_part_of_an_earlier_version_is_refused_by_its_own_name(tmp_path):
    first, second = make(tmp_path), make(tmp_path, config=Literals(size=2))
    first.put("a", ".txt", lambda path: path.write_text("hello"))
    later = second.publish({}, earlier=first.publish({}))
    next(Path(first.uri).glob("parts/a.*")).write_text("hullo")
    with pytest.raises(ArtifactError, match=rf"{first.fingerprint}.*was altered or cut; delete .*{first.fingerprint}"):
        later.files()


def test_what_is_no_earlier_version_is_refused(tmp_path):
    first, second = make(tmp_path), make(tmp_path, config=Literals(size=2))
    for step in (first, second):
        step.put("a", ".txt", lambda path: path.write_text("hello"))
    with pytest.raises(ArtifactError, match=r"'a' is in .* and in"):
        second.publish({}, earlier=first.publish({}))
    with pytest.raises(ArtifactError, match="side by side"):
        second.publish({}, earlier=make(tmp_path, name="other").publish({}))
    assert second.artifact() is None


@pytest.mark.parametrize("path", ["../../secret", "/etc/hostname", "parts/../../secret", "../0123/../secret", "secret"])
def test_a_manifest_cannot_point_outside(tmp_path, path):
    step = make(tmp_path)
    step.put("a", ".txt", lambda path: path.write_text("hello"))
    artifact = step.publish({})
    (tmp_path / "secret").write_text("hello")
    part = dataclasses.replace(artifact.parts()[0], path=path)
    with pytest.raises(ArtifactError, match="outside of it"):
        artifact.file(part)


def test_workers_are_sent_the_record_and_not_the_manifest(tmp_path):
    artifact = make(tmp_path).publish({"documents": 3})
    size = len(pickle.dumps(artifact))
    assert artifact.manifest["statistics"] == {"documents": 3}
    assert len(pickle.dumps(artifact)) == size
    assert copy.copy(artifact) == artifact


CHILD = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from model.config import Config
from tasks.artifact import Step
class Literals(Config):
    size: int = 1
    name: str = "a"
step = Step("stage", Literals(), sys.argv[1])
for number in range(6):
    if step.part(f"documents/{number}") is None:
        def write(path):
            path.write_text(f"half of {number}")
            if number == int(sys.argv[2]):
                os.kill(os.getpid(), 9)
            path.write_text(f"all of {number}")
        step.put(f"documents/{number}", ".txt", write, rows=1)
step.publish({"documents": 6})
"""


def test_kill_minus_nine_anywhere_then_the_same_command_gives_the_same_bytes(tmp_path):
    house = Path(__file__).resolve().parents[2]

    def attempt(root: Path, kill_at: int) -> int:
        command = [sys.executable, "-c", CHILD, str(root), str(kill_at)]
        return subprocess.run(command, cwd=house, env={**os.environ, "PYTHONPATH": str(house)}).returncode

    assert attempt(tmp_path / "straight", -1) == 0
    for kill_at in (0, 3, 5):
        assert attempt(tmp_path / "killed", kill_at) == -signal.SIGKILL
        assert make(tmp_path / "killed").artifact() is None
    assert attempt(tmp_path / "killed", -1) == 0
    straight, killed = (make(tmp_path / name).require() for name in ("straight", "killed"))
    assert straight.manifest["content"] == killed.manifest["content"]
    assert [file.read_text() for file in killed.files()] == [f"all of {number}" for number in range(6)]


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none(), max_size=6))
def test_a_digest_does_not_depend_on_the_order_of_keys(value):
    assert digest(value) == digest(dict(reversed(value.items())))
