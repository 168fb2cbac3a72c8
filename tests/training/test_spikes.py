"""What counts as a spike, and which samples a run that went round some of them reads."""

import itertools
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.training.test_checkpoint import full_disk
from training.config import SpikeConfig
from training.order import Order
from training.schedule import StagePlan
from training.spikes import Rollback, Rollbacks, SpikeDetector, mixes, planned, position, windows


def falling(updates: int, seed: int) -> list[tuple[float, float]]:
    """Losses and gradient norms as of a run that learns, with noise and long-tailed norms."""
    noise = random.Random(seed)
    return [
        (2 + 7 * math.exp(-n / 150) + noise.gauss(0, 0.05), 0.5 * noise.lognormvariate(0, 0.4)) for n in range(updates)
    ]


def fed(detector: SpikeDetector, pairs: list[tuple[float, float]], stage: str = "constant") -> list[int]:
    """The updates of `pairs` judged to be spikes, and therefore not applied."""
    spikes = []
    for number, pair in enumerate(pairs):
        if detector.judge(stage, *pair):
            spikes.append(number)
        else:
            detector.applied(stage, *pair)
    return spikes


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_learns_has_no_spike_and_one_that_breaks_has(seed: int) -> None:
    pairs = falling(600, seed)
    assert fed(SpikeDetector(SpikeConfig()), pairs) == []
    pairs[300] = (pairs[300][0] * 1.5, pairs[300][1])
    pairs[400] = (pairs[400][0], 20.0)
    assert fed(SpikeDetector(SpikeConfig()), pairs) == [300, 400]


def test_what_is_not_finite_is_a_spike_from_the_first_update_on() -> None:
    detector = SpikeDetector(SpikeConfig())
    for pair in ((math.nan, 1.0), (1.0, math.inf), (-math.inf, 1.0)):
        assert "not both finite" in detector.judge("warm-up", *pair)
    assert detector.judge("warm-up", 1e9, 1e9) == ""


def test_another_stage_is_judged_by_its_own_updates() -> None:
    detector = SpikeDetector(SpikeConfig())
    assert fed(detector, falling(100, 0)) == []
    assert detector.judge("constant", 30.0, 1.0).startswith("loss 30 is above")
    assert detector.judge("long context", 30.0, 1.0) == ""
    assert fed(detector, [(30.0, 1.0)] * 20, "long context") == []
    assert detector.judge("long context", 60.0, 1.0)


@given(st.integers(0, 200), st.integers(0, 100))
def test_the_state_continues_the_judgement(cut: int, seed: int) -> None:
    pairs = falling(200, seed)
    pairs[150] = (50.0, 1.0)
    whole, first, second = (SpikeDetector(SpikeConfig()) for _ in range(3))
    expected = fed(whole, pairs)
    found = fed(first, pairs[:cut])
    second.load(first.state)
    found += [cut + number for number in fed(second, pairs[cut:])]
    assert found == expected == [150]
    assert second.state == whole.state


def test_a_window_that_judges_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="least = 80 is more than window = 64"):
        SpikeConfig(least=80)


# ----------------------------------------------------------------------------------------------- samples left out

WINDOWS = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=6).map(
    lambda pairs: [Rollback(9, 0, 0, first, first + size, "") for first, size in pairs]
)


@given(WINDOWS)
def test_ids_pass_over_what_is_left_out_and_over_nothing_else(rollbacks: list[Rollback]) -> None:
    out = windows(rollbacks, 0)
    assert all(end < first for (_, end), (first, _) in itertools.pairwise(out))
    gone = {sample for each in rollbacks for sample in range(each.first_sample, each.end_sample)}
    read = [position(out, sample) for sample in range(400)]
    assert read == [sample for sample in range(read[-1] + 1) if sample not in gone]
    assert [planned(out, sample) for sample in read] == list(range(400))
    assert all(planned(out, sample) is None for sample in gone)
    assert windows(rollbacks, 1) == []


def test_a_mix_begins_at_its_update_also_past_a_window() -> None:
    common = {"sequence_length": 8, "batch": 10, "rate": {"start": 1, "end": 1}}
    changes = [{"sample": 50, "mix": {"web": 1.0}}, {"sample": 80, "mix": {"code": 1.0}}]
    plan = StagePlan.model_validate([{"name": "all", "updates": 10, **common, "mix_changes": changes}])

    def past(*left_out: tuple[int, int]) -> list[tuple[int, dict[str, float] | None]]:
        return mixes(plan, 0, [Rollback(9, 0, 0, first, end, "") for first, end in left_out])

    web, code = {"web": 1.0}, {"code": 1.0}
    assert past((60, 75)) == [(0, None), (50, web), (95, code)]
    assert past((0, 10)) == [(0, None), (60, web), (90, code)]
    assert past() == plan.mixes(0)
    # a change in a window, or at its first sample, holds for what is left out as it did when that was read
    assert past((50, 60)) == [(0, None), (50, web), (90, code)]
    assert past((40, 60)) == [(0, None), (50, web), (60, None), (70, web), (100, code)]
    # the second rollback leaves out what the first moved
    assert past((60, 75), (40, 105)) == [(0, None), (50, web), (95, code), (105, None), (115, web), (145, code)]


@given(WINDOWS, st.lists(st.integers(1, 399), max_size=4, unique=True).map(sorted))
def test_a_rollback_changes_no_id_below_its_window_s_end_and_keeps_to_the_plan_above(
    rollbacks: list[Rollback], changes: list[int]
) -> None:
    common = {"sequence_length": 8, "batch": 10, "rate": {"start": 1, "end": 1}}
    given = [{"sample": first, "mix": {f"web/{first}": 1.0}} for first in changes]
    plan = StagePlan.model_validate([{"name": "all", "updates": 40, **common, "mix_changes": given}])

    def at(found: list[tuple[int, dict[str, float] | None]], sample: int) -> dict[str, float] | None:
        return [mix for first, mix in found if first <= sample][-1]

    for count in range(1, len(rollbacks) + 1):
        before, found = (mixes(plan, 0, rollbacks[:known]) for known in (count - 1, count))
        assert found[0][0] == 0
        assert all(one < other for (one, _), (other, _) in itertools.pairwise(found))
        out = windows(rollbacks[:count], 0)
        end = next(end for first, end in out if first <= rollbacks[count - 1].first_sample < end)
        assert [at(found, sample) for sample in range(end)] == [at(before, sample) for sample in range(end)]
        for sample in range(400):
            if position(out, sample) >= end:
                assert at(found, position(out, sample)) == at(plan.mixes(0), sample)


def test_samples_that_were_left_out_never_come_again() -> None:
    """Spikes beside changes of the mix, which the windows begin at, end at or hold."""
    common = {"sequence_length": 8, "batch": 10, "rate": {"start": 1, "end": 1}}
    changes = [{"sample": 100, "mix": {"code": 1.0}}, {"sample": 145, "mix": {"web": 1.0, "code": 1.0}}]
    plan = StagePlan.model_validate(
        [{"name": "all", "updates": 20, **common, "mix": {"web": 1.0}, "mix_changes": changes}]
    )
    sizes = {"web/a": 1000, "code/b": 1000}

    def read(number: int, rollbacks: list[Rollback]) -> list[tuple[int, int]]:
        first = position(windows(rollbacks, 0), plan.update(number).first_sample)
        places = Order(mixes(plan, 0, rollbacks), sizes, 0).locate(np.arange(first, first + 10, dtype=np.int64))
        return list(zip(places.source_B.tolist(), places.window_B.tolist(), strict=True))

    for spike in (9, 10, 11, 12, 15, 16):
        to = (spike - 1) // 5 * 5  # a checkpoint every five updates
        rollbacks = [Rollback(spike, to, 0, 10 * to, 10 * spike, "")]
        left_out = {sample for number in range(to + 1, spike + 1) for sample in read(number, [])}
        seen = [sample for number in range(1, 21) for sample in read(number, rollbacks)]
        assert not left_out & set(seen), spike
        assert len(set(seen)) == 200
        assert [source for source, _ in seen[:140]] == [1] * 100 + [0] * 40  # web, then code, as planned


def test_rollbacks_are_kept_and_undo_what_was_written_before_them(tmp_path: Path) -> None:
    rollbacks = Rollbacks(tmp_path / "rollbacks.jsonl", {"run": "one"})
    rollbacks.add(Rollback(11, 9, 0, 90, 110, "loss"), writes=True)
    rollbacks.add(Rollback(11, 6, 0, 60, 130, "loss"), writes=True)
    assert rollbacks.taken == {6}  # the checkpoint of update 9 is undone, and the one written next is none gone back to
    rollbacks.add(Rollback(12, 9, 0, 130, 160, "loss"), writes=True)
    assert rollbacks.taken == {6, 9}
    rollbacks.replace(rollbacks.all[:2], writes=True)
    assert windows(rollbacks.all, 0) == [(60, 130)]
    # what was written after the return knows of it; what was written before it is undone
    assert [rollbacks.undone(9, known) for known in (0, 1, 2)] == [True, True, False]
    assert not rollbacks.undone(6, 0)
    assert Rollbacks(tmp_path / "rollbacks.jsonl", {"run": "one"}).all == rollbacks.all
    with full_disk(10), pytest.raises(OSError, match=r"rollbacks\.jsonl\.partial could not be written"):
        rollbacks.replace(rollbacks.all, writes=True)
    assert Rollbacks(tmp_path / "rollbacks.jsonl", {"run": "one"}).all == rollbacks.all


def test_rollbacks_of_another_run_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "rollbacks.jsonl"
    Rollbacks(path, {"run": "one"}).add(Rollback(11, 9, 0, 90, 110, "loss"), writes=True)
    assert Rollbacks(path, {"run": "another"}).all == []
    older = [{**json.loads(path.read_text()), "stream": 1}]
    older[0].pop("identity")
    path.write_text("".join(json.dumps(each) + "\n" for each in older))
    assert [each.stream for each in Rollbacks(path, {"run": "another"}).all] == [1], "older versions told no run"
