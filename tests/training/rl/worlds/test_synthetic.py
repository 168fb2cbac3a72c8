"""Synthetic domains as worlds: for every operation there is a task, and the law of worlds holds in it."""

from __future__ import annotations

import json

import pytest

from tasks.agentic.synthesis.evolve import domains, tools
from tests.training.rl.worlds.spoiled import SPOILED, spoil
from training.rl.environments import Services
from training.rl.environments.table import environment
from training.rl.environments.world import problem_of
from training.rl.worlds.filters import judge
from training.rl.worlds.policies import WRONG, play
from training.rl.worlds.synthetic.bound import Bound
from training.rl.worlds.synthetic.effects import merge
from training.rl.worlds.synthetic.operations import OPERATIONS
from training.rl.worlds.synthetic.requests import WISHES, setting_of
from training.rl.worlds.synthetic.service import function_of
from training.rl.worlds.synthetic.spec import DomainSpec, EntitySpec, FieldSpec
from training.rl.worlds.task import Kind, draw_task
from training.rl.worlds.world import RefusalError

HARD = Kind(follow_ups=0.3, forgetful=0.6, faulty=0.5, denied=0.15)


@pytest.fixture(scope="module")
def clinic():
    domain = next(domain for domain in domains(0) if domain.name == "veterinary_practice")
    specs = {spec.name: spec for spec in tools(domain, 0, 34)}
    for spec in specs.values():
        function_of(domain, spec)
    return domain, tuple(specs.values())


@pytest.fixture(scope="module")
def setting(clinic):
    return setting_of(*clinic)


def test_people_ask_for_every_operation_but_one(setting):
    asked = {family.name.split(".")[-1] for family in setting.families.values()}
    assert asked <= WISHES.keys() == OPERATIONS.keys() - {"import"}
    assert len(asked) >= 25
    assert any(name.startswith("each ") for name in setting.families)


def test_the_right_one_scores_and_the_wrong_ones_do_not(setting):
    calls = []
    for number, family in enumerate(setting.families):
        task = draw_task(f"law/{number}", "test", HARD, family, setting)
        gold = play(task)
        assert judge(gold).score == 1.0, (family, judge(gold), gold.messages)
        calls.append(sum(len(message.get("tool_calls", ())) for message in gold.messages))
        for policy in WRONG:
            wrong = play(task, policy, number)
            assert wrong is None or judge(wrong).score == 0.0, (family, policy, wrong.messages)
        for way in SPOILED:
            spoiled = spoil(task, way)
            assert spoiled is None or judge(spoiled).score == 0.0, (family, way, spoiled.messages)
    assert min(calls) == 1
    assert max(calls) >= 4


def test_a_call_whose_answer_was_lost_is_made_twice_only_where_that_does_it_once(setting):
    world = next(iter(setting.worlds.values()))
    for number, family in enumerate(setting.families):
        task = draw_task(f"lost/{number}", "test", Kind(faulty=1, denied=0, follow_ups=0), family, setting)
        needed = [call[0] for call in task.requests[0].plan]
        assert task.faults.lost == 0 or all(world.functions[name].repeatable for name in needed)


@pytest.mark.parametrize(("one", "other", "said"), [(-20, -15, "-35; at least -30"), (20, 15, "35; at most 30")])
def test_what_is_merged_stays_within_its_field(one, other, said):
    """Degrees go below nought, and two of them below what a field may have."""
    degrees = FieldSpec(name="degrees", kind="integer", low=-30, high=30)
    room = EntitySpec(name="room", fields=(degrees,), life={"open": ("shut",), "shut": ()})
    domain = DomainSpec(name="cold", category="storage", title="cold store", entities=(room,))
    bound = Bound(domain, room, (degrees,))
    data = {"next": 100, "records": {"room": {}}}
    keep, drop, warm = (bound.add(data, {"degrees": value}) for value in (one, other, -one))
    with pytest.raises(RefusalError, match=f"would be {said} is allowed"):
        merge(bound, data, keep, drop)
    assert merge(bound, data, keep, warm)["degrees"] == 0


def test_reinforcement_learning_draws_the_task_again_from_its_problem_alone(clinic, setting):
    domain, specs = clinic
    task = draw_task("again", "train", HARD, setting=setting)
    record = {
        "domain": domain.model_dump(mode="json", exclude_defaults=True),
        "tools": [spec.model_dump(mode="json", exclude_defaults=True) for spec in specs],
    }
    problem = problem_of(task, "again", HARD, "world_synthetic", json.loads(json.dumps(record)))
    with Services() as services:
        found = environment(problem, services)
        found.validate(problem)
        assert found.reset(problem).tools == problem.tools == tuple(task.tools)
        for wrong in found.corrupted(problem):
            assert found.play(problem, wrong).reward == 0.0
