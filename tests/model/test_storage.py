"""Files as they are now, whoever wrote them; and what a store says, in one sentence."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest

from model import storage
from model.storage import StorageError

HOUSE = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.01, 0.01))


@pytest.fixture(params=["local", "memory", "s3"])
def root(request, tmp_path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/root"
    return str(tmp_path / "root") if request.param == "local" else f"memory://{tmp_path.name}"


def test_every_filesystem_answers_alike(root, tmp_path):
    assert not storage.exists(f"{root}/a/b.txt")
    assert storage.sizes(root) == {}
    with pytest.raises(FileNotFoundError):
        storage.read(f"{root}/a/b.txt")
    storage.write(f"{root}/a/b.txt", b"hello")
    finished = tmp_path / "finished"
    finished.write_bytes(b"whole")
    storage.move_in(finished, f"{root}/a/c.txt")
    assert storage.exists(f"{root}/a/b.txt")
    assert storage.exists(f"{root}/a")
    assert storage.sizes(root) == {"a/b.txt": 5, "a/c.txt": 5}
    assert list(storage.read_all([f"{root}/a/c.txt", f"{root}/a/b.txt"])) == [b"whole", b"hello"]
    with pytest.raises(FileNotFoundError):
        list(storage.read_all([f"{root}/a/c.txt", f"{root}/a/never"]))
    assert storage.read_range(f"{root}/a/b.txt", 1, 3) == b"el"
    assert [storage.read(found) for found in storage.matching(f"{root}/*/*.txt")] == [b"hello", b"whole"]
    storage.fetch(f"{root}/a/b.txt", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"hello"
    storage.remove(f"{root}/a/b.txt")
    storage.remove(f"{root}/never")
    assert storage.sizes(root) == {"a/c.txt": 5}


def test_a_folder_may_have_any_name(root):
    storage.write(f"{root}/d[1]?/a/b.txt", b"here")
    storage.write(f"{root}/d[1]?/a/c*.txt", b"too")
    storage.write(f"{root}/d1x/a/b.txt", b"elsewhere")
    assert [storage.read(found) for found in storage.matching("a/*.txt", under=f"{root}/d[1]?")] == [b"here", b"too"]
    every = [f"{root}/d[1]?/a/c*.txt", f"{root}/d[1]?/a/b.txt", f"{root}/d1x/a/b.txt"]
    assert list(storage.read_all(every)) == [b"too", b"here", b"elsewhere"]
    storage.remove(f"{root}/d[1]?/a/never")
    storage.remove(f"{root}/d[1]?/a/b.txt")
    assert storage.sizes(root) == {"d1x/a/b.txt": 9, "d[1]?/a/c*.txt": 3}
    storage.remove(f"{root}/d[1]?")
    assert storage.sizes(root) == {"d1x/a/b.txt": 9}


def test_the_home_is_one_place_whoever_reads_the_address(tmp_path, monkeypatch):
    """Nothing is taken from the home that was never written there, or the other way round."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    storage.write("~/data/a.txt", b"hello")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert storage.read(f"{tmp_path}/home/data/a.txt") == b"hello"
    assert [storage.read(found) for found in storage.matching("*.txt", under="~/data")] == [b"hello"]
    assert storage.sizes("~/data") == {"a.txt": 5}
    storage.remove("~/data/a.txt")
    assert not storage.exists("~/data/a.txt")
    storage.write("~nobody-of-this-name/a.txt", b"a folder's own name")
    assert (tmp_path / "~nobody-of-this-name" / "a.txt").exists()


def elsewhere(statement: str) -> None:
    """Do it in another process."""
    environment = os.environ | {"PYTHONPATH": str(HOUSE)}
    subprocess.run([sys.executable, "-c", f"from model import storage; {statement}"], env=environment, check=True)


def test_what_another_process_writes_is_seen_at_once(bucket):
    """The process that lists has listed before: fsspec's own filesystem would answer with that."""
    storage.write(f"{bucket}/x/ours", b"1")
    remembering, path = fsspec.core.url_to_fs(f"{bucket}/x", skip_instance_cache=True)
    assert len(remembering.ls(path)) == len(storage.sizes(f"{bucket}/x")) == 1
    elsewhere(f"storage.write({f'{bucket}/x/theirs'!r}, b'12')")
    assert len(remembering.ls(path)) == 1, "fsspec remembers no listings any more: this module may become smaller"
    assert storage.sizes(f"{bucket}/x") == {"ours": 1, "theirs": 2}
    assert [found.rsplit("/", 1)[-1] for found in storage.matching(f"{bucket}/x/*")] == ["ours", "theirs"]
    elsewhere(f"storage.write({f'{bucket}/x/theirs'!r}, b'123')")
    assert storage.sizes(f"{bucket}/x")["theirs"] == 3


@pytest.mark.parametrize("call", [storage.read, storage.exists, storage.sizes, lambda url: storage.write(url, b"x")])
def test_a_bucket_that_does_not_exist_is_not_an_empty_one(bucket, call):
    with pytest.raises(StorageError, match=r"^s3://no-such-bucket/a.*: there is no bucket 'no-such-bucket': create it"):
        call("s3://no-such-bucket/a/b")


def test_missing_credentials_are_one_sentence(bucket, monkeypatch, tmp_path):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StorageError, match=r"refuses access.*check the credentials") as caught:
        storage.read(f"{bucket}/a")
    assert caught.value.errno == errno.EACCES


def test_a_store_that_is_not_there_is_tried_again_and_then_one_sentence(bucket, monkeypatch, caplog):
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # the client's own; ours are more
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StorageError, match=r"does not answer as it should.*run the same command again") as caught:
        storage.sizes(f"{bucket}/a")
    assert caught.value.errno not in storage.LASTING
    assert "trying again" in caplog.text


@pytest.mark.parametrize(("url", "said"), [("nope://a/b", "Protocol not known: nope"), ("gs://a/b", "install gcsfs")])
def test_an_address_that_nothing_here_reads_is_refused(url, said):
    if "gcsfs" in said and find_spec("gcsfs"):
        pytest.skip("it is installed here")
    with pytest.raises(StorageError, match=said):
        storage.read(url)


def test_a_full_disk_stays_a_full_disk(root):
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        storage.patient(full, root)
    assert caught.value.errno == errno.ENOSPC
    assert not isinstance(caught.value, StorageError)


def test_a_passing_failure_is_tried_again(root, caplog):
    tries = iter([TimeoutError("slow"), ConnectionResetError("gone")])

    def call() -> str:
        for failure in tries:
            raise failure
        return "answered"

    assert storage.patient(call, root) == "answered"
    assert caplog.text.count("trying again") == 2


@pytest.fixture
def silent():
    """(address, what counts its connections) of a server that hangs up on whoever connects."""
    connections: list[None] = []

    def hang_up() -> None:
        with listener:
            while not ended.is_set():
                connection, _ = listener.accept()
                connection.close()
                connections.append(None)

    listener, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()
    address = listener.getsockname()
    thread = threading.Thread(target=hang_up)
    thread.start()
    yield f"http://127.0.0.1:{address[1]}", connections
    ended.set()
    socket.create_connection(address).close()  # it waits for one more
    thread.join()


def test_a_web_server_that_hangs_up_is_tried_again_and_is_not_taken_for_one_without_the_file(silent, caplog):
    """fsspec says FileNotFoundError of it."""
    url, connections = silent
    with pytest.raises(StorageError, match=r"does not answer as it should") as caught:
        storage.exists(f"{url}/a.jsonl")
    assert caught.value.errno not in storage.LASTING
    assert caplog.text.count("trying again") == len(storage.WAITS)
    assert len(connections) > len(storage.WAITS)


def test_what_is_said_of_an_error_has_no_signatures():
    error = OSError("403, url='https://host/a.txt?X-Amz-Signature=geheim&x=1' (see http://host/b?sig=geheim), why?")
    assert storage.said(error) == "OSError: 403, url='https://host/a.txt' (see http://host/b why?"


def test_a_web_server_that_nobody_reaches_is_not_one_without_the_file():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and it does not listen
        with pytest.raises(StorageError, match=r"does not answer as it should"):
            storage.exists(f"http://127.0.0.1:{deaf.getsockname()[1]}/a.jsonl")
