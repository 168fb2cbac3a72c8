"""`openk2 tokens`: the plan of every preset, and shards out and back in by the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flows.cli import app, main
from flows.request import PresetName
from model.vocabulary import K2_VOCABULARY
from tasks.artifact import Artifact, Step
from tasks.tokens.config import TokenizerConfig
from tasks.tokens.importing import adopt_tokenizer
from tasks.tokens.megatron import Writer
from tasks.tokens.tokenizer import TokenizerError, train
from training.layout import LayoutError
from training.shards import TokenShards


def said(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["tokens", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_plan_of_k2_is_the_recipes() -> None:
    told = said("plan", "--gpus", "768", "--pipeline", "16", "--seconds", "10")
    for fact in (
        *("3.784e9", "149,012", "81,956", "5,960", "894", "237,823", "15.96T", "62.0 TB", "63.8 TB", "57,742"),
        *("59,456 of 1.0 GiB", "48 ranks together", "16 ranks: 2, 5, 8", "32 ranks: 0, 1, 3", "6.711M tokens/s"),
    ):
        assert fact in told, fact


def test_the_table_of_k2s_shards_is_small() -> None:
    found = json.loads(said("plan", "--json"))
    assert found["ranks"] == 2048 // 16
    assert 4e6 < found["table_bytes"] < 9e6  # hashes of 59,456 shards do not compress
    assert 15 < found["index_bytes"] / found["documents"] < 30
    assert sum(map(len, found["readings"][0]["slices"].values())) == 2048 // 16


@pytest.mark.parametrize("preset", [name for name in PresetName if name is not PresetName.k2])
def test_every_preset_has_a_plan(preset: PresetName) -> None:
    assert "Σ shards" in said("plan", "--preset", preset.value)


def test_the_plan_counts_the_shards_that_batches_can_fill(tmp_path: Path) -> None:
    small = ["--set", "tokens.batch_bytes=268435456", "--root", str(tmp_path)]
    assert "79,275 of 768.0 MiB" in said("plan", *small)
    result = CliRunner().invoke(app, ["plan", "stages", "--json", *small], catch_exceptions=False)
    found = json.loads(result.output)
    assert (found["stages"][-1]["shards_so_far"], found["shard_bytes"]) == (79_275, 768 << 20)


def test_ranks_that_hold_no_copy_are_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["openk2", "tokens", "plan", "--gpus", "100", "--pipeline", "16"])
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 1
    told = capsys.readouterr().err
    assert "100 ranks do not hold whole copies" in told
    assert "Traceback" not in told


def test_ranks_of_which_some_would_read_nothing_are_refused_as_training_refuses_them() -> None:
    with pytest.raises(LayoutError, match=r"the batch of .* is .* for 100,000 data-parallel ranks"):
        said("plan", "--preset", "laptop", "--gpus", "100000", "--pipeline", "1")


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """A tokenizer.json of 400 entries."""
    path = tmp_path / "tokenizer.json"
    train(iter(["that is the question. " * 9]), TokenizerConfig(vocabulary=400)).save(str(path))
    return path


def test_pairs_come_in_go_out_and_come_in_again(tmp_path: Path, learned: Path) -> None:
    with Writer(tmp_path / "their", 400) as pair:
        for row in ([1, 2, 7], [3, 7]):
            pair.add_tokens(np.asarray(row))
            pair.add_lengths(np.asarray([len(row)]))
        pair.finish()
    facts = ["--domain", "web", "--source", "them", "--licence", "MIT", "--end", "7"]
    root = str(tmp_path / "data")
    common = ["--tokenizer", str(learned), "--root", root, "--set", "tokens.heldout_fraction=0"]
    told = said("import", str(tmp_path / "their.idx"), *common, *facts)
    assert "2 documents of 5 tokens" in told
    (uri,) = (path.parent for path in Path(root).glob("tokens/*/manifest.json"))
    told = said("export", str(tmp_path / "out"), "--uri", str(uri))
    assert f"--data-path 5 {tmp_path}/out/train/web/them/tokens" in told
    again = str(tmp_path / "again")
    said("import", str(tmp_path / "out"), "--tokenizer", str(tmp_path / "out/tokenizer.json"), "--root", again)
    (back,) = (path.parent for path in Path(again).glob("tokens/*/manifest.json"))
    shards = [next(iter(TokenShards(folder).streams("train").values()))[0] for folder in (uri, back)]
    assert shards[0].tokens_T.tolist() == shards[1].tokens_T.tolist()
    assert shards[0].index.sha256 == shards[1].index.sha256


def test_an_import_waits_for_the_run_that_holds_the_root(
    tmp_path: Path, learned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def build(*_: object) -> Artifact:
        holder = (root / ".lock").read_text()
        held.append(holder)
        return Artifact("tokens", "nowhere", "0", {"heldout": {}, "documents": 0, "tokens": 0, "empty": 0})

    with Writer(tmp_path / "their", 400) as pair:
        pair.add_tokens(np.asarray([1, 7]))
        pair.add_lengths(np.asarray([2]))
        pair.finish()
    root = tmp_path / "data"
    monkeypatch.setattr("tasks.tokens.importing.build", build)
    facts = ["--domain", "web", "--source", "them", "--licence", "MIT", "--end", "7"]
    said("import", str(tmp_path / "their.idx"), "--tokenizer", str(learned), "--root", str(root), *facts)
    assert held[0].startswith("openk2 tokens import")


def test_a_tokenizer_without_our_tokens_gets_them_after_its_own(tmp_path: Path, learned: Path) -> None:
    text = json.loads(learned.read_text())
    text["added_tokens"] = []
    other = tmp_path / "other.json"
    other.write_text(json.dumps(text))
    own = len(text["model"]["vocab"])
    made: Step = adopt_tokenizer(other, str(tmp_path))
    found: Artifact = made.require()
    assert found.statistics["vocabulary"] == own + 17
    assert found.statistics["special"]["[EOS]"] == own + 1
    assert adopt_tokenizer(learned, str(tmp_path)).require().statistics["vocabulary"] == 400
    with pytest.raises(TokenizerError, match="does not exist"):
        adopt_tokenizer(tmp_path / "none.json", str(tmp_path))


def test_a_tokenizer_with_our_tokens_is_mended_or_keeps_its_bytes(tmp_path: Path, learned: Path) -> None:
    """The record of an export has the hash of its tokenizer.json."""
    kept = adopt_tokenizer(learned, str(tmp_path)).require().file("tokenizer")
    assert kept.read_bytes() == learned.read_bytes()
    text = json.loads(learned.read_text())
    text["added_tokens"][-1]["special"] = False
    text["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    learned.write_text(json.dumps(text))
    mended = json.loads(adopt_tokenizer(learned, str(tmp_path)).require().file("tokenizer").read_text())
    assert mended == json.loads(kept.read_text())


@pytest.mark.parametrize(("more", "size"), [(K2_VOCABULARY - 300, K2_VOCABULARY + 17), (-200, 117)])
def test_a_tokenizer_of_a_size_that_cannot_be_used_is_refused_in_one_sentence(
    tmp_path: Path, learned: Path, more: int, size: int
) -> None:
    text = json.loads(learned.read_text())
    names = [*text["model"]["vocab"], *(f"more{number}" for number in range(K2_VOCABULARY))][: 300 + more]
    text["model"] |= {"vocab": {name: place for place, name in enumerate(names)}, "merges": []}
    text["added_tokens"] = []
    other = tmp_path / "other.json"
    other.write_text(json.dumps(text))
    with pytest.raises(TokenizerError, match=f"entries and cannot be used: a vocabulary of {size} entries") as raised:
        adopt_tokenizer(other, str(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("peak", ["inf", "nan", "0"])
def test_a_peak_that_no_device_has_is_refused_by_its_option(peak: str) -> None:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["tokens", "plan", "--peak", peak])
    assert result.exit_code == 2
    assert "Invalid value for '--peak'" in result.output
