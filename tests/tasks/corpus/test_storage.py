"""Sources where they lie: S3, web servers, local disks; what cannot be had is one sentence, what changed is named."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import tracemalloc
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from model import storage
from tasks.artifact import Artifact
from tasks.corpus import folders, records
from tasks.corpus import storage as places
from tasks.corpus.acquire import AcquireError, acquire, checksum, listing, resolve
from tasks.corpus.archives import Unreadable
from tasks.corpus.extract.passage import Passage
from tasks.corpus.partition import sources_of
from tasks.corpus.reading import passages
from tasks.corpus.sources import BlocklistSource, EvaluationSource, FolderSource, SourcesConfig
from tasks.corpus.storage import Reference, Store
from tasks.corpus.unavailable import OutageError
from tests.linear import assert_linear
from tests.raw import folder, step, tar, warc
from tests.web import Handler, served


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.01, 0.02))


class Plain(http.server.SimpleHTTPRequestHandler):
    """A server without ranges."""

    def log_message(self, *_):
        pass


class Untagged(Handler):
    """A server that tells the size of a file, but neither its tag nor when it changed."""

    def send_header(self, keyword, value):
        if keyword != "ETag":
            super().send_header(keyword, value)


def items(artifact: Artifact, **more) -> list[tuple[str, Passage | Unreadable]]:
    (record,) = sources_of(artifact).values()
    source = FolderSource(**{**record["source"], **more})
    return [one for path in artifact.files("raw") for one in passages(path, source)]


def texts(artifact: Artifact) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, one in items(artifact):
        found.setdefault(path, []).append(one.text if isinstance(one, Passage) else f"! {one.reason}")
    return found


def put_everything(put) -> dict[str, list[str]]:
    """One file of each kind through `put(name, bytes)`; what should be read of each."""
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["row 0", "row 1"]}), table)
    put("a/page.html", b"<p>A page.</p>")
    put("a/lines.jsonl.gz", gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'))
    put("b/rows.parquet", table.getvalue().to_pybytes())
    put("crawl.warc.gz", gzip.compress(warc("<p>Crawled.</p>")))
    put("packed.tar", tar({"x/inner.txt": b"Inner."}))
    put("b/.git/note.txt", b"No document.")
    return {
        "a/page.html": ["A page."], "a/lines.jsonl.gz": ["one", "two"], "b/rows.parquet": ["row 0", "row 1"],
        "crawl.warc.gz": ["Crawled."], "packed.tar/x/inner.txt": ["Inner."],
    }  # fmt: skip


def put_local(root: Path):
    def put(name: str, data: bytes) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    return put


def test_a_local_folder_an_s3_bucket_and_a_web_server_give_the_same(tmp_path, bucket, web):
    import fsspec

    expected = put_everything(put_local(web[0]))
    put_everything(lambda name, data: fsspec.filesystem("s3").pipe(f"{bucket}/pre/{name}", data))
    listed = [str(path.relative_to(web[0])) for path in web[0].rglob("*.*") if ".git" not in path.parts]
    (web[0] / "paths.txt").write_text("\n".join(listed))
    for number, source in enumerate(
        (
            folder(web[0], exclude=["paths.txt"]),
            folder(f"{bucket}/pre"),
            folder(web[1], listing=f"{web[1]}/paths.txt", exclude=["paths.txt"]),
        )
    ):
        artifact = acquire(step(tmp_path / f"data{number}", source), tmp_path)
        assert texts(artifact) == expected, source
        rows = [json.loads(line) for line in artifact.file("listing/own").read_text().splitlines()]
        assert all(row["bytes"] and row["checksum"] for row in rows)
        references = [path for path in artifact.files("raw") if path.suffix == ".json"]
        assert {one["path"] for path in references for one in json.loads(path.read_text())} == {
            "a/lines.jsonl.gz", "b/rows.parquet", "crawl.warc.gz",
        }  # fmt: skip


def test_credentials_stand_in_no_record(tmp_path, bucket):
    import fsspec

    put_everything(lambda name, data: fsspec.filesystem("s3").pipe(f"{bucket}/{name}", data))
    acquire(step(tmp_path / "data", folder(bucket)), tmp_path)
    written = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert b"secret-of-the-test" not in written
    for path in ("https://user:password@host/x", "s3://b/x?X-Amz-Signature=abc", "https://h/x?a=1&sig=abc"):
        for kind, fields in (
            (FolderSource, folder(path)),
            (FolderSource, folder("s3://b/x", listing=path)),
            (EvaluationSource, {"name": "exam", "path": path}),
            (BlocklistSource, {"name": "list", "path": path}),
        ):
            with pytest.raises(ValidationError, match="must not hold credentials"):
                kind(**fields)
    FolderSource(**folder("https://host/@user/x?page=1"))


@pytest.mark.parametrize(
    "line", ["{}/a.txt?X-Amz-Date=1&X-Amz-Signature=geheim", "a.txt?token=geheim", "https://me:geheim@host/a.txt"]
)
def test_signed_addresses_in_a_listing_are_refused_as_the_source_s_own_and_not_repeated(tmp_path, web, line):
    put = put_local(web[0])
    put("a.txt", b"a")
    put("paths.txt", f"a.txt\n{line.format(web[1])}\n".encode())
    with pytest.raises(AcquireError, match=r"source 'own' cannot be had: .*must not hold credentials") as error:
        acquire(step(tmp_path / "data", folder(web[1], listing=str(web[0] / "paths.txt"))), tmp_path)
    assert "geheim" not in str(error.value)
    assert "\n" not in str(error.value)


def test_where_a_server_redirects_to_stands_in_no_record(tmp_path, web, monkeypatch, caplog):
    put_local(web[0])("paths.txt", b"a.jsonl\n")
    signatures = count()

    class Signed(Handler):
        def send_head(self):
            if "?" in self.path:
                self.send_error(403)
                return
            self.send_response(302)
            self.send_header("Location", f"{self.path}?X-Amz-Signature=geheim&X-Amz-Date={next(signatures)}")
            self.end_headers()

    server = served(web[0], Signed)
    source = folder(f"http://127.0.0.1:{server.server_address[1]}", listing=str(web[0] / "paths.txt"))
    one, other = (acquire(step(tmp_path / root, source), tmp_path).file("listing/own").read_text() for root in "ab")
    server.shutdown()
    assert "403" in one
    assert "X-Amz" not in one
    assert one == other
    assert "geheim" not in caplog.text


def test_why_something_could_not_be_read_holds_no_secret():
    error = OSError(5, "s3://me:geheim@bucket/a could not be read")
    assert places.why(error) == "s3://[hidden]@bucket/a could not be read"
    row = records.unread("own", "a.parquet", "unreadable", "not readable: https://host/a?sig=geheim")
    assert row["value"] == "not readable: https://host/a?sig=[hidden]"


def test_what_cannot_be_reached_is_one_sentence(tmp_path, bucket, web, monkeypatch):
    for path, message in (
        (f"{bucket}/nothing", "nothing lies at s3://"),
        ("s3://no-such-bucket-here/x", "s3://no-such-bucket-here/x"),
        (f"{web[1]}/missing.jsonl", "missing.jsonl"),
        (f"{web[1]}/secret.jsonl", "secret.jsonl"),
        ("nosuch://x", "nosuch://x cannot be opened"),
        ("http://127.0.0.1:9/x.jsonl", "127.0.0.1:9"),
    ):
        with pytest.raises((AcquireError, OutageError), match=r"source 'own' cannot be had") as error:
            acquire(step(tmp_path / "data", folder(path)), tmp_path)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_objects_that_are_missing_or_refused_are_named_and_the_others_are_read(tmp_path, web):
    put = put_local(web[0])
    put("a.jsonl", b'{"text": "a"}')
    put(
        "paths.txt",
        b"a.jsonl\nmissing.jsonl\nsecret.jsonl\n../outside.jsonl\nhttp://other.example/x.jsonl\n",
    )
    artifact = acquire(step(tmp_path / "data", folder(web[1], listing=str(web[0] / "paths.txt"))), tmp_path)
    assert texts(artifact) == {"a.jsonl": ["a"]}
    rows = [json.loads(line) for line in artifact.file("listing/own").read_text().splitlines()]
    said = {row["path"]: row["unreadable"] for row in rows if "unreadable" in row}
    assert "403" in said["secret.jsonl"]
    assert set(said) == {"missing.jsonl", "secret.jsonl", "../outside.jsonl", "http://other.example/x.jsonl"}


def test_a_server_error_that_passes_is_waited_out(tmp_path, web):
    put_local(web[0])("a.jsonl", b'{"text": "a"}')
    Handler.failures.clear()
    artifact = acquire(step(tmp_path / "data", folder(f"{web[1]}/fails/a.jsonl")), tmp_path)
    Handler.failures.clear()
    assert texts(artifact) == {"a.jsonl": ["a"]}


def test_a_server_without_ranges_serves_too(tmp_path):
    put_everything(put_local(tmp_path / "web"))
    server = served(tmp_path / "web", Plain)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    for name, expected in (("a/lines.jsonl.gz", ["one", "two"]), ("b/rows.parquet", ["row 0", "row 1"])):
        artifact = acquire(step(tmp_path / f"data{len(name)}", folder(f"{base}/{name}")), tmp_path)
        assert texts(artifact) == {name.rpartition("/")[2]: expected}
    server.shutdown()


def test_a_silent_server_does_not_hang(tmp_path, monkeypatch):
    import socket

    monkeypatch.setattr(storage, "READ_SECONDS", 0.3)
    monkeypatch.setattr(storage, "WAITS", (0.01,))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(OutageError, match="cannot be had"):
            acquire(step(tmp_path, folder(f"http://127.0.0.1:{listener.getsockname()[1]}/a.jsonl")), tmp_path)


@pytest.mark.parametrize("change", ["same size", "other size", "gone"])
def test_an_object_that_changed_since_it_was_listed_is_named(tmp_path, change):
    put = put_local(tmp_path / "in")
    put("a.jsonl", b'{"text": "a"}')
    put("b.jsonl", b'{"text": "b"}')
    artifact = acquire(step(tmp_path / "data", folder(tmp_path / "in")), tmp_path)
    if change == "gone":
        (tmp_path / "in" / "a.jsonl").unlink()
    else:
        put("a.jsonl", b'{"text": "z"}' if change == "same size" else b'{"text": "longer"}')
    found = texts(artifact)
    assert found["b.jsonl"] == ["b"]
    assert found["a.jsonl"][0].startswith("! ")
    assert ("changed since it was listed" in found["a.jsonl"][0]) == (change != "gone")


def test_a_changed_remote_object_is_named(tmp_path, bucket, web):
    import fsspec

    for number, (place, put) in enumerate(
        (
            (bucket, lambda name, data: fsspec.filesystem("s3").pipe(f"{bucket}/{name}", data)),
            (f"{web[1]}/a.jsonl", put_local(web[0])),
        )
    ):
        put("a.jsonl", b'{"text": "a"}')
        artifact = acquire(step(tmp_path / f"data{number}", folder(place)), tmp_path)
        assert texts(artifact) == {"a.jsonl": ["a"]}
        put("a.jsonl", b'{"text": "b"}')
        assert "changed since it was listed" in texts(artifact)["a.jsonl"][0]


def test_a_file_above_the_shard_is_referred_to_and_a_large_archive_is_read_in_place(tmp_path):
    put = put_local(tmp_path / "in")
    put("big.txt", b"word " * 1000)
    put("small.txt", b"small")
    put("big.tar.gz", gzip.compress(tar({"x.txt": os.urandom(4000).hex().encode(),
        "y.html": b"<p>y</p>", "z.jsonl": b'{"text": "z"}'})))  # fmt: skip
    source = folder(tmp_path / "in", include=["*.txt", "*.jsonl"])
    artifact = acquire(step(tmp_path / "data", source, shard_bytes=2000), tmp_path)
    found = {path: len(some) for path, some in texts(artifact).items()}
    assert found == {"big.txt": 1, "small.txt": 1, "big.tar.gz/x.txt": 1, "big.tar.gz/z.jsonl": 1}
    assert sorted(path.suffix for path in artifact.files("raw")) == [".json", ".json", ".zip"]


def test_names_that_are_no_text_are_kept_apart_and_can_be_read(tmp_path):
    root = tmp_path / "in"
    root.mkdir()
    for name in (b"caf\xe9.jsonl", b"new\nline.txt", b"caf\xe9.txt"):
        (root / os.fsdecode(name)).write_bytes(b'{"text": "x"}')
    artifact = acquire(step(tmp_path / "data", folder(root)), tmp_path)
    assert {path: some[0] for path, some in texts(artifact).items()} == {
        "caf\ufffd.jsonl": "x", "caf\ufffd.txt": '{"text": "x"}', "new\nline.txt": '{"text": "x"}',
    }  # fmt: skip


def test_folders_and_files_without_permission_are_named(tmp_path, monkeypatch):
    put = put_local(tmp_path / "in")
    for name in ("a.txt", "locked/b.txt", "secret.txt", "secret.jsonl"):
        put(name, b"a")
    scandir, opened = os.scandir, os.open

    def refuse(path):
        if str(path).rpartition("/")[2].startswith(("locked", "secret")):
            raise PermissionError(13, "Permission denied", str(path))

    # The user of this test may be root, whom nothing is refused.
    monkeypatch.setattr(os, "scandir", lambda path: (refuse(path), scandir(path))[1])
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: (refuse(path), opened(path, *rest, **more))[1])
    artifact = acquire(step(tmp_path / "data", folder(tmp_path / "in")), tmp_path)
    assert texts(artifact) == {"a.txt": ["a"]}
    rows = [json.loads(line) for line in artifact.file("listing/own").read_text().splitlines()]
    assert {row["path"]: row["unreadable"] for row in rows if "unreadable" in row} == {
        "locked": "folder could not be listed: Permission denied",
        "secret.txt": "Permission denied",
        "secret.jsonl": "Permission denied",
    }


def test_a_folder_that_lies_deep_is_read_like_any_other(tmp_path):
    path = tmp_path
    for _ in range(1_200):
        path /= "d"
        path.mkdir()
    (path / "deep.txt").write_text("deep")
    (tmp_path / "z.txt").write_text("z")
    try:
        found = list(Store(FolderSource(**folder(tmp_path))).objects())
    finally:  # what cleans up after tests recurses itself
        (path / "deep.txt").unlink()
        while path != tmp_path:
            path.rmdir()
            path = path.parent
    assert found == [Reference(f"{'d/' * 1_200}deep.txt", 4), Reference("z.txt", 1)]


def test_files_and_folders_come_in_the_order_of_their_names_and_a_folder_as_a_whole(tmp_path):
    for name in ("b/c/2", "b/c.txt", "b/a", "b-1", "b.txt", "a/z/y/x", "a/z.txt", "c/.git/no", "c/d/e", "Z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    found = [one.path for one in Store(FolderSource(**folder(tmp_path))).objects()]
    assert found == ["Z", "a/z/y/x", "a/z.txt", "b/a", "b/c/2", "b/c.txt", "b-1", "b.txt", "c/d/e"]


def known_of(artifact: Artifact) -> set[tuple[str, str, str]]:
    rows = (json.loads(line) for line in artifact.file("listing/own").read_text().splitlines())
    return {("own", row["path"], row["checksum"]) for row in rows if "checksum" in row}


def test_a_later_snapshot_holds_only_what_is_new_or_changed(tmp_path, bucket):
    import fsspec

    s3 = fsspec.filesystem("s3")
    places = {
        str(tmp_path / "in"): put_local(tmp_path / "in"),
        bucket: lambda name, data: s3.pipe(f"{bucket}/{name}", data),
    }
    for number, (place, put) in enumerate(places.items()):
        expected = put_everything(put)
        first = acquire(step(tmp_path / f"first{number}", folder(place)), tmp_path)
        assert texts(first) == expected
        same = acquire(step(tmp_path / f"same{number}", folder(place)), tmp_path, known=known_of(first))
        assert same.parts("raw") == []
        assert same.statistics["files"] == 0
        put("a/page.html", b"<p>Another page.</p>")
        put("a/lines.jsonl.gz", gzip.compress(b'{"text": "three"}\n'))
        put("new.txt", b"New.")
        put("packed.tar", tar({"x/inner.txt": b"Inner.", "x/more.txt": b"More."}))
        second = acquire(step(tmp_path / f"second{number}", folder(place)), tmp_path, known=known_of(first))
        assert texts(second) == {
            "a/page.html": ["Another page."], "a/lines.jsonl.gz": ["three"], "new.txt": ["New."],
            "packed.tar/x/more.txt": ["More."],
        }  # fmt: skip


def test_a_later_snapshot_has_what_grew_on_a_server_without_tags_and_dates(tmp_path):
    put = put_local(tmp_path / "web")
    put("a.txt", b"One.")
    server = served(tmp_path / "web", Untagged)
    source = folder(f"http://127.0.0.1:{server.server_address[1]}/a.txt")
    first = acquire(step(tmp_path / "first", source), tmp_path)
    known = known_of(first)
    assert acquire(step(tmp_path / "same", source), tmp_path, known=known).parts("raw") == []
    put("a.txt", b"One. Two.")
    second = acquire(step(tmp_path / "second", source), tmp_path, known=known)
    assert (texts(first), texts(second)) == ({"a.txt": ["One."]}, {"a.txt": ["One. Two."]})
    server.shutdown()


def test_listing_says_what_is_there_and_writes_nothing(tmp_path):
    put_everything(put_local(tmp_path / "in"))
    config = SourcesConfig(sources=[folder(tmp_path / "in")])
    (one,) = resolve(config, tmp_path, offline=True)
    found = {item.path: checksum(item) for item in listing(one, config, tmp_path)}
    assert len(found) == 5
    assert all(value.startswith("xxh3:") for value in found.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_what_is_fetched_together_is_bounded_in_number_and_in_bytes(monkeypatch):
    monkeypatch.setattr(folders, "BATCH_BYTES", 100)
    objects = [Reference(f"{number:03}", size) for number, size in enumerate([30] * 10 + [1] * 200 + [90, 90, 5000, 1])]
    batches = list(folders._batches(objects, 1000))
    assert [one for some in batches for one in some] == objects
    assert max(map(len, batches)) == 64
    assert all(sum(one.bytes for one in some if one.bytes <= 1000) <= 100 for some in batches)


def test_the_members_of_an_archive_are_not_in_memory_all_at_once(tmp_path):
    put_local(tmp_path)("a.tar.gz", gzip.compress(tar({f"{n}.txt": bytes(1_000_000) for n in range(40)})))
    source = FolderSource(**folder(tmp_path))
    objects = list(Store(source).objects())
    tracemalloc.start()
    sizes = [
        len(one.data) for _, some in folders.files(source, objects, 10**6, 10**7, lambda *_: False) for one in some
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (sizes, peak < 15_000_000) == ([1_000_000] * 40, True)


def test_many_remote_objects_are_listed_in_linear_time(monkeypatch):
    class Many:
        def __init__(self, count):
            self.count = count

        def info(self, _):
            return {"type": "directory"}

        def find(self, root, detail):
            return {f"{root}/{n:07}.jsonl": {"size": 5, "ETag": f'"{n}"'} for n in range(self.count)}

    def listed(count):
        monkeypatch.setattr(places, "_filesystem", lambda _: (Many(count), "bucket/prefix"))
        return list(Store(FolderSource(**folder("s3://bucket/prefix"))).objects())

    objects = listed(200_000)
    assert (len(objects), objects[-1].path, objects[-1].checksum) == (200_000, "0199999.jsonl", "etag:199999")
    assert_linear(listed, 20_000)


def test_a_listing_speaks_of_what_lies_below_the_path_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crawl" / "crawl-2").mkdir(parents=True)
    (tmp_path / "crawl" / "crawl-2" / "a.txt").write_text("a")
    (tmp_path / "crawl" / "b.txt").write_text("b")
    (tmp_path / "paths.txt").write_bytes(b"\xef\xbb\xbfcrawl-2/a.txt\r\ncrawl/b.txt\r\n")
    found = list(Store(FolderSource(**folder("crawl", listing="paths.txt"))).objects())
    assert found == [Reference("b.txt", 1), Reference("crawl-2/a.txt", 1)]
