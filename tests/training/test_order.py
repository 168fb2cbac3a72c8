"""The order of samples against a naive walk: interleave, permutation, schedule and their inverses."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.order import PERIOD, Order, OrderError, shares

names = st.sampled_from(["code", "knowledge", "math", "web", "zh"])
weights = st.dictionaries(names, st.integers(1, 40).map(lambda n: n / 20), min_size=1)
sizes = st.fixed_dictionaries({name: st.integers(1, 37) for name in ["code", "knowledge", "math", "web", "zh"]})


def walk(mix: dict[str, float], samples: int, counts: dict[str, int]) -> list[tuple[str, int]]:
    """The definition itself, from sample 0, in exact fractions of the weights as written."""
    exact = {name: Fraction(str(weight)) for name, weight in sorted(mix.items())}
    total = sum(exact.values())
    taken = dict.fromkeys(exact, 0)
    result = []
    for sample in range(samples):
        deficit = {name: (sample + 1) * weight / total - taken[name] for name, weight in exact.items()}
        name = max(deficit, key=lambda name: deficit[name])
        taken[name] += 1
        result.append((name, counts.get(name, 0)))
        counts[name] = counts.get(name, 0) + 1
    return result


def located(order: Order, samples: list[int]) -> list[tuple[str, int, int]]:
    places = order.locate(np.asarray(samples, np.int64))
    return [
        (order.sources[source], epoch, window)
        for source, epoch, window in zip(*(field.tolist() for field in places), strict=True)
    ]


@given(weights, sizes)
@settings(max_examples=60, deadline=None)
def test_any_sample_is_where_the_naive_walk_puts_it(mix: dict[str, float], windows: dict[str, int]) -> None:
    order = Order([(0, mix)], windows, seed=3)
    expected = walk(mix, 300, {})
    for sample in (299, 0, 17, 150, 298):  # each asked alone: nothing is walked
        ((source, epoch, _),) = located(order, [sample])
        name, index = expected[sample]
        assert (source, epoch) == (name, index // windows[name])


@given(weights, weights, weights, st.integers(1, 60), st.integers(1, 60), sizes)
@settings(max_examples=40, deadline=None)
def test_a_mix_change_goes_on_where_every_source_stood(
    one: dict[str, float],
    two: dict[str, float],
    three: dict[str, float],
    first: int,
    more: int,
    windows: dict[str, int],
) -> None:
    order = Order([(0, one), (first, two), (first + more, three)], windows, seed=0)
    counts: dict[str, int] = {}
    expected = walk(one, first, counts) + walk(two, more, counts) + walk(three, 100, counts)
    found = located(order, list(range(len(expected))))
    assert [(source, epoch) for source, epoch, _ in found] == [(name, k // windows[name]) for name, k in expected]
    assert order.consumed(len(expected)) == {name: counts.get(name, 0) for name in order.sources}


@given(weights, sizes, st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_each_epoch_is_a_permutation_of_every_window(mix: dict[str, float], windows: dict[str, int], seed: int) -> None:
    order = Order([(0, mix)], windows, seed)
    seen: dict[tuple[str, int], list[int]] = {}
    for source, epoch, window in located(order, list(range(3000))):
        seen.setdefault((source, epoch), []).append(window)
    for (source, epoch), found in seen.items():
        assert len(set(found)) == len(found)
        if (source, epoch + 1) in seen:
            assert sorted(found) == list(range(windows[source]))


@given(weights, weights, sizes, st.integers(1, 400), st.data())
@settings(max_examples=40, deadline=None)
def test_from_a_window_back_to_the_samples_that_read_it(
    one: dict[str, float], two: dict[str, float], windows: dict[str, int], until: int, data: st.DataObject
) -> None:
    order = Order([(0, one), (100, two)], windows, seed=9)
    places = located(order, list(range(until)))
    source = data.draw(st.sampled_from(order.sources))
    window = data.draw(st.integers(0, windows[source] - 1))
    expected = [sample for sample, (name, _, found) in enumerate(places) if (name, found) == (source, window)]
    assert order.samples(source, window, until) == expected


@given(weights, st.integers(1, 3000))
@settings(max_examples=60, deadline=None)
def test_counts_stay_close_to_their_quota(mix: dict[str, float], samples: int) -> None:
    order = Order([(0, mix)], dict.fromkeys(mix, 10), seed=0)
    total = sum(mix.values())
    for name, count in order.consumed(samples).items():
        assert abs(count - samples * mix[name] / total) < len(mix)


def test_at_full_scale_nothing_is_walked_and_every_window_comes_once() -> None:
    windows = {"web": 2_000_000_011, "code": 1_000_000_007, "math": 400_000_009, "knowledge": 384_000_001}
    order = Order([(0, {"web": 0.5, "code": 0.27, "math": 0.12, "knowledge": 0.11})], windows, seed=1)
    far = np.arange(3_700_000_000, 3_700_100_000, dtype=np.int64)
    places = order.locate(far)
    keys = places.source_B * (1 << 50) + places.epoch_B * (1 << 40) + places.window_B
    assert len(np.unique(keys)) == len(far)
    assert all(places.window_B.max(where=places.source_B == k, initial=0) < n for k, n in enumerate(order.windows_D))
    source = order.sources[int(places.source_B[5])]
    assert int(far[5]) in order.samples(source, int(places.window_B[5]), 3_800_000_000)


def test_a_shuffle_looks_like_one() -> None:
    windows = {"a": 10_000}
    window_B = Order([(0, {"a": 1})], windows, seed=0).locate(np.arange(10_000, dtype=np.int64)).window_B
    again = Order([(0, {"a": 1})], windows, seed=1).locate(np.arange(10_000, dtype=np.int64)).window_B
    second = Order([(0, {"a": 1})], windows, seed=0).locate(np.arange(10_000, 20_000, dtype=np.int64)).window_B
    for one, other in ((window_B, np.arange(10_000)), (window_B, again), (window_B, second)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.04  # 4 standard errors
        assert (one == other).sum() < 12
    # neighbours: differences of successive windows are as those of independent draws
    assert abs(np.corrcoef(window_B[1:], window_B[:-1])[0, 1]) < 0.04
    table, _, _ = np.histogram2d(np.arange(10_000), window_B, bins=10)
    assert ((table - 100) ** 2 / 100).sum() < 81 + 5 * np.sqrt(2 * 81)


def test_shares_are_exact_where_they_can_be_and_sum_to_the_period_where_not() -> None:
    assert shares({"web": 0.35, "code": 0.25, "math": 0.2, "knowledge": 0.2}) == {
        "code": 5,
        "knowledge": 4,
        "math": 4,
        "web": 7,
    }
    assert shares({"a": 0.1 + 0.2, "b": 0}) == {"a": 1}
    rough = shares({"a": 1 / 3, "b": 2 / 3, "c": 1e-9})
    assert sum(rough.values()) == PERIOD
    assert rough["c"] >= 1
    assert abs(rough["a"] / PERIOD - 1 / 3) < 2 / PERIOD


@pytest.mark.parametrize(
    ("schedule", "windows", "said"),
    [
        ([(0, {"a": -1.0})], {"a": 5}, "'a'"),
        ([(0, {"a": float("nan")})], {"a": 5}, "'a'"),
        ([(0, {"a": 0.0})], {"a": 5}, "above 0"),
        ([(0, {"a": 1.0, "b": 1.0})], {"a": 5, "b": 0}, "'b'"),
        ([(0, {"a": 1.0}), (0, {"a": 2.0})], {"a": 5}, "ascends"),
        ([(3, {"a": 1.0})], {"a": 5}, "sample 0"),
    ],
)
def test_an_impossible_mix_is_refused_with_its_reason(schedule, windows, said) -> None:
    with pytest.raises(OrderError, match=said):
        Order(schedule, windows, seed=0)


# ----------------------------------------------------------------------------------------------- domains and sources

WEB = {"web/a": 31, "web/b": 7, "web/c": 1, "code/a": 12, "code/empty": 0}


def drawn(order: Order, first: int, end: int) -> dict[str, int]:
    counts = dict.fromkeys(WEB, 0)
    for source, _, _ in located(order, list(range(first, end))):
        counts[source] += 1
    return counts


@given(st.integers(0, 2**30), st.integers(1, 200))
@settings(max_examples=40)
def test_a_domain_is_split_by_windows_and_exactly_so_every_epoch(turn: int, samples: int) -> None:
    order = Order([(0, {"web": 1})], WEB, seed=0)
    total = 39 * turn
    assert drawn(order, total, total + 39) == {"web/a": 31, "web/b": 7, "web/c": 1, "code/a": 0, "code/empty": 0}
    consumed = order.consumed(samples)
    for name, count in consumed.items():
        assert abs(count - samples * WEB[name] / 39) < 2  # a tree of two levels, each less than one off
    assert consumed == {name: count for name, count in drawn(order, 0, samples).items() if name in consumed}


def test_an_entry_takes_what_no_narrower_one_names() -> None:
    order = Order([(0, {"web": 0.5, "web/a": 0.25, "*": 0.25})], WEB, seed=0)
    counts = drawn(order, 0, 3200)
    assert counts == {"web/a": 800, "web/b": 1400, "web/c": 200, "code/a": 800, "code/empty": 0}
    without = Order([(0, {"web": 1, "web/a": 0})], WEB, seed=0)
    assert without.sources == ["web/b", "web/c"]
    everything = drawn(Order([(0, {"*": 1})], WEB, seed=0), 0, 51)
    assert everything == WEB


mixes = st.dictionaries(st.sampled_from(["web", "web/a", "web/b", "code", "*"]), st.integers(1, 9), min_size=1).filter(
    lambda mix: not ({"web", "web/a", "web/b", "code", "*"} <= set(mix) or {"*", "web", "code"} <= set(mix))
)


@given(mixes, mixes, mixes, st.integers(1, 90), st.integers(1, 90), st.integers(0, 5))
@settings(max_examples=60)
def test_the_past_does_not_depend_on_later_mixes_and_sources_go_on(
    one: dict[str, float], two: dict[str, float], three: dict[str, float], first: int, more: int, seed: int
) -> None:
    whole = Order([(0, one), (first, two), (first + more, three)], WEB, seed)
    ids = list(range(first + more + 200))
    places = located(whole, ids)
    assert places[:first] == located(Order([(0, one)], WEB, seed), ids[:first])
    assert places[: first + more] == located(Order([(0, one), (first, two)], WEB, seed), ids[: first + more])
    seen: dict[str, list[tuple[int, int]]] = {}
    for source, epoch, window in places:
        seen.setdefault(source, []).append((epoch, window))
    for source, found in seen.items():
        assert [epoch for epoch, _ in found] == [number // WEB[source] for number in range(len(found))]
        assert len(set(found)) == len(found)
    assert whole.consumed(len(ids)) == {name: len(seen.get(name, [])) for name in whole.sources}
    for sample in ids[::37]:
        source, _, window = places[sample]
        expected = [n for n, (name, _, found) in enumerate(places) if (name, found) == (source, window)]
        assert whole.samples(source, window, len(ids)) == expected


def test_a_split_of_billions_is_exact() -> None:
    sizes = {"web/a": 3_999_999_999_989, "web/b": 2, "web/c": 700_000_000_001}
    order = Order([(0, {"web": 1})], sizes, seed=0)
    total = sum(sizes.values())
    assert order.consumed(total) == sizes
    far = list(range(5 * total - 3, 5 * total + 3))
    before, after = order.consumed(5 * total - 3), order.consumed(5 * total + 3)
    counted = dict.fromkeys(sizes, 0)
    for source, _, _ in located(order, far):
        counted[source] += 1
    assert counted == {name: after[name] - before[name] for name in sizes}
    for sample, (source, _, window) in zip(far, located(order, far), strict=True):
        assert sample in order.samples(source, window, 5 * total + 3)


def test_an_entry_with_nothing_left_is_refused() -> None:
    for mix in ({"web": 1, "web/a": 1, "web/b": 1, "web/c": 1}, {"code/empty": 1}, {"book": 1}):
        with pytest.raises(OrderError, match=f"the mix asks for '{next(iter(mix))}', which has no window"):
            Order([(0, mix)], WEB, seed=0)
