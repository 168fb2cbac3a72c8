"""Snapshots: only what is new is read, what was there first wins, and every version stays as it was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import fsspec
import pytest

from tasks.artifact import Artifact, Step
from tasks.corpus.acquire import acquire
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.curation import curate
from tasks.corpus.executor import Executor, Processes
from tasks.corpus.snapshots import acquire_new
from tests.tasks.corpus.data import rows, sentences, stopped_at

HOUSE = Path(__file__).resolve().parents[3]


def first_sources(root: Path, folder: Path, shard_bytes: int = 15_000) -> Step:
    web = {"name": "web", "kind": "folder", "path": str(folder), "domain": "web", "language": "en", "licence": "MIT"}
    return Step("sources", SourcesConfig(sources=[web], shard_bytes=shard_bytes), str(root), leaf=True)


def newest_sources(root: Path, folder: Path, **options) -> Step:
    """The newest published step, or the first."""
    step = first_sources(root, folder, **options)
    while step.artifact() and (following := after(step)).artifact():
        step = following
    return step


def after(sources: Step) -> Step:
    return Step("sources", sources.config, sources.root, (sources,), leaf=True)


def corpus_of(sources: Step, version: int = 1) -> Step:
    """The corpus of the newest snapshot."""
    corpus = None
    for snapshot in sources.versions():
        inputs = (snapshot, corpus) if corpus else (snapshot,)
        corpus = Step("corpus", CorpusConfig(), sources.root, inputs, version=version)
    assert corpus is not None
    return corpus


def refresh(root: Path, folder: Path, executor: Executor | None = None, version: int = 1, **options) -> Artifact | None:
    """What the refresh flow does: complete what is unfinished; otherwise the next snapshot, or None."""
    sources = newest_sources(root, folder, **options)
    if sources.artifact() is None:
        acquire(sources, root)
    elif corpus_of(sources, version).artifact() is not None:
        sources = after(sources)
        if acquire_new(sources, root) is None:
            return None
    for step in corpus_of(sources, version).versions():
        artifact = step.artifact() or curate(step, step.inputs[0].require(), executor)
    return artifact


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)


def survivors(artifact: Artifact) -> list[tuple[str, str]]:
    return sorted((row["id"], row["url"]) for row in rows(artifact, "documents"))


@pytest.mark.parametrize("seed", [1, 2])
def test_snapshots_without_common_documents_are_the_run_over_all_at_once(tmp_path, seed):
    """Exact and near duplicates within a snapshot included; cut at random, in any number of partitions."""
    names = list(range(18))
    random.Random(seed).shuffle(names)
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    for start in range(0, 18, 6):
        texts = {f"page{name:02}": sentences(name) for name in names[start : start + 6]}
        first = min(texts)
        texts |= {f"same{start}": texts[first], f"near{start}": f"{texts[first]}\n\nOne more sentence at the end."}
        write(whole, **texts)
        write(grown, **texts)
        newest = refresh(tmp_path / "data", grown, shard_bytes=7_000 * seed)
        assert newest is not None
    at_once = refresh(tmp_path / "once", whole)
    assert at_once is not None
    assert survivors(newest) == survivors(at_once)
    assert newest.statistics["read"] == at_once.statistics["read"] == 24
    assert newest.statistics["rejected_by_reason"] == at_once.statistics["rejected_by_reason"]
    assert newest.statistics["by_source"] == at_once.statistics["by_source"]
    assert newest.statistics["rules"] == at_once.statistics["rules"] != {}
    assert [entry["read"] for entry in newest.statistics["snapshots"]] == [8, 8, 8]


def test_the_earlier_document_wins_and_the_later_one_says_over_which(tmp_path):
    folder = tmp_path / "in"
    write(folder, b=sentences(1), c=sentences(2))
    old = refresh(tmp_path, folder)
    assert old is not None
    kept = {row["url"]: row["id"] for row in rows(old, "documents")}
    before = survivors(old)
    # Each would win in a run over all at once: a smaller url, a longer text.
    write(folder, a=sentences(1), d=f"{sentences(2)}\n\nOne more sentence stands here at the end.", e=sentences(3))
    new = refresh(tmp_path, folder)
    assert new is not None
    dropped = {row["url"]: row for row in rows(new, "rejected")}
    assert {url: row["reason"] for url, row in dropped.items()} == {
        "web:a.txt": "exact_duplicate",
        "web:d.txt": "near_duplicate",
    }
    assert kept["web:b.txt"] in dropped["web:a.txt"]["value"]
    assert kept["web:c.txt"] in dropped["web:d.txt"]["value"]
    assert {row["url"] for row in rows(new, "documents")} == {"web:b.txt", "web:c.txt", "web:e.txt"}
    # The version before is as it was, and none of its parts was written again.
    assert survivors(Artifact.load(old.uri)) == before
    assert {part.key for part in old.parts()} < {part.key for part in new.parts()}
    assert {part.sha256 for part in old.parts()} <= {part.sha256 for part in new.parts()}
    assert not list(Path(new.uri).rglob("documents/web/000*"))
    assert new.statistics["documents"] == 3
    assert new.statistics["snapshots"][1] == {
        "documents": 1, "bytes": len(sentences(3)), "read": 3, "rejected": 2, "unreadable": 0,
    }  # fmt: skip


def test_nothing_new_publishes_nothing(tmp_path):
    folder = tmp_path / "in"
    write(folder, a=sentences(1))
    (folder / "cut.txt.gz").write_bytes(b"\x1f\x8b\x08 no more")
    (folder / "loop").symlink_to(folder)
    refresh(tmp_path, folder)
    before = sorted(tmp_path.rglob("*"))
    assert refresh(tmp_path, folder) is None
    (folder / "a.txt").unlink()
    (folder / "loop2").symlink_to(folder / "loop2")
    assert refresh(tmp_path, folder) is None
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "loop2"] == [
        path for path in before if path.name != "a.txt"
    ]


def test_a_changed_file_is_read_again_and_a_deleted_one_stays(tmp_path):
    folder = tmp_path / "in"
    write(folder, changed=sentences(1), deleted=sentences(2), same=sentences(3))
    (folder / "broken.jsonl").write_text("no json\n")
    refresh(tmp_path, folder)
    write(folder, changed=sentences(4))
    (folder / "deleted.txt").unlink()
    new = refresh(tmp_path, folder)
    assert new is not None
    texts = {(row["url"], row["text"]) for row in rows(new, "documents")}
    assert texts == {
        ("web:changed.txt", sentences(1)), ("web:changed.txt", sentences(4)),
        ("web:deleted.txt", sentences(2)), ("web:same.txt", sentences(3)),
    }  # fmt: skip
    assert new.statistics["unreadable"] == 1
    assert new.statistics["snapshots"][1]["read"] == 1


def test_workers_and_another_version_lead_to_the_same_corpus(tmp_path):
    """Another version of curation: every snapshot is curated anew, from the first on."""
    folder = tmp_path / "in"
    write(folder, **{f"page{seed}": sentences(seed) for seed in range(6)})
    refresh(tmp_path, folder)
    write(folder, **{f"page{seed}": sentences(seed // 2 * 2) for seed in range(6, 12)})
    new = refresh(tmp_path, folder)
    again = refresh(tmp_path, folder, Processes(2), version=2)
    assert new is not None
    assert again is not None
    assert again.fingerprint != new.fingerprint
    assert again.manifest["content"] == new.manifest["content"]
    assert again.statistics == new.statistics


@pytest.mark.parametrize(
    "part", ["sources", "raw/web/000", "listing/web", "candidates/web/s001-000", "removals/web/s001-001",
             "documents/web/s001-001", "rejected/acquired/1"],
)  # fmt: skip
def test_a_refresh_stopped_at_any_part_continues_to_the_same_bytes(tmp_path, part):
    folder, stopped_root, straight_root = tmp_path / "in", tmp_path / "stopped", tmp_path / "straight"
    write(folder, a=sentences(1), b=sentences(2))
    for root in (stopped_root, straight_root):
        assert refresh(root, folder)
    write(folder, **{f"new{seed}": sentences(seed) for seed in (1, 3, 4, 5, 6, 7, 8, 9, 10)})
    straight = refresh(straight_root, folder)
    assert straight is not None
    with stopped_at(part):
        refresh(stopped_root, folder)
    continued = refresh(stopped_root, folder)
    assert continued is not None
    assert continued.manifest["content"] == straight.manifest["content"]
    assert continued.fingerprint == straight.fingerprint
    assert refresh(stopped_root, folder) is None


def test_a_killed_refresh_continues_to_the_same_bytes(tmp_path):
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from tests.endless import without_end
        from tests.tasks.corpus.test_snapshots import refresh
        without_end("corpus")
        refresh(Path(sys.argv[1]), Path(sys.argv[2]))
    """)
    folder, roots = tmp_path / "in", [tmp_path / "killed", tmp_path / "straight"]
    write(folder, **{f"page{seed:02}": sentences(seed) for seed in range(10)})
    for root in roots:
        assert refresh(root, folder)
    write(folder, **{f"page{seed:02}": sentences(seed) for seed in range(5, 40)})
    straight = refresh(roots[1], folder)
    assert straight is not None
    process = subprocess.Popen([sys.executable, "-c", script, str(roots[0]), str(folder)], cwd=HOUSE)
    deadline = time.monotonic() + 500
    while process.poll() is None and time.monotonic() < deadline:
        if list(roots[0].glob("corpus/*/records/candidates--web--s001-*.json")):
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.005)
    assert process.wait() == -signal.SIGKILL
    assert corpus_of(newest_sources(roots[0], folder)).artifact() is None
    killed = refresh(roots[0], folder)
    assert killed is not None
    assert killed.manifest["content"] == straight.manifest["content"]


def test_a_sample_of_a_remote_source_that_did_not_change_is_no_news(tmp_path):
    """What was drawn before has its place in the draw: else others would take it at every refresh."""
    memory = fsspec.filesystem("memory")
    for number in range(20):
        memory.pipe(f"/sample/{number:02}.txt", sentences(number).encode())
    web = {"name": "web", "kind": "folder", "path": "memory://sample", "domain": "web", "language": "en",
           "licence": "MIT", "bytes_max": 20_000}  # fmt: skip
    first = Step("sources", SourcesConfig(sources=[web]), str(tmp_path / "data"), leaf=True)
    assert 0 < acquire(first, tmp_path).statistics["files"] < 20
    assert acquire_new(after(first), tmp_path) is None
