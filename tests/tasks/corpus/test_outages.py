"""Outages: what a store, a network or a disk does not give for a while is not taken for lost, and is tried again."""

from __future__ import annotations

import errno
import io
import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from model import storage
from tasks.artifact import Artifact
from tasks.corpus import storage as places
from tasks.corpus.acquire import AcquireError, acquire
from tasks.corpus.snapshots import acquire_new
from tasks.corpus.unavailable import OutageError
from tasks.stage import make, passing
from tests.raw import PACK, folder, step, tar, warc
from tests.tasks.corpus.test_archives import zipped
from tests.tasks.corpus.test_reading import parquet
from tests.tasks.corpus.test_snapshots import after
from tests.tasks.corpus.test_storage import put_local, texts
from tests.web import Handler

LINES = b'{"text": "one"}\n{"text": "two"}\n'


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.01,))


def retried(error: Exception) -> bool:
    """Whether Prefect tries the task again that raised this."""

    def fail() -> None:
        raise error

    return passing(make, None, SimpleNamespace(result=fail))  # type: ignore[arg-type]


def failing(name: str, good: int = 0, listed: bool = True):
    """`_opened` of a disk on which the file of that name fails: read as a stream it gives `good` blocks of one byte;
    its checksum can be made where it could be `listed`."""

    class Failing(io.FileIO):
        left = good

        def read(self, size: int | None = -1) -> bytes:
            if not listed:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(size)

        def readinto(self, buffer) -> int:
            if not self.left:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.left -= 1
            return super().readinto(memoryview(buffer)[:1])

    return lambda path: Failing(path) if path.name == name else io.FileIO(path)


@pytest.mark.parametrize("name", ["broken.jsonl", "broken.txt", "broken.tar"])
def test_a_server_that_fails_ends_the_listing_which_is_tried_again(tmp_path, web, name):
    put = put_local(web[0])
    put("a.jsonl", LINES)
    put("paths.txt", f"a.jsonl\n{name}\n".encode())
    source = folder(web[1], listing=str(web[0] / "paths.txt"))
    with pytest.raises(OutageError, match=rf"source 'own': {name} cannot be read now: .*500.*`exclude`") as outage:
        acquire(step(tmp_path / "data", source), tmp_path)
    assert retried(outage.value)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_disk_that_fails_while_files_are_listed_loses_nothing(tmp_path, monkeypatch, name):
    put_local(tmp_path / "in")(name, LINES)
    monkeypatch.setattr(places, "_opened", failing(name, listed=False))
    with pytest.raises(OutageError, match=f"source 'own': {name} cannot be read now: Input/output error"):
        acquire(step(tmp_path / "data", folder(tmp_path / "in")), tmp_path)


def test_what_is_excluded_need_not_be_there(tmp_path, web, monkeypatch):
    put = put_local(web[0])
    put("a.txt", b"a")
    put("paths.txt", b"a.txt\nbroken.txt\nbroken.jsonl\n")
    source = folder(web[1], listing=str(web[0] / "paths.txt"), exclude=["broken*"])
    assert texts(acquire(step(tmp_path / "remote", source), tmp_path)) == {"a.txt": ["a"]}
    put("broken.txt", b"b")
    monkeypatch.setattr(places, "_opened", failing("broken.txt", listed=False))
    source = folder(web[0], exclude=["broken*", "paths.txt"])
    assert texts(acquire(step(tmp_path / "local", source), tmp_path)) == {"a.txt": ["a"]}


IN_PLACE = ["a.txt", "a.jsonl", *(f"a.jsonl{suffix}" for suffix in PACK), "a.warc", "a.tar", "a.zip", "a.parquet"]


def put_one(root: Path, name: str) -> None:
    """A file of two documents, of the kind that its name says."""
    members = {"one.txt": b"One.", "two.txt": b"Two."}
    made = {
        ".txt": lambda: LINES,
        ".jsonl": lambda: LINES,
        ".warc": lambda: warc("<p>One.</p>") + warc("<p>Two.</p>"),
        ".tar": lambda: tar(members),
        ".zip": lambda: zipped(members),
        ".parquet": lambda: parquet(root.parent, text=["one", "two"]),
    } | {suffix: lambda pack=pack: pack(LINES) for suffix, pack in PACK.items()}
    put_local(root)(name, made[Path(name).suffix]())


@pytest.mark.parametrize("good", [0, 20])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_disk_that_fails_while_a_file_is_read_in_place_loses_nothing(tmp_path, monkeypatch, name, good):
    """No reader takes it for damage of the file, which would be published without the rest of it."""
    put_one(tmp_path / "in", name)
    source = folder(tmp_path / "in", include=["a.*"])
    artifact = acquire(step(tmp_path / "data", source, shard_bytes=1), tmp_path)
    expected = texts(artifact)
    assert not any(text.startswith("! ") for some in expected.values() for text in some)
    with monkeypatch.context() as away:
        away.setattr(places, "_opened", failing(name, good))
        said = re.escape(f"source 'own': {name} cannot be read now: Input/output error")
        with pytest.raises(OutageError, match=said) as outage:
            texts(artifact)
    assert retried(outage.value)
    assert texts(artifact) == expected


def test_a_server_that_fails_while_a_file_is_read_in_place_loses_nothing(tmp_path, web, monkeypatch):
    put_local(web[0])("a.jsonl", LINES)
    artifact = acquire(step(tmp_path / "data", folder(f"{web[1]}/a.jsonl")), tmp_path)
    with monkeypatch.context() as away:
        away.setattr(Handler, "send_head", lambda self: self.send_error(503))
        with pytest.raises(OutageError, match=r"source 'own': a.jsonl cannot be read now: the store does not answer"):
            texts(artifact)
    assert texts(artifact) == {"a.jsonl": ["one", "two"]}


@pytest.mark.parametrize("what", ["source", "listing", "evaluation"])
def test_what_is_away_when_it_is_asked_for_is_tried_again_and_what_is_not_there_is_not(tmp_path, what):
    put_local(tmp_path)("in/a.jsonl", LINES)

    def refused(path: str) -> Exception:
        source = (
            folder(path) if what == "source" else folder(tmp_path / "in", listing=path if what == "listing" else None)
        )
        sets = [{"name": "exam", "path": f"{path}/*.jsonl"}] if what == "evaluation" else []
        with pytest.raises((AcquireError, OutageError)) as error:
            acquire(step(tmp_path / "data", source, evaluations=sets), tmp_path)
        return error.value

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and it does not listen
        assert retried(refused(f"http://127.0.0.1:{deaf.getsockname()[1]}/a"))
    assert not retried(refused(f"{tmp_path}/nothing"))


def test_a_fallback_that_did_not_serve_at_first_never_does(tmp_path):
    """Its files would be new, and stay in the corpus for good."""
    put = put_local(tmp_path)
    put("main/a.txt", b"a")
    put("spare/b.txt", b"b")
    main, spare = folder(tmp_path / "main", "main", fallback=["spare"]), folder(tmp_path / "spare", "spare")
    first = step(tmp_path / "data", main, fallbacks=(spare,))
    acquire(first, tmp_path)
    (tmp_path / "main").rename(tmp_path / "away")
    before = sorted((tmp_path / "data").rglob("*"))
    with pytest.raises(
        AcquireError, match=r"source 'main', of which the first snapshot .* cannot be had: .*no file or"
    ):
        acquire_new(after(first), tmp_path)
    assert sorted((tmp_path / "data").rglob("*")) == before
    (tmp_path / "away").rename(tmp_path / "main")
    put("main/c.txt", b"c")
    second = acquire_new(after(first), tmp_path)
    assert second is not None
    assert texts_of(second) == ["c"]


def test_a_fallback_that_served_at_first_goes_on(tmp_path):
    put = put_local(tmp_path)
    put("spare/b.txt", b"b")
    main, spare = folder(tmp_path / "main", "main", fallback=["spare"]), folder(tmp_path / "spare", "spare")
    first = step(tmp_path / "data", main, fallbacks=(spare,))
    acquire(first, tmp_path)
    put("main/a.txt", b"a")
    assert acquire_new(after(first), tmp_path) is None
    put("spare/c.txt", b"c")
    second = acquire_new(after(first), tmp_path)
    assert second is not None
    assert texts_of(second) == ["c"]
    assert second.statistics["fallbacks"] == {"spare": "main"}


def test_a_refresh_on_a_night_without_the_server_is_tried_again(tmp_path, web, monkeypatch):
    put = put_local(web[0])
    put("a.jsonl", LINES)
    put_local(tmp_path)("spare/b.txt", b"b")
    main = folder(f"{web[1]}/a.jsonl", "main", fallback=["spare"])
    first = step(tmp_path / "data", main, fallbacks=(folder(tmp_path / "spare", "spare"),))
    acquire(first, tmp_path)
    with monkeypatch.context() as away:
        away.setattr(Handler, "send_head", lambda self: self.send_error(503))
        with pytest.raises(OutageError, match=r"source 'main'.* cannot be had: .*503") as outage:
            acquire_new(after(first), tmp_path)
    assert retried(outage.value)
    assert acquire_new(after(first), tmp_path) is None


def texts_of(artifact: Artifact) -> list[str]:
    return [text for some in texts(artifact).values() for text in some]
