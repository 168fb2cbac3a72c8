"""The study of MuonClip: which runs follow from which results, a whole study of tiny runs, and what its tables say."""

import dataclasses
import itertools
import math
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import muonclip_findings as findings
from benchmarks import muonclip_study as study
from benchmarks.muonclip_study import Design, Paused, Runner, Trial
from flows.preset import load_preset
from flows.request import Request
from tests.training.runs import job, trainer_of
from training.config import PretrainConfig
from training.trainer import DONE

HOUSE = Path(__file__).resolve().parent.parent.parent
PAGE = HOUSE / "docs" / "claims" / "muonclip.md"
LEAST = Design(
    updates=8, shares=(0.75,), longer=1.5, rates=(0.01,), seeds=(1,), forced_seeds=(1,), tail=2, evaluate_every=4
)


def trained(config: PretrainConfig, shards: Path, work: Path) -> None:
    """A run in this process."""
    values = {"config": config.model_dump(mode="json"), "inputs": {"tokens": str(shards)}, "work": str(work)}
    assert trainer_of(values).run() == DONE


def settled(design: Design, loss: Callable[[Trial], float]) -> dict[Trial, float]:
    """Losses of all runs that a study comes to ask for."""
    losses: dict[Trial, float] = {}
    while todo := [trial for trial in study.trials(design, losses) if trial not in losses]:
        losses[todo[0]] = loss(todo[0])
    return losses


@given(best=st.floats(-12, 3), other=st.floats(-12, 3))
def test_a_sweep_goes_on_until_its_best_rate_lies_between_two_others(best: float, other: float) -> None:
    """Each side has its own best rate, in log2; one rule sweeps for both, and the comparison takes what it finds."""
    optimum = {"muonclip": best, "adamw": other, "muon": 0.0}
    losses = settled(Design(), lambda trial: abs(math.log2(trial.rate) - optimum[trial.side]))
    for side in ("muonclip", "adamw"):
        rates = sorted(trial.rate for trial in losses if trial.part == "sweep" and trial.side == side)
        chosen = min(rates, key=lambda rate: abs(math.log2(rate) - optimum[side]))
        assert {trial.rate for trial in losses if trial.part == "equal" and trial.side == side} == {chosen}
        assert chosen not in (rates[0], rates[-1]) or len(rates) == study.MOST_RATES
        assert all(after == pytest.approx(2 * before) for before, after in itertools.pairwise(rates))
    assert {trial.seed for trial in losses if trial.part == "sweep"}.isdisjoint(Design().seeds)


def test_plans_get_shorter_while_they_still_end_below_adamw() -> None:
    losses = settled(Design(), lambda trial: 5.0 if trial.side == "adamw" else 4.0 + 40 / trial.updates)
    lengths = {trial.updates for trial in losses if trial.part == "equal" and trial.side == "muonclip"}
    assert lengths == {96, 48, 36}  # 4 + 40 / 36 is the first above 5
    worse = settled(Design(), lambda trial: 5.0 if trial.side == "adamw" else 6.0)
    assert {trial.updates for trial in worse if trial.part == "equal" and trial.side == "muonclip"} == {96, 48, 120}


def test_a_tail_stays_at_the_rate_where_the_plan_ends() -> None:
    plan = load_preset(Request()).pretrain.stages
    whole, tailed = study.shortened(plan, 0.02, 96), study.shortened(plan, 0.02, 120, tail=24)
    rates = [tailed.update(number).learning_rate for number in range(1, 121)]
    assert rates[:96] == pytest.approx([whole.update(number).learning_rate for number in range(1, 97)])
    assert rates[95:] == pytest.approx([rates[95]] * 25)


@pytest.mark.parametrize("updates", [24, 48, 96])
def test_a_shortened_plan_has_the_preset_s_proportions(updates: int) -> None:
    plan = load_preset(Request()).pretrain.stages
    short = study.shortened(plan, 0.016, updates)
    assert short.updates == updates
    assert [stage.name for stage in short.stages] == ["warm-up", "constant", "decay", "annealing"]
    assert short.stages[0].updates == plan.stages[0].updates
    assert short.update(updates).learning_rate == pytest.approx(0.016 * 1.4e-4 / 4e-3)
    assert max(short.update(number).learning_rate for number in range(1, updates + 1)) == pytest.approx(0.016)


def test_a_whole_study_of_tiny_runs(shards: Path, tmp_path: Path) -> None:
    base = PretrainConfig.model_validate(job(shards, tmp_path)["config"])
    ran: list[str] = []

    def run(trial: Trial, config: PretrainConfig, tell: Callable[[int, str], None]) -> None:
        ran.append(trial.name)
        trained(config, shards, tmp_path / trial.name)
        tell(trial.updates, "")

    study.carry_out(LEAST, base, tmp_path, run)
    first = list(ran)
    assert len(first) == len(set(first))
    study.carry_out(LEAST, base, tmp_path, run)
    assert ran == first  # what is finished is not run again
    done = study.finished(LEAST, tmp_path)
    assert sorted(trial.name for trial in done) == sorted(first)

    study.write_tables(tmp_path / "out", study.tables(tmp_path, list(done)))
    text = findings.publish(tmp_path / "out")
    tables = findings.load(tmp_path / "out")
    assert len(tables["runs"]) == len(first)
    by_part = {part: [row for row in tables["runs"] if row["part"] == part] for part in ("sweep", "equal", "forced")}
    assert {row["side"] for row in by_part["sweep"]} == {"muonclip", "adamw"}
    plain, clip = (next(row for row in by_part["forced"] if row["side"] == side) for side in ("muon", "muonclip"))
    assert plain["clipped_updates"] == 0
    assert clip["heads"] == 4
    pair = next(pair for pair in findings.pairs(tables) if pair.seed == "1")
    ends = {trial.name: study.heldout_loss(tmp_path, trial) for trial in done if trial.part == "equal"}
    assert pair.adamw == pytest.approx(next(loss for name, loss in ends.items() if "adamw" in name), abs=1e-4)
    assert f"{pair.adamw:.3f}" in text
    names = {path.stem for path in (tmp_path / "out").glob("*.svg")}
    assert names == {"sweep", "heldout", "plans", "logits", "forced", "clips"}
    for path in (tmp_path / "out").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_study_that_is_stopped_goes_on_to_the_same_tables(shards: Path, tmp_path: Path) -> None:
    """One run in a process, as the script starts it: stopped after its first checkpoint, then taken up."""
    base = PretrainConfig.model_validate(job(shards, tmp_path)["config"])
    trial = Trial("forced", "muonclip", 0.02, 1, 24, tau=0.1)
    config = trial.config(base, LEAST)
    seen: list[int] = []

    def tell(done: int, note: str) -> None:
        seen.append(done)
        if done >= LEAST.evaluate_every:
            object.__setattr__(runner, "deadline", time.monotonic())

    runner = Runner(str(shards), tmp_path / "stopped", threads=1)
    with pytest.raises(Paused):
        runner(trial, config, tell)
    assert 0 < max(seen) < trial.updates
    dataclasses.replace(runner, deadline=None)(trial, config, lambda done, note: None)
    trained(config, shards, tmp_path / "whole" / trial.name)
    stopped, whole = (study.tables(tmp_path / name, [trial]) for name in ("stopped", "whole"))
    for name in ("heldout", "logits"):
        assert stopped[name] == whole[name]
    assert any(row["clipped_heads"] for row in whole["logits"])


# ---------------------------------------------------------------------------------------------------------- statistics


def test_the_interval_is_student_s() -> None:
    assert findings.interval([1.0, 2.0, 3.0]) == (2.0, pytest.approx(4.303 / math.sqrt(3), rel=1e-3))
    assert findings.interval([1.0]) == (1.0, math.inf)


@given(
    exponent=st.floats(0.05, 1.0),
    target=st.floats(0.02, 0.98),
)
def test_the_tokens_that_reach_a_loss_lie_where_the_curve_has_it(exponent: float, target: float) -> None:
    """On a curve that is straight over the logarithm of tokens the answer is exact, however coarsely it was seen."""
    points = [(tokens, 9 - exponent * math.log(tokens)) for tokens in (100.0, 130.0, 400.0, 1000.0)]
    wanted = 100.0 * 10**target
    found = findings.reach(points, 9 - exponent * math.log(wanted))
    assert found.tokens == pytest.approx(wanted)
    assert found.bound == ""


def test_what_lies_outside_the_runs_is_told_as_a_bound() -> None:
    points = [(0.5, 5.0), (1.0, 4.0)]
    assert findings.reach(points, 5.5) == findings.Reach(0.5, "at most")
    assert findings.reach(points, 3.0) == findings.Reach(1.0, "more than")


def test_the_page_says_what_the_tables_say() -> None:
    """Every line of every table of docs/claims/muonclip.md follows from the CSV files beside it."""
    page = PAGE.read_text(encoding="utf-8")
    lines = findings.markdown(findings.load(PAGE.with_suffix(""))).splitlines()
    assert len(lines) > 10
    assert [line for line in lines if line not in page] == []


def test_the_drawings_are_those_of_the_tables() -> None:
    folder = PAGE.with_suffix("")
    page, made = PAGE.read_text(encoding="utf-8"), findings.drawings(findings.load(folder))
    assert made.keys() == {path.stem for path in folder.glob("*.svg")}
    for name, svg in made.items():
        assert (folder / f"{name}.svg").read_text(encoding="utf-8") == findings.drawing(svg)
        assert f"muonclip/{name}.svg" in page
