"""Held-out problems: three splits, none of which has a problem of another."""

from __future__ import annotations

import pytest

from training.job import JobError
from training.rl.config import FINITE, RlConfig
from training.rl.environments import Problem
from training.rl.environments.table import SETS
from training.rl.measuring import made


def config(**sets: int) -> RlConfig:
    return RlConfig.model_validate({"sets": sets, "critic": {}})


def test_what_is_practised_watched_and_reported_is_apart():
    train, development, test = made(config(math=50, instructions=20, safety=60, critique=8))
    assert [len(development), len(test)] == [5 + 2 + 6 + 1, 10 + 4 + 12 + 1]
    assert 130 < len(train) <= 138, "what is made twice is taken once"
    splits = [{problem.id for problem in each} for each in (train, development, test)]
    assert len(set.union(*splits)) == sum(map(len, splits))
    kinds = [{problem.environment.partition(".")[0] for problem in each} for each in (train, development, test)]
    assert kinds == [{"math", "instructions", "safety", "critique"}] * 3


@pytest.mark.parametrize("count", [1, 6, 24, 30, 400])
def test_a_set_with_fewer_problems_gives_each_split_its_share(count):
    """There are 30 functions."""
    there = min(FINITE["code"], len(SETS["code"](count + max(1, count // 10) + max(1, count // 5), "0")))
    train, development, test = made(config(code=count))
    assert len(train) + len(development) + len(test) == there
    assert len(train) >= max(1, 0.7 * there) or count == 1
    assert len(test) >= len(development) >= 1


def test_problems_that_fill_the_window_are_left_out_of_every_split(caplog):
    """One of them would end the run in the iteration that draws it."""
    whole = sum(map(len, made(config(instructions=20))))
    short = [each for split in made(config(instructions=20), is_short) for each in split]
    assert 0 < len(short) < whole
    assert all(map(is_short, short))
    assert f"{whole - len(short)} of {whole} problems of 'instructions' fill the model's window" in caplog.text
    with pytest.raises(JobError, match=rf"'instructions', of which 0 of {whole} problems leave room"):
        made(config(instructions=20), lambda problem: False)


def is_short(problem: Problem) -> bool:
    return len(str(problem.messages[0]["content"])) < 120


def test_a_set_has_as_many_problems_as_are_said_of_it():
    assert {name: len(SETS[name](1000, "0")) for name in FINITE} == FINITE


def test_a_set_is_practised_where_it_or_a_part_of_it_has_a_share():
    shares = {"math.roots": 1.0, "instructions": 0.0, "code": 1.0}
    given = {"sets": {"math": 200, "instructions": 20, "code": 200}}
    assert RlConfig.model_validate(given | {"environments": shares}).practised == {"math": 200, "code": 30}
    assert RlConfig.model_validate(given).practised == {"math": 200, "instructions": 20, "code": 30}
