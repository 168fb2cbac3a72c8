"""The stage plan: K2's numbers, the laws of the rate and of the sample ids, and what it refuses."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.training.k2 import k2_stages
from training.schedule import Rate, Stage, StagePlan

TOKENS = 67_108_864


def test_k2_has_the_reports_lengths() -> None:
    plan = k2_stages()
    ends = [span.first_update + span.updates for span in plan.spans]
    assert ends == [500, 149_012, 149_012 + 81_956, 236_929, 237_823]
    assert plan.updates == 237_823
    # each stage by itself, rounded
    assert [round(tokens / TOKENS) for tokens in (10e12, 5.5e12, 400e9, 60e9)] == [149_012, 81_956, 5_960, 894]
    assert plan.spans[-1].updates == 894
    assert plan.spans[-1].stage.tokens_per_update == TOKENS
    assert 15.96e12 <= plan.tokens < 15.96e12 + TOKENS


def test_k2_has_the_reports_rates() -> None:
    plan = k2_stages()
    for k in (1, 2, 250, 500):
        assert plan.update(k).learning_rate == pytest.approx(2e-4 * k / 500, rel=1e-12)
    assert plan.update(149_012).learning_rate == 2e-4
    assert plan.update(149_012).stage.name == "constant"  # crosses 10T, and belongs to the stage it starts in
    assert plan.update(149_013).stage.name == "decay"
    middle = plan.update(149_012 + 81_956 // 2)
    assert middle.learning_rate == pytest.approx((2e-4 + 2e-5) / 2, rel=1e-3)
    assert plan.update(149_012 + 81_956).learning_rate == 2e-5
    assert plan.update(237_823).learning_rate == 7e-6
    # annealing and long context are one cosine over 460B tokens: at their border it has come 400/460 of the way
    border = plan.update(236_929)
    expected = 7e-6 + (2e-5 - 7e-6) * (1 + math.cos(math.pi * 400 / 460)) / 2
    assert border.stage.name == "annealing"
    assert border.learning_rate == pytest.approx(expected, rel=1e-4)
    after = plan.update(236_930)
    assert (after.stage.sequence_length, after.stage.batch, after.stage.yarn_factor) == (32_768, 2_048, 8)


def test_stages_of_one_window_share_their_samples() -> None:
    plan = k2_stages()
    assert plan.update(149_013).first_sample == 149_012 * 16_384
    assert [span.stream for span in plan.spans] == [0, 0, 0, 0, 1]
    assert plan.update(236_930).first_sample == 0
    assert plan.update(236_931).first_sample == 2_048


def test_a_window_that_comes_again_goes_on_where_it_had_stopped() -> None:
    half, rest = {"web": 0.5, "code": 0.5}, {"web": 1.0}
    plan = StagePlan(
        stages=(
            stage(name="a", mix=half),
            stage(name="b", rate=None, sequence_length=8),
            stage(name="c", rate=None, mix=rest),
            stage(name="d", rate=None, sequence_length=8, batch=1),
        )
    )
    assert plan.streams == 2
    assert [(span.stream, span.first_sample) for span in plan.spans] == [(0, 0), (1, 0), (0, 6), (1, 6)]
    assert plan.mixes(0) == [(0, half), (6, rest)]
    assert plan.mixes(1) == [(0, None)]


def test_a_mix_may_change_within_a_stream() -> None:
    half, rest = {"web": 0.5, "code": 0.5}, {"web": 1.0}
    plan = StagePlan(
        stages=(
            stage(name="a", mix=half),
            stage(name="b", rate=None, mix=half),
            stage(name="c", rate=None, mix=rest),
            stage(name="d", rate=None, sequence_length=8, mix=rest),
        )
    )
    assert plan.mixes(0) == [(0, half), (12, rest)]
    assert plan.mixes(1) == [(0, rest)]


def test_a_mix_may_change_at_a_sample_of_a_stage() -> None:
    half, rest = {"web": 0.5, "code": 0.5}, {"web/wiki": 1.0}
    changes = [{"sample": 3, "mix": rest}, {"sample": 5, "mix": None}]
    plan = StagePlan(stages=(stage(name="a", mix=half), stage(name="b", rate=None, mix=half, mix_changes=changes)))
    assert plan.mixes(0) == [(0, half), (9, rest), (11, None)]
    with pytest.raises(ValidationError, match="ascend by their sample"):
        stage(mix_changes=changes[::-1])
    with pytest.raises(ValidationError, match="has 6 samples and a mix change at 6"):
        StagePlan(stages=(stage(mix_changes=[{"sample": 6, "mix": rest}]),))


def test_long_documents_are_a_stream_of_their_own_and_take_packed_rows() -> None:
    rows = {"samples": "best_fit", "rate": None}
    plan = StagePlan(
        stages=(
            stage(name="a", samples="best_fit"),
            stage(name="b", document_tokens_min=99, **rows),
            stage(name="c", **rows),
        )
    )
    assert [span.stream for span in plan.spans] == [0, 1, 0]
    with pytest.raises(
        ValidationError, match=r"document_tokens_min = 99 takes whole documents.*set samples to best_fit"
    ):
        stage(name="b", document_tokens_min=99)


def test_stages_that_cut_the_corpus_otherwise_have_samples_of_their_own() -> None:
    plan = StagePlan(stages=(stage(name="a"), stage(name="b", rate=None, samples="best_fit")))
    assert [(span.stream, span.first_sample) for span in plan.spans] == [(0, 0), (1, 0)]


@st.composite
def plans(draw: st.DrawFn) -> StagePlan:
    """Plans of one to five stages whose curves join, with lengths given in all three ways."""
    rate = draw(st.sampled_from([0.0, 1e-4, 1e-2]))
    stages: list[Stage] = []
    until = 0
    for index in range(draw(st.integers(1, 5))):
        window, batch = draw(st.sampled_from([4, 8, 16])), draw(st.integers(1, 7))
        step = window * batch
        size = draw(st.integers(step * 2 + 112, step * 40 + 112))  # more than a stage before may overshoot
        kind = draw(st.sampled_from(["updates", "tokens", "until_tokens"]))
        length = {"updates": size // step, "tokens": size, "until_tokens": until + size + 1000}[kind]
        until += size + 1000
        curve = None
        if index == 0 or draw(st.booleans()):
            end = draw(st.sampled_from([0.0, 1e-5, 1e-4, 1e-2] if rate else [1e-5, 1e-4, 1e-2]))
            curve, rate = Rate(start=rate, end=end, shape=draw(st.sampled_from(["linear", "cosine"]))), end
        stages.append(
            Stage.model_validate(
                {"name": f"s{index}", kind: length, "sequence_length": window, "batch": batch, "rate": curve}
            )
        )
    return StagePlan(stages=tuple(stages))


@settings(max_examples=80, deadline=None)
@given(plans())
def test_every_plan_is_continuous_and_uses_each_sample_once(plan: StagePlan) -> None:
    updates = [plan.update(number) for number in range(1, plan.updates + 1)]
    tokens = 0
    taken: dict[int, int] = {}
    for update in updates:
        assert update.tokens_before == tokens
        tokens = update.tokens_after
        assert update.first_sample == taken.get(update.stream, 0)
        taken[update.stream] = update.first_sample + update.stage.batch
        # the update that crosses a border belongs to the stage it starts in
        assert update.tokens_before < plan.spans[update.span].border
    assert tokens == plan.tokens
    # within one curve the rate never turns, and no step is longer than the curve's slope allows
    for before, after in pairwise(updates):
        curve, first, last = plan._curve(after.span)
        lowest, highest = sorted((curve.start, curve.end))
        assert lowest <= after.learning_rate <= highest
        slope = (highest - lowest) * math.pi / 2 / (last - first)
        if plan._curve(before.span) == (curve, first, last):
            assert (
                abs(after.learning_rate - before.learning_rate) <= slope * after.stage.tokens_per_update * 1.001 + 1e-12
            )
            direction = (curve.end - curve.start) * (after.learning_rate - before.learning_rate)
            assert direction >= 0
        else:  # a new curve starts where the old one ended
            assert before.learning_rate == plan._curve(before.span)[0].end
    assert updates[-1].learning_rate == plan._curve(updates[-1].span)[0].end


def stage(**fields: object) -> Stage:
    base = {"name": "a", "updates": 3, "sequence_length": 4, "batch": 2, "rate": Rate(start=0, end=1e-3)}
    return Stage.model_validate({**base, **fields})


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((stage(), stage(name="b", rate=Rate(start=2e-3, end=0))), "jumps from 0.001 to 0.002"),
        ((stage(rate=None),), "give it a rate"),
        ((stage(), stage(rate=None)), "names must differ"),
        ((stage(yarn_factor=8), stage(name="b", rate=None)), "yarn_factor falls from 8 to 1 at the start of stage 'b'"),
        (
            (stage(), stage(name="b", rate=None, updates=None, until_tokens=24)),
            "stage 'b' ends at until_tokens = 24, and the stages before it end at 24",
        ),
        ((stage(updates=None, tokens=7),), "is 7 tokens long and one update of it takes 8"),
        (
            (stage(), stage(name="b", rate=None, updates=None, until_tokens=30)),
            "stage 'b' is 6 tokens long and one update",
        ),
        # 33 tokens in updates of 32 consume 64, which is past the end of the next stage's 16
        (
            (stage(updates=None, tokens=33, batch=8), stage(name="b", rate=None, updates=None, tokens=16)),
            "stage 'b' has no update left: it ends at 49 tokens and 64 are consumed before it",
        ),
    ],
)
def test_plans_that_do_not_fit_are_refused(stages: tuple[Stage, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StagePlan(stages=stages)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": {"start": 0, "end": 0}}, "from 0 to 0: nothing would be learned"),
        ({"rate": {"start": 0, "end": math.inf}}, "finite"),
        ({"rate": {"start": -1e-3, "end": 1e-3}}, "greater than or equal to 0"),
        ({"yarn_factor": 0.5}, "greater than or equal to 1"),
        ({"yarn_factor": math.inf}, "finite"),
        ({"batch": 0}, "greater than 0"),
        ({"tokens": 0, "updates": None}, "greater than 0"),
        ({"mix": {"web": 0.0, "code": 0.0}}, "stage 'a': the mix has no entry with a weight above 0"),
        ({"mix": {}}, "no entry with a weight above 0"),
        ({"mix": {"web": -1.0, "code": 2.0}}, "the weight of 'web' in the mix is -1"),
        ({"mix": {"web": math.nan}}, "finite number"),
        ({"mix_changes": [{"sample": 3, "mix": {"web": 0.0}}]}, "no entry with a weight above 0"),
    ],
)
def test_stages_that_cannot_be_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        stage(**fields)


def test_an_update_that_crosses_a_border_may_leave_the_next_stage_less_than_an_update() -> None:
    """Its length is what counts: K2's borders are no multiples of its batch either."""
    plan = StagePlan(stages=(stage(updates=None, tokens=33, batch=8), stage(name="b", rate=None, updates=4, batch=9)))
    assert [span.updates for span in plan.spans] == [2, 4]
    plan = StagePlan(
        stages=(stage(updates=None, tokens=33, batch=8), stage(name="b", rate=None, updates=None, tokens=34))
    )
    assert [(span.first_token, span.border, span.updates) for span in plan.spans] == [(0, 33, 2), (64, 67, 1)]


def test_the_rate_at_a_border_is_that_of_the_curves_on_either_side() -> None:
    plan = k2_stages()
    assert [plan.borders(at) for at in (0, 1)] == [(0, 500 * TOKENS), (500 * TOKENS, 10**13)]
    for at in range(1, 5):
        border = plan.borders(at)[0]
        assert plan.rate(at, border) == pytest.approx(plan.rate(at - 1, border), rel=1e-12)
    assert plan.rate(4, plan.borders(4)[1]) == 7e-6


def test_a_stage_has_exactly_one_length() -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        stage(tokens=100)
    with pytest.raises(ValidationError, match="exactly one"):
        stage(updates=None)


def test_updates_outside_the_run_are_refused() -> None:
    plan = StagePlan(stages=(stage(),))
    for number in (0, 4):
        with pytest.raises(IndexError, match="1 to 3"):
            plan.update(number)
