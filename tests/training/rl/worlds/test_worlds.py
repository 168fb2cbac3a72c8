"""Worlds: invariants hold whatever is called, nothing raises, what is done twice is done once, seeds decide."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from training.rl.worlds.families.table import WORLDS
from training.rl.worlds.faults import Faults
from training.rl.worlds.world import BrokenWorldError, Function, World, functions

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def leaves(value):
    """Every text and number of a state, keys too: what a caller could know."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in (key, *leaves(inner))]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


def plausible(draw, world, state):
    """A call of which many succeed: arguments come from the state, from the bounds, now and then from nowhere."""
    function = draw.choice(list(world.functions.values()))
    known = leaves(json.loads(state))
    arguments = {}
    for name, schema in function.properties.items():
        fitting = [leaf for leaf in known if fits(leaf, schema)]
        if "enum" in schema:
            arguments[name] = draw.choice(schema["enum"])
        elif schema["type"] == "integer":
            arguments[name] = draw.randint(schema["minimum"], min(schema["maximum"], 120))
        elif name in ("start", "date"):
            arguments[name] = {"start": f"{draw.randint(0, 23):02}:00", "date": f"2026-03-0{draw.randint(1, 9)}"}[name]
        elif fitting and draw.random() < 0.8:
            arguments[name] = draw.choice(fitting)
        else:
            arguments[name] = f"/music/x{draw.randint(1, 3)}.txt" if "/" in str(schema.get("pattern")) else "news"
    return function.name, arguments


def fits(leaf, schema):
    return isinstance(leaf, str) and Draft202012Validator(schema).is_valid(leaf)


@pytest.mark.parametrize("world", WORLDS.values(), ids=lambda world: world.name)
def test_invariants_hold_over_long_random_lives(world):
    done = dict.fromkeys(world.functions, 0)
    for seed in range(12):
        draw, state = random.Random(seed), world.start(seed)
        faults = Faults(seed, transient=0.2, lost=0.2)
        for number in range(60):
            name, arguments = plausible(draw, world, state)
            outcome = faults.call(world, state, name, arguments, number)
            assert json.loads(outcome.text) == outcome.value
            if outcome.error not in (None, "timeout"):
                assert outcome.state == state, "what failed changed something"
            done[name] += outcome.error is None
            state = outcome.state
    assert all(done.values()), f"never succeeded, so nothing was tested: {done}"


@pytest.mark.parametrize("world", WORLDS.values(), ids=lambda world: world.name)
@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=10), arguments=JSON, seed=st.integers(0, 50))
def test_garbage_is_a_result(world, name, arguments, seed):
    state = world.start(seed)
    for called in (name, *world.functions):
        outcome = world.call(state, called, arguments)
        assert outcome.text
        if not isinstance(arguments, dict):
            assert outcome.error in ("invalid_arguments", "unknown_tool")
            assert outcome.state == state


def test_hostile_arguments_are_refused_in_a_sentence():
    bank = WORLDS["bank"]
    state = bank.start(1)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    hostile = (
        deep,
        {"account": "A" * 10**7},
        {"account": "\ud800"},
        {"account": float("nan")},
        {"account": {1, 2}},
        b"x",
    )
    for arguments in hostile:
        outcome = bank.call(state, "balance", arguments)
        assert outcome.error == "invalid_arguments"
        assert outcome.state == state
        assert len(outcome.text) < 300
    assert bank.call(state, "__class__", {}).error == "unknown_tool"
    assert bank.call(state, ["balance"], {}).error == "unknown_tool"


@pytest.mark.parametrize("world", WORLDS.values(), ids=lambda world: world.name)
def test_what_is_done_twice_is_done_once(world):
    """Whoever got no answer may try again: the second call changes nothing."""
    tried = 0
    for seed in range(25):
        draw, state = random.Random(seed), world.start(seed)
        for _ in range(20):
            name, arguments = plausible(draw, world, state)
            once = world.call(state, name, arguments)
            assert world.call(once.state, name, arguments).state == once.state
            tried += once.state != state
            state = once.state
    assert tried > 20


def test_money_is_conserved_over_a_thousand_transfers():
    bank, draw = WORLDS["bank"], random.Random(0)
    state = bank.start(3)
    total = sum(one["balance"] for one in json.loads(state)["accounts"].values())
    paid = 0
    for number in range(1000):
        source, target = (draw.choice(sorted(json.loads(state)["accounts"])) for _ in range(2))
        arguments = {"source": source, "target": target, "amount": draw.randint(1, 50), "reference": f"r{number}"}
        outcome = bank.call(state, "transfer", arguments)
        paid += outcome.error is None
        state = outcome.state
    assert paid > 100
    assert sum(one["balance"] for one in json.loads(state)["accounts"].values()) == total


@pytest.mark.parametrize("world", WORLDS.values(), ids=lambda world: world.name)
def test_seeds_decide(world):
    assert world.start(5) == world.start(5)
    assert len({world.start(seed) for seed in range(20)}) == 20


def test_a_broken_invariant_is_loud():
    lossy = Function(("burn",), "Lose a euro", {}, lambda data: data.update(money=data["money"] - 1), writes=True)
    world = World("w", ("w",), functions(lossy), lambda draw: {"money": 1}, {"none is lost": lambda d: d["money"] == 1})
    with pytest.raises(BrokenWorldError, match="none is lost"):
        world.call(world.start(0), "burn", {})


def test_faults_repeat_by_seed_and_never_come_twice_in_a_row():
    bank = WORLDS["bank"]
    state = bank.start(2)
    account = {"account": next(iter(json.loads(state)["accounts"]))}
    errors = set()
    for seed in range(30):
        faults = Faults(seed, transient=0.4, lost=0.3)
        made = [faults.call(bank, state, "balance", account, number) for number in range(30)]
        assert made == [faults.call(bank, state, "balance", account, number) for number in range(30)]
        codes = [outcome.error for outcome in made]
        assert not any(one and other for one, other in itertools.pairwise(codes))
        errors.update(codes)
    assert errors == {None, "unavailable", "timeout"}


def test_a_lost_answer_was_done_and_a_busy_service_did_nothing():
    bank = WORLDS["bank"]
    state = bank.start(2)
    one = next(key for key, found in json.loads(state)["accounts"].items() if not found["frozen"])
    lost = Faults(lost=1.0).call(bank, state, "freeze", {"account": one}, 0)
    assert lost.error == "timeout"
    assert json.loads(lost.state)["accounts"][one]["frozen"]
    assert Faults(transient=1.0).call(bank, state, "freeze", {"account": one}, 0).state == state
    denied = Faults(denied=frozenset({"freeze"}))
    assert denied.call(bank, state, "freeze", {"account": one}, 7).error == "permission_denied"
    assert denied.call(bank, state, "balance", {"account": one}, 7).error is None
