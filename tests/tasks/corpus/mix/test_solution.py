"""The mix's arithmetic: nothing asked, shares, caps, budgets, and what cannot be had."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.corpus.mix.config import MixConfig
from tasks.corpus.mix.solution import REWRITE, Group, MixError, fill, solve


def group(domain: str, source: str, tokens: float, bucket: str = "medium", licence: str = "MIT") -> Group:
    return Group(domain, source, "en", licence, bucket, 10, int(tokens * 4), tokens)


GROUPS = [
    group("code", "kernel", 100.0, "high"),
    group("code", "kernel", 300.0, "low"),
    group("code", "scripts", 200.0),
    group("math", "lemmas", 50.0, licence="CC-BY-NC-4.0"),
    group("math", "proofs", 50.0),
    group("web", "forum", 250.0, "low"),
    group("web", "forum", 50.0, REWRITE),
]


def epochs(config: MixConfig) -> list[float]:
    return [ration.epochs for ration in solve(GROUPS, config)]


def by_domain(config: MixConfig) -> dict[str, float]:
    found: dict[str, float] = {}
    for ration in solve(GROUPS, config):
        found[ration.group.domain] = found.get(ration.group.domain, 0.0) + ration.share
    return found


def test_where_nothing_is_asked_everything_is_read_exactly_once() -> None:
    rations = solve(GROUPS, MixConfig())
    assert [ration.epochs for ration in rations] == [1.0] * len(GROUPS)
    assert {ration.reason for ration in rations} == {"Read once: nothing asks for more or less of it."}
    assert sum(ration.tokens for ration in rations) == 1000.0


def test_weights_alone_are_epochs_up_to_the_cap() -> None:
    config = MixConfig(buckets={"high": 2, "low": 0.5}, sources={"kernel": 3}, rewrites=1.5, epochs=5)
    assert epochs(config) == [5.0, 1.5, 1.0, 1.0, 1.0, 0.5, 1.5]
    reasons = [ration.reason for ration in solve(GROUPS, config)]
    assert reasons[0] == (
        "Read 5 times: the source weighs 3; quality 'high' weighs 2; 5 epochs are the most that is allowed."
    )
    assert reasons[6] == "Read 1.5 times: rewrites weigh 1.5."


def test_domains_get_the_share_that_is_asked_for_them() -> None:
    shares = by_domain(MixConfig(domains={"code": 5, "math": 2, "web": 3}))
    assert shares == pytest.approx({"code": 0.5, "math": 0.2, "web": 0.3})
    assert by_domain(MixConfig(domains={"code": 1, "web": 1})) == pytest.approx({"code": 0.5, "math": 0, "web": 0.5})


def test_what_a_domain_cannot_fill_goes_to_the_others_in_proportion_and_is_said() -> None:
    config = MixConfig(domains={"code": 0.3, "math": 0.5, "web": 0.2}, epochs=2)
    rations = solve(GROUPS, config)
    shares = by_domain(config)
    assert shares["math"] == pytest.approx(0.2)  # all 100 tokens twice, of 1,000
    assert shares["code"] / shares["web"] == pytest.approx(1.5)
    said = {ration.group.domain: ration.reason for ration in rations}
    assert "math is asked for 50.0% and reaches 20.0%" in said["math"]
    assert "2 epochs are the most that is allowed" in said["math"]
    assert "code is asked for 30.0% and takes 48.0%" in said["code"]


def test_a_budget_is_met_and_never_by_more_epochs_than_allowed() -> None:
    for budget in (1, 500, 1000, 2500, 4000):
        rations = solve(GROUPS, MixConfig(tokens=budget))
        assert math.fsum(ration.tokens for ration in rations) == pytest.approx(budget, rel=1e-6)
    config = MixConfig(tokens=1500, source_epochs={"forum": 1, "kernel": 0.5}, buckets={"low": 0.25})
    capped = {("forum", "low"): 1, ("forum", REWRITE): 1, ("kernel", "high"): 0.5, ("kernel", "low"): 0.5}
    for ration in solve(GROUPS, config):
        assert ration.epochs <= capped.get((ration.group.source, ration.group.bucket), 4)


def test_good_text_is_read_more_often_than_poor_in_the_proportion_of_their_weights() -> None:
    high, low, *_ = epochs(MixConfig(buckets={"high": 1.5, "low": 0.5}, domains={"code": 1}))
    assert high / low == pytest.approx(3)


def test_licences_that_a_mix_does_not_allow_are_left_out_with_the_reason() -> None:
    rations = solve(GROUPS, MixConfig(licences=("MIT", "Apache-*")))
    assert [ration.epochs for ration in rations] == [1, 1, 1, 0, 1, 1, 1]
    assert rations[3].reason == "Left out: `mix.licences` does not allow CC-BY-NC-4.0."
    assert rations[3].asked == rations[3].share == 0


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"tokens": 4001}, "4,001 tokens and the text that may enter gives at most 4,000"),
        ({"tokens": 900, "domains": {"math": 1}}, "at most 400"),
        ({"licences": ("GPL-*",)}, "no text may enter"),
        ({"domains": {"math": 1}, "sources": {"lemmas": 0, "proofs": 0}}, "no text may enter"),
        ({"domains": {"physics": 1}}, "no text may enter"),
    ],
)
def test_what_cannot_be_had_is_one_clear_error(config: dict, said: str) -> None:
    with pytest.raises(MixError, match=said):
        solve(GROUPS, MixConfig(**config))


@pytest.mark.parametrize(
    "config",
    [
        {"domains": {"code": -1}},
        {"domains": {"code": 0}},
        {"sources": {"x": float("inf")}},
        {"buckets": {"low": float("nan")}},
        {"epochs": 0},
        {"source_epochs": {"x": 0}},
        {"tokens": 0},
        {"licences": ()},
        {"rewrites": -0.1},
    ],
)
def test_impossible_configurations_are_refused_when_they_are_read(config: dict) -> None:
    with pytest.raises(ValidationError):
        MixConfig(**config)


def test_water_fills_in_proportion_and_overflows_to_those_with_room() -> None:
    assert fill(10, [1, 1, 2], [100, 100, 100]) == pytest.approx([2.5, 2.5, 5])
    assert fill(10, [1, 1, 2], [1, 100, 100]) == pytest.approx([1, 3, 6])
    assert fill(3, [0, 1], [100, 3]) == pytest.approx([0, 3])
    with pytest.raises(ValueError, match="have no room"):
        fill(4, [0, 1], [100, 3])


amounts = st.floats(0.1, 1e6)


@given(
    st.lists(st.tuples(st.one_of(st.just(0.0), st.floats(1e-6, 100)), amounts), min_size=1, max_size=12),
    st.floats(0.001, 1),
)
def test_what_is_poured_out_arrives_whole_and_nobody_gets_more_than_fits(cups, part) -> None:
    asks, rooms = [ask for ask, _ in cups], [room for _, room in cups]
    total = part * math.fsum(room for ask, room in cups if ask > 0)
    filled = fill(total, asks, rooms)
    assert math.fsum(filled) == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert all(0 <= got <= room * (1 + 1e-12) for got, room in zip(filled, rooms, strict=True))
    levels = [
        got / ask for got, ask, room in zip(filled, asks, rooms, strict=True) if ask > 0 and got < room * 0.999999
    ]
    assert not levels or max(levels) <= min(levels) * (1 + 1e-6) + 1e-12


@given(
    st.dictionaries(st.sampled_from(["code", "math", "web"]), st.floats(0.01, 10), max_size=3),
    st.dictionaries(st.sampled_from(["kernel", "forum", "proofs"]), st.floats(0, 5), max_size=3),
    st.dictionaries(st.sampled_from(["low", "high"]), st.floats(0.01, 5), max_size=2),
    st.floats(0.1, 8),
    st.one_of(st.none(), st.integers(1, 8000)),
)
@example({"web": 1.0}, {"forum": 1.2e-38}, {}, 1.0, None)
@example({"web": 1.0}, {"forum": 5e-324}, {"low": 0.01}, 8.0, None)
@example({"code": 1.0, "math": 1.0, "web": 1.0}, {"forum": 2.3e-313}, {"low": 0.5}, 1.0, None)
def test_shares_sum_to_one_and_tokens_are_epochs_times_what_there_is(domains, sources, buckets, cap, budget) -> None:
    config = MixConfig(domains=domains, sources=sources, buckets=buckets, epochs=cap, tokens=budget)
    most = sum(cap * group.tokens for group in GROUPS)
    try:
        rations = solve(GROUPS, config)
    except MixError:
        assert budget or not all(sources.get(name, 1) for name in ("kernel", "forum", "proofs"))
        assert budget is None or budget > 1e-3 * most
        return
    assert math.fsum(ration.share for ration in rations) == pytest.approx(1, abs=1e-9)
    assert math.fsum(ration.asked for ration in rations) == pytest.approx(1, abs=1e-9)
    for ration in rations:
        assert ration.tokens == ration.epochs * ration.group.tokens
        assert 0 <= ration.epochs <= cap + 1e-9
        assert ration.reason.endswith(".")
    if budget:
        assert math.fsum(ration.tokens for ration in rations) == pytest.approx(budget, rel=1e-6)
