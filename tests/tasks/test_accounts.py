"""Rows in are rows out, rejected and dropped: what does not add up is neither published nor read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from model import storage
from model.config import Config
from tasks.accounts import Balance
from tasks.artifact import Artifact, ArtifactError, Step
from tasks.corpus.executor import Processes


class Literals(Config):
    size: int = 1


@pytest.fixture(params=["local", "memory", "s3"])
def step(request, tmp_path) -> Step:
    if request.param == "s3":
        return Step("stage", Literals(), f"{request.getfixturevalue('bucket')}/root")
    root = str(tmp_path / "root") if request.param == "local" else f"memory://{tmp_path.name}-accounts"
    return Step("stage", Literals(), root)


KEYS = ["documents/0", "documents/1", "rejected/0"]


def put(step: Step, key: str, rows: int) -> None:
    step.put(key, ".txt", lambda path: path.write_text("row\n" * rows), rows=rows)


def fill(step: Step) -> None:
    for key, rows in zip(KEYS, (3, 2, 4), strict=True):
        put(step, key, rows)


def publish(step: Step, taken: int = 10) -> Artifact:
    return step.publish({"rows": 5}, KEYS, Balance("documents", taken, "documents", "rejected", dropped=taken - 9))


def alter(step: Step, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads(storage.read(f"{step.uri}/manifest.json"))
    change(manifest)
    storage.write(f"{step.uri}/manifest.json", json.dumps(manifest).encode())


def test_the_manifest_says_where_every_row_went(step):
    fill(step)
    accounts = publish(step).manifest["accounts"]
    assert {name: accounts[name] for name in ("unit", "in", "out", "rejected", "dropped")} == {
        "unit": "documents", "in": 10, "out": 5, "rejected": 4, "dropped": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("taken", "said"), [(12, "3 are missing"), (7, "2 are too many")])
def test_rows_that_do_not_add_up_are_not_published(step, taken, said):
    fill(step)
    with pytest.raises(ArtifactError, match=f"{said}.*run its stage again"):
        step.publish({}, KEYS, Balance("documents", taken, out="documents", rejected="rejected"))
    assert step.artifact() is None


def test_a_part_that_was_never_written_is_named_and_the_next_run_makes_it(step):
    put(step, KEYS[0], 3)
    with pytest.raises(ArtifactError, match=r"lacks 2 of its 3 parts \(documents/1, rejected/0\): .* run the same"):
        publish(step)
    assert step.artifact() is None
    assert step.missing(KEYS) == KEYS[1:]
    fill(step)
    assert publish(step) == step.artifact()


@pytest.mark.parametrize("spoil", ["removed", "cut"])
def test_a_part_whose_file_is_gone_is_made_again(step, spoil):
    fill(step)
    part = step.part("documents/1")
    assert part is not None
    if spoil == "removed":
        storage.remove(f"{step.uri}/{part.path}")
    else:
        storage.write(f"{step.uri}/{part.path}", b"row")
    with pytest.raises(ArtifactError, match=r"lacks 1 of its 3 parts \(documents/1\)"):
        publish(step)
    assert step.missing(KEYS) == ["documents/1"]
    put(step, "documents/1", 2)
    assert publish(step).manifest["accounts"]["out"] == 5


DAMAGES = {
    "a part left out": lambda manifest: manifest["parts"].pop(0),
    "all parts left out": lambda manifest: manifest["parts"].clear(),
    "fewer rows": lambda manifest: manifest["parts"][0].update(rows=0),
    "another sum": lambda manifest: manifest["accounts"].update({"in": 11}),
    "no accounts": lambda manifest: manifest.pop("accounts"),
    "nothing at all": lambda manifest: manifest.clear(),
    "another content": lambda manifest: manifest["parts"][0].update(sha256="0" * 64),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_manifest_that_does_not_account_for_its_rows_is_not_complete_and_can_be_mended(step, damage, caplog):
    fill(step)
    whole = publish(step)
    content = whole.manifest["content"]
    alter(step, DAMAGES[damage])
    assert step.artifact() is None
    assert "does not account for its rows" in caplog.text
    with pytest.raises(ArtifactError, match="run its stage again"):
        Artifact.load(step.uri)
    assert publish(step).manifest["content"] == content
    assert step.artifact() is not None


def test_a_parquet_file_says_itself_how_many_rows_it_has(step):
    frame = pl.DataFrame({"id": ["a", "b"]})
    assert step.put("documents/0", ".parquet", frame.write_parquet).rows == 2
    with pytest.raises(ArtifactError, match="has 2 rows where 3 were written"):
        step.put("documents/1", ".parquet", frame.write_parquet, rows=3)
    assert step.part("documents/1") is None


def write_one(step: Step, key: str) -> int:
    put(step, key, 1)
    return os.getpid()


def test_what_worker_processes_wrote_is_published(bucket):
    """The process that publishes has listed the records before its workers wrote theirs."""
    step = Step("stage", Literals(), f"{bucket}/root").begin()
    put(step, "documents/first", 1)
    assert len(step.recorded()) == 1
    keys = [f"documents/{number}" for number in range(6)]
    workers = {pid for _, pid in Processes(2).map(write_one, {key: (step, key) for key in keys})}
    assert os.getpid() not in workers
    assert step.missing(keys) == []
    every = sorted(["documents/first", *keys])
    assert [part.key for part in step.recorded("documents")] == every
    balance = Balance("documents", taken=7, out="documents")
    assert [part.key for part in step.publish({}, every, balance).parts()] == every


def test_a_bad_fetch_is_not_kept(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    step = Step("stage", Literals(), f"{bucket}/root")
    fill(step)
    artifact = publish(step)
    part = artifact.parts()[0]
    whole = storage.read(f"{step.uri}/{part.path}")
    storage.write(f"{step.uri}/{part.path}", whole[::-1])
    with pytest.raises(ArtifactError, match=rf"{part.path} has not the bytes its manifest lists"):
        artifact.file(part)
    assert not [path for path in Path(tmp_path / "cache").rglob("*") if path.is_file()]
    storage.write(f"{step.uri}/{part.path}", whole)
    assert artifact.file(part).read_bytes() == whole
