"""Nothing that a document holds stops a run: it is kept or rejected with a reason, and its neighbours are kept."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.artifact import Artifact, Step
from tasks.corpus import partition
from tasks.corpus.acquire import acquire
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.curation import curate
from tasks.corpus.executor import Death, Executor, Processes, WorkerError
from tasks.corpus.extract import html
from tasks.corpus.extract.passage import ExtractionError
from tasks.corpus.watch import Loss, Watch
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from tests.tasks.corpus.data import rows, sentences

ATTRIBUTES = "<p " + " ".join(f"a{n}=1" for n in range(200_000)) + ">text</p>"
HEAVY = "<b>" * 9_000 + "</i>x" * 900_000  # sound for all limits, and seconds of work
MILLION = 1_000_000
HOSTILE: dict[str, bytes] = {
    "attributes.html": ATTRIBUTES.encode(),
    "deep.html": b"<div>" * MILLION + b"deep",
    "tables.html": b"<table><tr><td>" * 10_000 + b"deep",
    "laughs.html": b'<!DOCTYPE x [<!ENTITY a "aaaa">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(20))
    + b"]><svg><text>&u;</text></svg>",
    "spaces.txt": b" " * MILLION + b"x",
    "brackets.md": b"[" * MILLION,
    "backslashes.tex": b"\\" * MILLION,
    "dollars.tex": b"$" * MILLION,
    "line.txt": b"word " * 10_000_000,
    "nul.txt": bytes(MILLION),
    "bytes.txt": b"\xff\xfe\x80" * 300_000,
    "nested.jsonl": b'{"text": ' + b"[" * MILLION + b"\n",
    "digits.jsonl": b'{"text": ' + b"1" * MILLION + b"}\n",
    "parentheses.rst": b".. note:: " * 100_000,
    "directives.rst": b"".join(b"   " * n + b".. note::\n\n" for n in range(600)),
    "fonts.1": b"\\f[" * 300_000,
    "surrogate.jsonl": b'{"\\ud800x": 1}',
    "table.parquet": b"PAR1" + os.urandom(1000) + (1 << 30).to_bytes(4, "little") + b"PAR1",
    "magic.parquet": b"no parquet at all",
    "record.warc": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\nshort" % (1 << 60),
    "page.pdf": b"%PDF-1.7\n" + os.urandom(1000),
    "bomb.txt.gz": gzip.compress(bytes(100_000_000)),
    "bomb.jsonl.gz": gzip.compress(b'"' * 100_000_000),
}


def steps(root: Path, folder: Path, **more) -> tuple[Step, Step]:
    source = {"name": "own", "kind": "folder", "path": str(folder), "domain": "web", "language": "en", "licence": "MIT"}
    sources = Step("sources", SourcesConfig(sources=[source]), str(root), leaf=True)
    return sources, Step("corpus", CorpusConfig(**more), str(root), (sources,))


def run(root: Path, folder: Path, workers: Executor | None = None, **more) -> Artifact:
    sources, corpus = steps(root, folder, **more)
    with Processes(1) as one:
        return curate(corpus, acquire(sources, root), workers or one)


def reasons(corpus: Artifact) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows(corpus, "rejected"):
        path = row["url"].removeprefix("own:").partition("#")[0]
        found.setdefault(path, set()).add(row["reason"])
    return found


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_every_hostile_file_is_named_and_its_neighbours_are_kept(tmp_path):
    good = {f"good{n}.txt": sentences(n).encode() for n in range(3)}
    folder = put(tmp_path / "in", HOSTILE | good)
    with Processes(2) as workers:
        corpus = run(tmp_path / "data", folder, workers)
    kept = {row["url"].removeprefix("own:").partition("#")[0] for row in rows(corpus, "documents")}
    assert kept >= set(good)
    named = reasons(corpus)
    assert set(HOSTILE) <= kept | set(named)
    for name in ("attributes.html", "deep.html", "tables.html"):
        assert named[name] == {"markup"}
    for name in (
        "table.parquet",
        "magic.parquet",
        "record.warc",
        "bomb.txt.gz",
        "nested.jsonl",
        "nul.txt",
        "surrogate.jsonl",
    ):
        assert named[name] == {"unreadable"}
    assert not {"over_time", "over_memory", "crashed", "failed"} & set(corpus.statistics["rejected_by_reason"])


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_a_document_beyond_its_time_is_rejected_and_the_others_of_its_partition_stay(tmp_path, name):
    good = {f"{letter}.html": f"<p>{sentences(n)}</p>".encode() for n, letter in enumerate("acd")}
    folder = put(tmp_path / "in", {**good, "b.html": HEAVY.encode()})
    with workers_of(Execution(executor=name, workers=1)) as workers:
        corpus = run(tmp_path / "data", folder, workers, document_seconds_max=1.5)
    assert reasons(corpus) == {"b.html": {"over_time"}}
    assert corpus.statistics["rejected_by_reason"] == {"over_time": 1}
    assert {row["url"] for row in rows(corpus, "documents")} == {f"own:{path}" for path in good}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_document_beyond_its_memory_is_rejected(tmp_path):
    large = b"<p>x" * 900_000  # some hundreds of megabytes as a tree
    folder = put(tmp_path / "in", {"a.html": f"<p>{sentences(1)}</p>".encode(), "b.html": large})
    corpus = run(tmp_path / "data", folder, document_memory_max=160 << 20)
    assert set(reasons(corpus)) == {"b.html"}
    assert reasons(corpus)["b.html"] <= {"over_memory", "unreadable"}
    assert [row["url"] for row in rows(corpus, "documents")] == ["own:a.html"]


def dying(places: int, number: int, slot=None) -> None:
    """Comes to so many places and dies there, by a signal or, for 0, of want of memory."""
    watch = Watch(slot, 60.0, 1 << 30)
    for _ in range(places):
        watch.come()
    if number == 0:
        raise MemoryError
    os.kill(os.getpid(), number)


def told_of(arguments: tuple, death: Death) -> tuple | None:
    raise LookupError(death)


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGPROF, "over_time"), (0, "over_memory"), (signal.SIGSEGV, "crashed")]
)
def test_a_death_says_at_which_place_and_how(number, kind):
    with pytest.raises(LookupError) as told:
        dict(Processes(1).map(dying, {"job": (7, int(number))}, told_of))
    assert (told.value.args[0].place, told.value.args[0].kind) == (7, kind)


def test_what_crashed_once_is_tried_again_and_left_out_the_second_time(tmp_path):
    _, step = steps(tmp_path, tmp_path)
    arguments = (step, "own/000", None, None, {}, ())
    crash = Death(5, -signal.SIGSEGV)
    once = partition.without(arguments, crash)
    assert [loss.kind for loss in once[5]] == ["suspected"]
    assert Watch(lost=once[5]).come() is None
    again = partition.without(once, crash)
    assert [(loss.place, loss.kind) for loss in again[5]] == [(5, "suspected"), (5, "crashed")]
    assert partition.without(again, crash) is None  # leaving it out did not help: that is no document's fault
    assert partition.without(arguments, Death(0, -signal.SIGKILL)) is None


def test_a_worker_that_dies_without_a_place_is_an_error():
    with pytest.raises(WorkerError, match=r"died .* while working on job"):
        dict(Processes(1).map(os.abort, {"job": ()}))


def test_the_same_input_has_the_same_places_with_and_without_what_was_lost():
    def places(lost: tuple[Loss, ...]) -> list[int | None]:
        watch = Watch(lost=lost)
        return [loss and loss.place for loss in (watch.come() for _ in range(4))]

    assert places(()) == [None] * 4
    assert places((Loss(2, "over_time"),)) == [None, 2, None, None]


@pytest.mark.parametrize("depth", [300, 3_000, 9_000])
@pytest.mark.parametrize("markup", ["<div>", "<b>", "<span>", "<ul><li>", '<div class="x">'])
def test_deep_pages_keep_their_text(depth, markup):
    levels = depth // markup.count("<")
    (page,) = html.extract(f"<title>T</title>{markup * levels}<h1>Deep</h1><p>The text.</p>")
    assert page.title == "T"
    assert "Deep" in page.text
    assert "The text." in page.text


def test_a_page_deeper_than_the_limit_says_so():
    with pytest.raises(ExtractionError, match="over 10,000 elements within one another") as told:
        html.extract("<div>" * 20_000 + "deep")
    assert told.value.kind == "markup"


@pytest.mark.parametrize(
    "attribute", [" a{}=1", " a{}", "/a{}", " a{}='>'", ' a{}="<p>"', "\na{}\n=\n1", " =a{}=x", "\ta{}='\"'"]
)
@pytest.mark.parametrize(
    "before", ["", "<!-->", "<!-- <p> --!>", "<script>a<b</script>", "<svg><script/></svg>", "<?x>"]
)
def test_a_tag_of_too_many_attributes_is_refused_however_it_is_written(attribute, before):
    def page(count: int) -> str:
        return f"{before}<p{''.join(attribute.format(n) for n in range(count))}>The text.</p>"

    assert "The text." in html.extract(page(900))[0].text
    with pytest.raises(ExtractionError, match="over 1,000 attributes"):
        html.extract(page(1_100))


@pytest.mark.parametrize(
    "page",
    [
        "<script>for (i=0; i<n; {})</script><p>The text.</p>",
        "<!-- <p {} --><p>The text.</p>",
        "<style>a<b {}</style><p>The text.</p>",
        "<p>a < b {}</p><p>The text.</p>",
        "<p>a <3 {}</p><p>The text.</p>",
    ],
)
def test_what_only_looks_like_attributes_is_no_reason(page):
    assert "The text." in html.extract(page.format("word " * 5_000))[0].text


def test_a_parquet_file_that_declares_more_rows_than_it_has_is_named(tmp_path):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * 1000] * 100}), buffer)
    data = bytearray(buffer.getvalue())
    for at in range(len(data) - 200, len(data) - 8):
        data[at] ^= 0x7F
    folder = put(tmp_path / "in", {"a.parquet": bytes(data), "b.txt": sentences(1).encode()})
    corpus = run(tmp_path / "data", folder)
    assert reasons(corpus)["a.parquet"] == {"unreadable"}


def test_folders_that_link_to_each_other_are_each_read_once(tmp_path):
    root = tmp_path / "in"
    for name in "abcdefghij":
        (root / name).mkdir(parents=True)
        (root / name / "page.txt").write_text(sentences(ord(name)))
    for name in "abcdefghij":
        for other in "abcdefghij":
            (root / name / f"to-{other}").symlink_to(root / other)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(sentences(99))
    (root / "out").symlink_to(outside)
    (root / "secret.txt").symlink_to(outside / "secret.txt")
    (root / "same.txt").symlink_to(root / "a" / "page.txt")
    os.mkfifo(root / "pipe.txt")
    corpus = run(tmp_path / "data", root)
    assert len(rows(corpus, "documents")) == 10
    assert corpus.statistics["rejected_by_reason"] == {"exact_duplicate": 1, "link": 102, "special_file": 1}
    sources, _ = steps(tmp_path / "data", root)
    assert sources.artifact().statistics["passed_over"] == 103


def test_a_listing_that_names_a_pipe_or_leads_out_does_not_hang(tmp_path):
    root = put(tmp_path / "in", {"a.txt": sentences(1).encode()})
    os.mkfifo(root / "pipe.txt")
    (root / "out.txt").symlink_to("/etc/passwd")
    (tmp_path / "paths").write_text("a.txt\npipe.txt\nout.txt\n")
    source = {"name": "own", "kind": "folder", "path": str(root), "listing": str(tmp_path / "paths"), "domain": "web",
              "language": "en", "licence": "MIT"}  # fmt: skip
    sources = Step("sources", SourcesConfig(sources=[source]), str(tmp_path / "data"), leaf=True)
    artifact = acquire(sources, tmp_path)
    (part,) = artifact.parts("listing")
    lines = [json.loads(line) for line in artifact.file(part).read_text().splitlines()]
    told = {line["path"]: line.get("unreadable", "") for line in lines}
    assert told["a.txt"] == ""
    assert "a pipe" in told["pipe.txt"]
    assert "leads out" in told["out.txt"]


def test_links_in_a_zip_are_no_documents(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", sentences(1))
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    corpus = run(tmp_path / "data", put(tmp_path / "in", {"a.zip": buffer.getvalue()}))
    assert [row["url"] for row in rows(corpus, "documents")] == ["own:a.zip/a.txt"]
    assert reasons(corpus) == {"a.zip": {"link"}}
