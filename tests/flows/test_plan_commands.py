"""`openk2 plan`: what it says of every preset, and how it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from flows.preset import PresetError
from flows.request import PresetName, Request
from flows.stage_page import document
from flows.stage_plan import Corpus, corpus_of, plan_stages
from tasks.artifact import Artifact
from tasks.report import html
from tasks.report.blocks import LEVELS
from tests.shards import folder_of
from tests.training.runs import MODEL, STAGES
from training.config import PretrainConfig
from training.layout import LayoutError
from training.order import OrderError

INDEX = pa.table({"start": [0], "end": [99], "id": ["all"], "source": ["made"]})


def said(*words: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["plan", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_stages_of_k2_are_the_recipes_in_80_columns() -> None:
    told = said("stages")
    for fact in (
        *("237,823 updates", "15.96T tokens", "148,512", "149,012", "81,956", "5,961", "5,960", "894", "57,742"),
        *("59,456", "0 → 2e-4 linear", "2e-4 constant", "2e-4 → 2e-5 cosine", "67.11M", "16,384", "32,768", "33.55B"),
        *("↳ 7.54e-6 → 7e-6 cosine", "15.5T", "1.03 epochs", "of 1.0 GiB"),
    ):
        assert fact in told, fact
    assert max(map(len, told.splitlines())) <= 80
    # the warm-up, a 500th of the run, is drawn as a ramp over several columns
    lines = told.splitlines()
    drawn = lines[max(at for at, line in enumerate(lines) if line.strip() == "warm-up") + 1].strip()
    assert set(drawn) == set(LEVELS)
    assert list(drawn) == sorted(drawn)


@pytest.mark.parametrize("preset", list(PresetName))
def test_the_stages_of_every_preset_add_up(preset: PresetName, tmp_path: Path) -> None:
    found = json.loads(said("stages", "--preset", preset, "--root", str(tmp_path), "--json"))
    stages = found["stages"]
    assert sum(stage["updates"] for stage in stages) == found["updates"] == stages[-1]["last_update"]
    assert sum(stage["updates"] * stage["tokens_per_update"] for stage in stages) == found["tokens"]
    assert sum(stage["tokens"] for stage in stages) == stages[-1]["tokens_so_far"]
    for before, after in pairwise(stages):
        assert after["first_update"] == before["last_update"] + 1
        assert after["rate_from"] == pytest.approx(before["rate_to"])
    assert found["corpus"] is None


def test_a_mix_is_told_with_its_changes(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "extends: laptop\n"
        "pretrain:\n"
        "  stages:\n"
        "    - {name: only, updates: 9, sequence_length: 64, batch: 8, rate: {start: 0, end: 1.0e-3},\n"
        "       samples: best_fit, mix: {web: 3, code: 1}, mix_changes: [{sample: 30, mix: null}], yarn_factor: 4}\n"
    )
    told = said("stages", "--preset-file", str(mine), "--root", str(tmp_path))
    assert "mix of only, from its sample 0: web 75.0 %, code 25.0 %" in told
    assert "mix of only, from its sample 30: the corpus as it is" in told
    assert "best fit" in told


def test_a_gate_that_asks_for_nothing_in_particular_is_no_measure_of_the_corpus(tmp_path: Path) -> None:
    # what a preset with sources of its own is left with
    told = said("stages", "--set", "gates.tokens.tokens=1", "--root", str(tmp_path))
    assert "No shards are published yet." in told
    assert "epochs" not in told
    assert "that their gate asks for" in said("stages", "--root", str(tmp_path))


def test_the_stages_as_a_page(tmp_path: Path) -> None:
    path = tmp_path / "pages" / "stages.html"
    said("stages", "--html", str(path))
    page = path.read_text(encoding="utf-8")
    for fact in ("148,512", "57,742", "long context", "↳ 7.54e-6 → 7e-6 cosine"):
        assert fact in page, fact
    assert page.count("<svg") == 1 + 5 + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("{until_tokens: 600000000000}", "pretrain.stages.*'decay' ends at until_tokens = 600,000,000,000"),
        ("{tokens: 1000}", "stage 'decay' is 1,000 tokens long and one update of it takes 67,108,864"),
        ("{tokens: 1000000000, rate: {start: 1, end: 0}}", "rate jumps from 0.0002 to 1 at the start of stage 'decay'"),
        ("{tokens: 1000000000, sequence_length: 8192}", "'decay' has samples of 8192 tokens and a window of 4096"),
    ],
)
def test_a_plan_that_does_not_add_up_is_refused(changes: str, message: str, tmp_path: Path) -> None:
    stages = yaml.safe_load(Path("flows/presets/k2.yaml").read_text())["pretrain"]["stages"]
    decay = {key: value for key, value in stages[2].items() if key != "tokens"} | yaml.safe_load(changes)
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump({"extends": "k2", "pretrain": {"stages": [*stages[:2], decay]}}))
    with pytest.raises(PresetError, match=message):
        said("stages", "--preset-file", str(mine))


def test_a_small_model_is_told_in_units_that_show_it() -> None:
    told = said("ranks", "--preset", "test")
    assert "MiB of the rank" in told
    assert "GiB" not in told
    assert " 0.0 days" not in told
    weights = re.search(r"^0 +3 +443\.5k +([0-9.]+)", told, re.MULTILINE)
    assert weights is not None
    assert float(weights[1]) == pytest.approx(4 * 443_472 / 2**20, abs=0.05)
    assert max(map(len, told.splitlines())) <= 80


def test_published_shards_are_read_as_the_plan_says(tmp_path: Path) -> None:
    """60 windows of 32 in the corpus; the stages of window 32 read 64 of them, the one of 128 two of 15."""
    tokens = {"train/web/made/0": (np.full(32 * 60 + 1, 5), INDEX), "heldout/web/made/0": (np.full(99, 5), INDEX)}
    uri = folder_of(tmp_path, tokens, {"vocabulary": 64, "end_of_document": 1, "tokens": 32 * 60 + 1})
    config = PretrainConfig.model_validate({"model": MODEL, "stages": STAGES})
    found = corpus_of(config, Artifact.load(uri))
    assert found.tokens == 1921
    assert [epochs["web"] for epochs in found.epochs] == pytest.approx([64 / 60, 4 / 15])
    with pytest.raises(OrderError, match="web"):
        corpus_of(config.model_copy(update={"most_epochs": {"web": 1.0}}), Artifact.load(uri))


@pytest.mark.parametrize(
    ("lengths", "short"), [([32] * 60, 1.0), ([32] * 4 + [256] * 7, 0.0), ([24] * 10 + [240], 0.5)]
)
def test_a_long_stage_on_short_documents_is_warned_of(lengths: list[int], short: float, tmp_path: Path) -> None:
    """The last stage has samples of 128 tokens over a window of 32."""
    tokens = np.full(sum(lengths), 5)
    ends = np.cumsum(lengths)
    tokens[ends - 1] = 1
    count = len(lengths)
    index = pa.table(
        {"start": ends - lengths, "end": ends, "id": [str(n) for n in range(count)], "source": ["made"] * count}
    )
    held = {"train/web/made/0": (tokens, index), "heldout/web/made/0": (np.full(99, 5), INDEX)}
    uri = folder_of(tmp_path, held, {"vocabulary": 64, "end_of_document": 1, "tokens": len(tokens)})
    packed = STAGES[3] | {"samples": "best_fit"}
    config = PretrainConfig.model_validate({"model": MODEL, "stages": [*STAGES[:3], packed]})
    found = corpus_of(config, Artifact.load(uri))
    assert found.short == {"long context": pytest.approx(short, abs=0.15)}
    if len(set(lengths)) > 1:
        chosen = packed | {"document_tokens_min": 128}
        config = PretrainConfig.model_validate({"model": MODEL, "stages": [*STAGES[:3], chosen]})
        assert corpus_of(config, Artifact.load(uri)).short == {"long context": 0.0}
    crossing = config.model_copy(update={"separate_documents": False})
    assert corpus_of(crossing, Artifact.load(uri)).short == {"long context": 0.0}


@pytest.mark.parametrize(("held", "unmeasured"), [(128, ["long context"]), (129, [])])
def test_a_stage_without_a_heldout_sample_is_warned_of(held: int, unmeasured: list[str], tmp_path: Path) -> None:
    tokens = {"train/web/made/0": (np.full(4000, 5), INDEX), "heldout/web/made/0": (np.full(held, 5), INDEX)}
    uri = folder_of(tmp_path, tokens, {"vocabulary": 64, "end_of_document": 1, "tokens": 4000})
    config = PretrainConfig.model_validate({"model": MODEL, "stages": STAGES})
    found = corpus_of(config, Artifact.load(uri))
    assert found.unmeasured == unmeasured
    schedule, stages = plan_stages(Request())
    assert schedule.stages[-1].name == "long context"
    told = html.page(document(replace(schedule, corpus=found), stages))
    assert ("will have no held-out loss" in told) == bool(unmeasured)


def test_the_plan_tells_of_sources_that_no_sample_reads_and_of_copies_beside_passes(tmp_path: Path) -> None:
    tokens = {"train/web/made/0": (np.full(980, 5), INDEX), "heldout/web/made/0": (np.full(99, 5), INDEX)}
    tokens["train/web/tiny/0"] = (np.full(20, 5), INDEX)
    uri = folder_of(tmp_path, tokens, {"vocabulary": 64, "end_of_document": 1, "tokens": 1000})
    config = PretrainConfig.model_validate({"model": MODEL, "stages": STAGES[:3]})
    found = corpus_of(config, Artifact.load(uri), copies=4)
    assert (found.unread, found.unread_share) == (["web/tiny"], pytest.approx(0.02))
    schedule, stages = plan_stages(Request())
    told = html.page(document(replace(schedule, corpus=found), stages))
    assert "no sample reads web/tiny (2.00% of the tokens)" in told
    assert found.epochs == [{"web": pytest.approx(64 / 30)}]
    assert "goes through web 2.13 times: it reads a document up to 8.53 times" in told


def test_the_warning_says_what_to_do() -> None:
    schedule, stages = plan_stages(Request())
    for share, warned in ((0.87, True), (0.5, False)):
        corpus = Corpus("here", 5_000_000, [{"web": 1.0}], {"long context": share})
        told = html.page(document(replace(schedule, corpus=corpus), stages))
        assert ("87.0 % of its positions lie in documents of at most 256 tokens" in told) == warned
        assert ("document_tokens_min" in told) == warned


def test_help_teaches() -> None:
    told = said("--help")
    assert "stages" in told
    told = said("stages", "--help", columns=120)
    assert "openk2 plan stages --preset laptop" in told
    assert "border" in told


def test_the_ranks_of_k2_are_the_recipes_in_80_columns() -> None:
    told = refused()
    for fact in (
        *("ranks 2,048 (nodes 256 x 8) = pipeline 16 x data 8 x expert 16", "1,026,408,209,408 numbers", "5.86 %"),
        *("Weights, gradients and optimizer: 30.0 GiB a rank on average (by formula 30.0)", "✓ base passes"),
        *("3.29e+24 FLOPs", "copies: 8", "62.6 days at 30% of the peak"),
    ):
        assert fact in " ".join(told.split()), fact
    assert re.search(r"The rank that takes most: \d+ \(position 1\), 6\d\.\d of 74\.5 GiB, in warm-up", told)
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("preset", [name for name in PresetName if name != PresetName.k2])
def test_every_preset_but_k2_passes_its_dry_run_from_base_to_rl(preset: PresetName) -> None:
    found = json.loads(said("ranks", "--preset", preset, "--json"))
    assert [stage["stage"] for stage in found["stages"]] == ["base", "sft", "rl"]
    for stage in found["stages"]:
        assert stage["problems"] == []
        assert max(position["peak"] for position in stage["positions"]) <= 80e9
        assert stage["seconds"] > 0
    base = found["stages"][0]
    assert base["mean_state"] == pytest.approx(found["closed"]["rank_bytes"], rel=1e-4)
    assert base["seconds"] == pytest.approx(found["closed"]["days"] * 86_400)


def test_k2_says_that_its_post_training_cannot_be_sampled() -> None:
    """A copy of all weights in float32 is 4.1 TB: no rank of today holds it."""
    told = " ".join(refused().split())
    for stage in ("sft", "rl"):
        assert f"✗ {stage}: every rank samples replies from the whole model, which takes" in told
    assert "✗ base" not in told


@cache
def refused(*words: str, columns: int = 80) -> str:
    """What a dry run says that ends with exit code 1."""
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["plan", "ranks", *words], catch_exceptions=False)
    assert result.exit_code == 1, result.output
    return result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--memory", "40"), r"needs 6\d\.\d GiB in 'warm-up' and its device has 37\.3"),
        (("--nodes", "32", "--set", "pretrain.run.micro_batch=2048"), "samples of padding for each"),
        (("--preset", "gpu", "--nodes", "64"), "the batch of 'long context' in pretrain.stages is 16 for 64 data-par"),
        (("--preset", "gpu", "--nodes", "64"), "✗ sft: sft.rows is 32 for 64 data-parallel ranks"),
        (("--preset", "node", "--memory", "48"), "✗ rl: every rank samples replies from the whole model"),
    ],
)
def test_a_run_that_would_not_go_fails_with_the_reason(words: tuple[str, ...], message: str) -> None:
    assert re.search(message, refused(*words, columns=300))


def test_ranks_that_hold_no_whole_copy_are_refused() -> None:
    with pytest.raises(LayoutError, match="776 ranks do not hold whole copies"):
        said("ranks", "--nodes", "97")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pretrain.run.layout.expert=7", "run.layout: 384 experts do not divide by expert = 7"),
        ("pretrain.run.layout.virtual=4", "16 x 4 pieces for 61 layers"),
        ("pretrain.run.memory_of={end: {recompute: [layers]}}", "run.memory_of names the stage 'end'"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_its_field(change: str, message: str) -> None:
    with pytest.raises(PresetError, match=message):
        said("ranks", "--set", change)


def test_k2s_weights_reach_the_engines_in_the_time_of_the_report() -> None:
    """RECIPE: under 30 s, and checkpoint-engine's 14 to 16 s for FP8."""
    found = json.loads(said("sync", "--json"))
    assert found["bfloat16"]["weights"] == pytest.approx(2 * 1.0264e12, rel=1e-3)
    assert found["fp8"]["seconds"] == pytest.approx(found["fp8"]["weights"] / (0.33 * 200e9), rel=0.02)
    assert 14 < found["fp8"]["seconds"] < 16
    assert found["int4"]["seconds"] < found["fp8"]["seconds"] < 30 < found["bfloat16"]["seconds"]
    # a rank's part: 1/256 of the experts, 1/16 of all else
    assert found["bfloat16"]["rank"] / found["bfloat16"]["weights"] == pytest.approx(1 / 219, rel=0.01)
    assert json.loads(said("sync", "--json", "--network", "100"))["fp8"]["broadcast"] == pytest.approx(
        2 * found["fp8"]["broadcast"]
    )
    shown = said("sync", columns=100)
    assert "within" in shown
    assert "66 GB/s" in shown
