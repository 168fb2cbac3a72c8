"""Prioritised sampling: harder problems come more often, and nothing else decides."""

from __future__ import annotations

from collections import Counter

import pytest

from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum
from training.rl.environments import Problem
from training.rl.episodes import Episode
from training.rl.practice import Practice
from training.rl.rollout import Group

EASY = [Problem(f"e{place}", "easy", "exact", (), "1") for place in range(50)]
HARD = [Problem(f"h{place}", "hard", "exact", (), "1") for place in range(50)]


def draws(curriculum: Curriculum, rounds: int = 60, count: int = 10) -> Counter[str]:
    return Counter(
        problem.environment for number in range(rounds) for problem in curriculum.draw(count, f"seed/{number}")
    )


def test_what_is_solved_is_drawn_less_in_proportion_to_its_failures():
    curriculum = Curriculum(EASY + HARD, {})
    for problem in EASY:
        curriculum.record(problem, 9, 10)
    for problem in HARD:
        curriculum.record(problem, 1, 10)
    drawn = draws(curriculum)
    # weights 0.1 and 0.9 at one try each; drawing ten of a hundred without replacement evens out a little
    assert 5 < drawn["hard"] / drawn["easy"] < 11


def test_a_problem_is_drawn_once_an_iteration():
    problems = Curriculum(EASY, {}).draw(50, "seed")
    assert len({problem.id for problem in problems}) == 50


def test_draws_depend_on_the_seed_and_the_record_alone():
    one, other = (Curriculum(EASY + HARD, {}, {"e3": [1, 8]}) for _ in range(2))
    assert one.draw(20, "a") == other.draw(20, "a")
    assert one.draw(20, "a") != one.draw(20, "b")


def test_shares_decide_between_environments():
    curriculum = Curriculum(EASY + HARD[:10], {"easy": 1.0, "hard": 1.0})
    drawn = draws(curriculum, rounds=300, count=1)
    assert 0.7 < drawn["hard"] / drawn["easy"] < 1.4
    assert draws(Curriculum(EASY + HARD, {"hard": 1.0})) == {"hard": 600}


def test_an_unknown_environment_and_too_many_prompts_are_refused():
    with pytest.raises(ValueError, match="'gone'"):
        Curriculum(EASY, {"gone": 1.0})
    with pytest.raises(ValueError, match=r"rl\.prompts"):
        Curriculum(EASY, {}).draw(51, "seed")


def test_what_was_tried_is_left_out_of_a_refill():
    curriculum = Curriculum(EASY, {})
    first = {problem.id for problem in curriculum.draw(45, "seed")}
    again = curriculum.draw(10, "refill", first)
    assert len(again) == 5
    assert first.isdisjoint(problem.id for problem in again)


class Dull:
    """Plays what it is given: every response is wrong."""

    version = 3

    def roll_out(self, work):
        groups = [Group(one.problem, [Episode("s", ended=True)] * 2, [0.0] * 2) for one in work]
        return groups, []


def test_a_refill_of_few_problems_takes_those_that_are_left():
    """What is resumed makes an iteration's groups more than there are problems."""
    practice = Practice(RlConfig(prompts=3, refill=8), Curriculum(EASY[:4], {}), None)
    paused = [{"problem": place, "episodes": [], "before": []} for place in range(4)]
    groups, left = practice.iterate(Dull(), paused)
    assert (len(groups), left) == (7, [])


def test_replies_that_are_compared_are_no_successes():
    """1.0 says that a rule lets them be compared: as successes they would keep their prompts from being drawn."""
    open_ended = [Problem(f"o{place}", "critique", "critique", (), {}) for place in range(3)]
    curriculum = Curriculum([*open_ended, *HARD], {})
    practice = Practice(RlConfig(prompts=53), curriculum, None)
    practice.iterate(Dull(), [])
    assert curriculum.seen.keys() == {problem.id for problem in HARD}
