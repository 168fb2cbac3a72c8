"""The refresh flow: what is new becomes the next version, which everything downstream then reads; a pin holds it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from flows import stages
from flows.graph import Graph
from flows.preset import load_preset
from flows.request import Request
from flows.stages import refresh
from flows.status import survey
from flows.steps import graph, next_snapshot
from tasks.artifact import NotReady
from tasks.corpus.snapshots import acquire_new
from tasks.progress import Tick, listen
from tests.tasks.corpus.data import sentences

pytestmark = pytest.mark.prefect
PRESET = """
extends: test
sources:
  sources:
    - {{name: web, kind: folder, path: {folder}, domain: web, language: en, licence: MIT}}
  fallbacks: []
"""
GATES = [
    "gates.corpus.domains={web: 0.5}", "gates.corpus.languages={en: 0.5}", "gates.corpus.largest_source=1",
    "gates.corpus.documents=1", "gates.corpus.bytes=1", "gates.corpus.sources=1", "execution.workers=1",
]  # fmt: skip


def write(folder: Path, *seeds: int) -> None:
    folder.mkdir(exist_ok=True)
    for seed in seeds:
        (folder / f"page{seed}.txt").write_text(sentences(seed, 12))


def names(plan: Graph) -> list[str]:
    return [line.name for line in survey(plan)][:5]


def test_a_refresh_makes_the_version_that_everything_reads_from_then_on(server, tmp_path):
    folder, preset = tmp_path / "in", tmp_path / "mine.yaml"
    preset.write_text(PRESET.format(folder=folder))

    def request(*more: str) -> Request:
        return Request(preset_file=str(preset), root=str(tmp_path / "data"), overrides=[*GATES, *more])

    write(folder, *range(8))
    first = refresh(request())  # nothing was there: the corpus itself
    assert graph(request())["corpus"].artifact() == first
    tokens = graph(request())["tokens"].fingerprint
    told: list[Tick] = []
    with listen(told.append):
        assert refresh(request()) == first
    assert "nothing is new or changed since snapshot 0" in [tick.note for tick in told if tick.label == "refresh"]
    assert names(graph(request()))[:2] == ["sources", "corpus"]

    write(folder, *range(6, 12))
    second = refresh(request())
    plan = graph(request())
    assert plan["corpus"].artifact() == second != first
    assert plan["corpus-gate"].artifact() is not None
    assert plan["tokens"].fingerprint != tokens
    assert second.statistics["documents"] == 12
    assert [entry["documents"] for entry in second.statistics["snapshots"]] == [8, 4]
    assert names(plan) == ["sources", "corpus", "sources@1", "corpus@1", "corpus-gate"]

    pinned = graph(request("sources.snapshot=0"))
    assert pinned["corpus"].artifact() == first
    assert pinned["tokens"].fingerprint == tokens
    with pytest.raises(NotReady, match=r"sources\.snapshot is 2 but the newest snapshot is 1"):
        graph(request("sources.snapshot=2"))
    with pytest.raises(NotReady, match="pins the corpus to snapshot 0: set it to null to refresh"):
        refresh(request("sources.snapshot=0"))
    assert graph(request("sources.snapshot=1"))["corpus"].artifact() == second


def test_a_rebuild_lists_sources_again_and_leaves_snapshots_that_others_follow(tmp_path, monkeypatch):
    folder, preset = tmp_path / "in", tmp_path / "mine.yaml"
    preset.write_text(PRESET.format(folder=folder))
    request = Request(preset_file=str(preset), root=str(tmp_path / "data"), overrides=GATES, rebuild=True)

    def made(step, execution):  # without Prefect
        if step.name in ("sources", "corpus"):
            return step.artifact() or import_module(step.module).run(step.begin(), execution)
        return None

    def curated() -> list[int]:
        stages.corpus.fn.__wrapped__(request)
        return [entry["documents"] for entry in graph(request)["corpus"].require().statistics["snapshots"]]

    def made_by_other_code() -> None:
        for step in graph(request).steps[:4]:
            if step.name in ("sources", "corpus"):
                manifest = Path(step.uri) / "manifest.json"
                record = json.loads(manifest.read_text()) | {"code": [{"hash": "another", "parts": 1}]}
                manifest.write_text(json.dumps(record))

    monkeypatch.setattr(stages, "make", made)
    write(folder, *range(3))
    assert curated() == [3]
    write(folder, 3)
    made_by_other_code()
    assert curated() == [4]
    write(folder, 4)
    (folder / "page0.txt").unlink()
    acquire_new(next_snapshot(graph(request), load_preset(request)), tmp_path / "cache")
    assert curated() == [4, 1]
    made_by_other_code()
    assert curated() == [4, 1], "the page that is gone stays"
