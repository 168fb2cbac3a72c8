"""The corpus stage as a whole: nothing is lost, the bytes depend on the input alone, and a killed run continues."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import storage
from tasks.artifact import Artifact, ArtifactError, Step
from tasks.corpus import partition
from tasks.corpus.acquire import acquire
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.curation import CorpusError, attempted, curate
from tasks.corpus.executor import Executor
from tasks.corpus.quality.measures import BadWordsError
from tasks.corpus.records import DOCUMENT, REJECTED, document_id
from tasks.corpus.scoring import scores
from tasks.corpus.scoring.config import ScoresConfig
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from tests.raw import tar
from tests.tasks.corpus.data import rows, sentences, stopped_at

GERMAN = (
    "Dieses Handbuch erklärt, wie das System eingerichtet und gepflegt wird. Lesen Sie bitte zuerst die Hinweise zur "
    "Installation. Danach wählen Sie die Sprache und legen Benutzer an. Wenn etwas nicht gelingt, finden Sie "
    "am Ende jedes Kapitels eine Liste der häufigsten Fehler und ihrer Ursachen, die wir lange gesammelt haben."
)


def write_input(root: Path) -> None:
    """Two sources with good pages, duplicates, foreign text and everything that can be wrong with a file."""
    web, code = root / "web", root / "code"
    web.mkdir(parents=True)
    code.mkdir()
    for seed in range(12):
        (web / f"page{seed:02}.html").write_text(f"<h1>Page</h1><p>{sentences(seed).replace(chr(10), '</p><p>')}</p>")
    (web / "same.html").write_text((web / "page00.html").read_text())
    (web / "nearly.txt").write_text(f"# Page\n\n{sentences(1)}\n\nOne more sentence stands here at the end.")
    (web / "german.txt").write_text(GERMAN)
    (web / "中文.txt").write_text("本手册说明如何安装和配置系统，并介绍常用的命令以及它们的选项。" * 2)
    (web / "empty.txt").write_text("")
    (web / "nul.txt").write_bytes(sentences(50).replace(" ", "\0 ", 3).encode())
    (web / "latin.txt").write_bytes((sentences(51) + " Voilà, déjà vu.").encode("latin-1"))
    (web / "broken.txt").write_bytes((sentences(52) + " end").encode() + b"\xff\xfe.")
    (web / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (web / "cut.html.gz").write_bytes(gzip.compress(b"<p>text</p>" * 50)[:-9])
    (web / "line.txt").write_text("x" * 300_000)
    (web / "bad.jsonl").write_text('{"text": 1}\nnot json\n' + json.dumps({"text": sentences(60)}))
    (web / "loop").symlink_to(web)
    for number in range(4):
        functions = (f"def function_{number}_{n}(value):\n    return value * {n} + {number}\n" for n in range(12))
        (code / f"module{number}.py").write_text("\n".join(functions))


def steps(root: Path | str, folder: Path, **more) -> tuple[Step, Step]:
    shared = {"kind": "folder", "language": "en", "licence": "MIT"}
    config = SourcesConfig(
        sources=[
            {"name": "web", "path": str(folder / "web"), "domain": "web", **shared},
            {"name": "code", "path": str(folder / "code"), "domain": "code", **shared},
        ],
        shard_bytes=15_000,
    )
    sources = Step("sources", config, str(root), leaf=True)
    return sources, Step("corpus", CorpusConfig(**more), str(root), (sources,))


def run(root: Path, folder: Path, workers: Executor | None = None, **more) -> Artifact:
    sources, corpus = steps(root, folder, **more)
    return curate(corpus, sources.artifact() or acquire(sources, root), workers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("input")
    write_input(root)
    return root


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, folder) -> Artifact:
    return run(tmp_path_factory.mktemp("data"), folder)


def test_every_document_is_kept_rejected_or_unreadable(corpus):
    documents, rejected = rows(corpus, "documents"), rows(corpus, "rejected")
    statistics = corpus.statistics
    unreadable = [row for row in rejected if row["stage"] == "read"]
    assert len(documents) == statistics["documents"] > 15
    assert len(unreadable) == statistics["unreadable"]
    assert len(rejected) - len(unreadable) == statistics["rejected"]
    assert statistics["read"] == len(documents) + len(rejected)
    assert sum(statistics["rejected_by_reason"].values()) == statistics["rejected"]
    assert sum(group["documents"] for group in statistics["by_domain"].values()) == len(documents)
    assert sum(group["read"] for group in statistics["by_source"].values()) == statistics["read"]
    assert statistics["bytes"] == sum(len(row["text"].encode()) for row in documents)


def test_documents_say_what_they_are_and_where_from(corpus):
    documents = rows(corpus, "documents")
    assert len({row["id"] for row in documents}) == len(documents)
    assert all(row["id"] == document_id(row["text"]) for row in documents)
    assert {row["licence"] for row in documents} == {"MIT"}
    assert all(row["url"].startswith(f"{row['source']}:") for row in documents)
    assert {(row["domain"], row["source"]) for row in documents} == {("web", "web"), ("code", "code")}
    assert all(json.loads(row["meta"]).get("code", False) == (row["source"] == "code") for row in documents)
    for path in corpus.files("documents"):
        assert pq.read_schema(path).equals(DOCUMENT)
    for path in corpus.files("rejected"):
        assert pq.read_schema(path).equals(REJECTED)


def test_each_defect_is_named_and_the_rest_is_processed(corpus):
    named = {row["url"].removeprefix("web:"): row for row in rows(corpus, "rejected") if row["source"] == "web"}
    assert (named["loop"]["stage"], named["loop"]["reason"]) == ("extract", "link")
    assert "binary" in named["binary.txt"]["value"]
    assert "end early" in named["cut.html.gz"]["value"]
    assert named["bad.jsonl#1"]["stage"] == named["bad.jsonl#2"]["stage"] == "read"
    assert (named["empty.txt"]["stage"], named["empty.txt"]["reason"]) == ("extract", "empty")
    assert (named["german.txt"]["stage"], named["german.txt"]["value"]) == ("language", "de")
    assert any(url.startswith("line.txt") for url in named)
    kept = {row["url"].removeprefix("web:"): row["text"] for row in rows(corpus, "documents")}
    assert "\0" not in kept["nul.txt"]
    assert "Voilà, déjà vu." in kept["latin.txt"]
    assert kept["broken.txt"].endswith("end\ufffd\ufffd.")
    assert "bad.jsonl#3" in kept


def test_duplicates_are_rejected_with_their_survivor(corpus):
    kept = {row["id"]: row for row in rows(corpus, "documents")}
    dropped = {row["reason"]: row for row in rows(corpus, "rejected") if row["stage"] == "dedup"}
    assert set(dropped) == {"exact_duplicate", "near_duplicate"}
    exact, near = dropped["exact_duplicate"], dropped["near_duplicate"]
    assert (exact["url"], kept[exact["value"].split()[0]]["url"]) == ("web:same.html", "web:page00.html")
    survivor, similarity = near["value"].split()
    assert (near["url"], kept[survivor]["url"]) == ("web:page01.html", "web:nearly.txt")
    assert 0.8 <= float(similarity) < 1
    assert corpus.statistics["exact_duplicates"] == corpus.statistics["near_duplicates"] == 1


def test_a_licence_that_is_not_allowed_keeps_a_document_out(tmp_path, folder):
    with pytest.raises(CorpusError, match="no document is left"):
        run(tmp_path, folder, licences=("Apache-2.0",))


def test_a_folder_that_was_moved_is_the_same_corpus(tmp_path):
    first, moved = tmp_path / "first", tmp_path / "then" / "moved"
    first.mkdir()
    (first / "page.txt").write_text(sentences(0))
    (first / "lost.txt").symlink_to("nowhere")
    (tmp_path / "paths.txt").write_text("page.txt\npages.jsonl\nlost.txt\nmissing.txt\n")
    (first / "pages.jsonl").write_text("".join(json.dumps({"text": sentences(seed)}) + "\n" for seed in (1, 2)))

    def sources(folder: Path) -> Step:
        one = {"name": "web", "kind": "folder", "path": str(folder), "domain": "web", "language": "en",
               "licence": "MIT", "listing": str(tmp_path / "paths.txt")}  # fmt: skip
        step = Step("sources", SourcesConfig(sources=[one]), str(tmp_path / "data"), leaf=True)
        acquire(step, tmp_path)
        return step

    before = Step("corpus", CorpusConfig(), str(tmp_path / "data"), (sources(first),))
    moved.parent.mkdir()
    first.rename(moved)
    after = Step("corpus", CorpusConfig(), str(tmp_path / "data"), (sources(moved),))
    assert after.fingerprint == before.fingerprint
    # records are read where they lie now
    assert curate(after, after.input("sources")).statistics["documents"] == 3


@pytest.mark.parametrize("name", ["processes", "dask"])
def test_workers_give_the_same_bytes(tmp_path, folder, corpus, name):
    with workers_of(Execution(executor=name, workers=2)) as workers:
        again = run(tmp_path, folder, workers)
    assert again.manifest["content"] == corpus.manifest["content"]
    assert again.statistics == corpus.statistics
    assert again.manifest["cost"]["cpu_seconds"] > 0


def test_a_defect_of_a_rule_costs_one_document_and_is_named(tmp_path, folder, monkeypatch):
    judge = partition.judge

    def broken(text: str, *more):
        if "function_2_3" in text:
            raise ZeroDivisionError("division by zero")
        return judge(text, *more)

    monkeypatch.setattr(partition, "judge", broken)
    rejected = rows(run(tmp_path, folder), "rejected")
    (failed,) = [row for row in rejected if row["reason"] == "failed"]
    assert (failed["url"], failed["value"]) == ("code:module2.py", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("listed", "said"), [(None, "cannot be read"), (b"\xff", "cannot be read"), (b"heck", "set it to")]
)
def test_a_list_of_bad_words_that_is_not_the_one_meant_stops_the_run(tmp_path, folder, listed, said):
    """Before any document is read: no document is at fault."""
    if listed:
        (tmp_path / "bad.txt").write_bytes(listed)
    with pytest.raises(BadWordsError, match=said):
        run(tmp_path, folder, prose={"bad_words_file": str(tmp_path / "bad.txt"), "bad_words_sha256": "00"})


def test_partitioning_does_not_change_what_survives(tmp_path, folder, corpus):
    sources, step = steps(tmp_path, folder)
    coarse = Step("sources", sources.config.model_copy(update={"shard_bytes": 10**9}), str(tmp_path), leaf=True)
    step = Step("corpus", step.config, str(tmp_path), (coarse,))
    whole = curate(step, acquire(coarse, tmp_path))
    assert len(whole.parts("documents")) < len(corpus.parts("documents"))
    assert sorted(row["id"] for row in rows(whole, "documents")) == sorted(
        row["id"] for row in rows(corpus, "documents")
    )


@pytest.mark.parametrize(
    "part", ["candidates/code/000", "rejected/web/001", "index/web/000", "removals/web/001", "documents/web/000"]
)
def test_a_run_stopped_at_any_part_continues_to_the_same_bytes(tmp_path, folder, corpus, monkeypatch, part):
    put = Step.put
    with stopped_at(part):
        run(tmp_path, folder)
    done = {path.name for path in tmp_path.glob("corpus/*/records/*.json")}
    again: list[str] = []
    monkeypatch.setattr(Step, "put", lambda self, key, *a, **o: (again.append(key), put(self, key, *a, **o))[1])
    assert run(tmp_path, folder).manifest["content"] == corpus.manifest["content"]
    repeated = [key for key in again if f"{key.replace('/', '--')}.json" in done and not key.startswith("rejected/")]
    assert repeated == []


def test_a_killed_process_continues_to_the_same_bytes(tmp_path, folder, corpus):
    """SIGKILL while worker processes are at it, then the same command."""
    script = textwrap.dedent("""
        import importlib.util, sys
        from pathlib import Path
        from tests.endless import without_end
        without_end("corpus")
        spec = importlib.util.spec_from_file_location("curation_for_tests", sys.argv[1])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if __name__ == "__main__":
            module.run(Path(sys.argv[2]), Path(sys.argv[3]))
    """)
    (tmp_path / "command.py").write_text(script)
    root = tmp_path / "data"
    house = Path(__file__).resolve().parents[3]
    command = [sys.executable, str(tmp_path / "command.py"), __file__, str(root), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(house)}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    deadline = time.monotonic() + 500
    while process.poll() is None and time.monotonic() < deadline:
        if list(root.glob("corpus/*/records/candidates--*.json")):
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.005)
    assert process.wait() == -signal.SIGKILL
    _, step = steps(root, folder)
    assert step.artifact() is None
    assert run(root, folder).manifest["content"] == corpus.manifest["content"]


def folder_step(root: Path, folder: Path, **source: object) -> tuple[Step, Step]:
    shared = {"name": "notes", "kind": "folder", "language": "en", "licence": "MIT", "domain": "web"}
    config = SourcesConfig(sources=[{**shared, "path": str(folder), **source}])
    sources = Step("sources", config, str(root), leaf=True)
    return sources, Step("corpus", CorpusConfig(), str(root), (sources,))


def test_where_nothing_is_left_every_reason_is_told_with_an_example(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps({"body": sentences(seed), "title": "x"}) for seed in range(30)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    (folder / "b.txt").write_text("short")
    (folder / "c.txt").write_bytes(bytes(range(256)) * 20)
    (folder / "d.xyz").write_text("x")
    sources, corpus = folder_step(tmp_path / "root", folder)
    with pytest.raises(CorpusError) as told:
        curate(corpus, acquire(sources, tmp_path))
    text = str(told.value)
    assert "no document is left of 33 that were read" in text
    assert "read, unreadable: 31, such as notes:a.jsonl#1" in text
    assert "no text under 'text' (`text_field`): its keys are 'body', 'title'" in text
    assert "quality, too_short: 1, such as notes:b.txt (5)" in text
    assert "extract, no_reader: 1, such as notes:d.xyz" in text
    # and what it recorded can be looked at
    seen = attempted(corpus)
    assert seen is not None
    assert (seen.statistics["documents"], seen.statistics["unreadable"]) == (0, 31)
    assert len(rows(seen, "rejected")) == 33


def test_a_lost_file_counts_by_its_bytes(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for seed in range(4):
        (folder / f"{seed}.txt").write_text(sentences(seed))
    table = pa.table({"text": [sentences(seed, 40) for seed in range(10, 90)]})
    pq.write_table(table, folder / "all.parquet")
    whole = (folder / "all.parquet").read_bytes()
    (folder / "all.parquet").write_bytes(whole[: len(whole) // 2])
    half = [json.dumps({"text": sentences(seed)}) if seed % 2 else "{" + " " * 300 for seed in range(100, 120)]
    (folder / "half.jsonl").write_text("\n".join(half))
    sources, corpus = folder_step(tmp_path / "root", folder)
    found = curate(corpus, acquire(sources, tmp_path)).statistics["by_source"]["notes"]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert found["raw_bytes"] == sum(sizes.values())
    assert found["unreadable_bytes"] == sizes["all.parquet"] + round(sizes["half.jsonl"] / 2)


def test_a_large_archive_that_is_cut_loses_the_share_of_what_was_in_it(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    whole = tar({f"{seed:02}.txt": sentences(seed).encode() for seed in range(30)})
    (folder / "large.tar").write_bytes(whole[: len(whole) * 8 // 10])
    (folder / "small.txt").write_text(sentences(99))
    sources, _ = folder_step(tmp_path / "root", folder)
    sources = dataclasses.replace(sources, config=sources.config.model_copy(update={"shard_bytes": 10_000}))
    corpus = Step("corpus", CorpusConfig(), str(tmp_path / "root"), (sources,))
    found = curate(corpus, acquire(sources, tmp_path)).statistics
    size = (folder / "large.tar").stat().st_size
    assert found["unreadable"] == 2  # the member that is cut, and what may have come after it
    assert found["by_source"]["notes"]["unreadable_bytes"] == round(size * 2 / (found["read"] - 1))


def scored(root: Path | str, folder: Path, workers: Executor) -> list[Artifact]:
    """Sources, corpus and scores under `root`, each with the executor that a run gives it."""
    sources, corpus = steps(root, folder)
    raw = sources.artifact() or acquire(sources.begin(), folder)
    documents = corpus.artifact() or curate(corpus.begin(), raw, workers)
    step = Step("scores", ScoresConfig(classifier=None), str(root), (corpus,))
    return [raw, documents, step.artifact() or scores.build(step.begin(), documents, workers)]


def identities(artifacts: list[Artifact]) -> list[tuple[str, str]]:
    return [(artifact.fingerprint, artifact.manifest["content"]) for artifact in artifacts]


def test_an_object_store_filled_by_worker_processes_holds_what_a_folder_holds(bucket, tmp_path):
    write_input(tmp_path / "raw")
    with workers_of(Execution(workers=2)) as workers:
        here = scored(tmp_path / "data", tmp_path / "raw", workers)
        there = scored(f"{bucket}/data", tmp_path / "raw", workers)
    assert identities(there) == identities(here)
    for artifact in there:
        accounts = artifact.manifest["accounts"]
        assert accounts["in"] == accounts["out"] + accounts["rejected"] + accounts["dropped"] > 0, artifact.name
    assert there[1].statistics["documents"] == there[2].statistics["documents"] > 0
    assert identities(scored(f"{bucket}/data", tmp_path / "raw", workers)) == identities(here)


@pytest.mark.parametrize("group", ["rejected", "rejected/dedup", "documents", "index", "candidates", "removals"])
@pytest.mark.parametrize("what", ["record", "file"])
def test_a_corpus_that_lost_a_part_is_made_whole_by_the_same_command(tmp_path, group, what):
    write_input(tmp_path / "raw")
    root = tmp_path / "data"
    whole = run(root, tmp_path / "raw")
    step = steps(root, tmp_path / "raw")[1]
    key = f"{group}/web/000"
    part = step.part(key)
    assert part is not None
    storage.remove(f"{step.uri}/manifest.json")
    storage.remove(f"{step.uri}/{part.path}" if what == "file" else f"{step.uri}/records/{key.replace('/', '--')}.json")
    if what == "file" and group != "candidates":  # which are not published, and are finished with
        with pytest.raises((ArtifactError, CorpusError), match=key):
            run(root, tmp_path / "raw")
    again = run(root, tmp_path / "raw")
    assert again.manifest["content"] == whole.manifest["content"]
    assert again.manifest["accounts"] == whole.manifest["accounts"]
