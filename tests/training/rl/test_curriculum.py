"""Prioritised sampling: harder problems come more often, and nothing else decides."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.job import JobError
from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum, key
from training.rl.environments import Problem
from training.rl.episodes import Episode
from training.rl.practice import Practice
from training.rl.rollout import Ended, Group, Open

EASY = [Problem(f"e{place}", "easy", "exact", (), "1") for place in range(50)]
HARD = [Problem(f"h{place}", "hard", "exact", (), "1") for place in range(50)]


def draws(curriculum: Curriculum, rounds: int = 60, count: int = 10) -> Counter[str]:
    return Counter(
        problem.environment for number in range(rounds) for problem in curriculum.draw(count, f"seed/{number}")
    )


def test_what_is_solved_is_drawn_less_in_proportion_to_its_failures():
    curriculum = Curriculum(EASY, {})
    for place, problem in enumerate(EASY):
        curriculum.record(problem, 90 if place < 25 else 10, 100)
    counted = Counter(problem.id for number in range(60) for problem in curriculum.draw(5, f"seed/{number}"))
    solved = sum(counted[problem.id] for problem in EASY[:25])
    # weights near 0.1 and 0.9; drawing five of fifty without replacement evens out a little
    assert 5 < (300 - solved) / solved < 11


def test_an_environment_that_is_never_right_takes_no_other_ones_prompts():
    """Each has its share, whatever its success rate."""
    curriculum = Curriculum(EASY + HARD, {"easy": 1.0, "hard": 1.0})
    for easy, hard in zip(EASY, HARD, strict=True):
        curriculum.record(easy, 95, 100)
        curriculum.record(hard, 0, 100)
    assert draws(curriculum) == {"easy": 300, "hard": 300}


def test_a_problem_is_drawn_once_an_iteration():
    problems = Curriculum(EASY, {}).draw(50, "seed")
    assert len({problem.id for problem in problems}) == 50


def test_draws_depend_on_the_seed_and_the_record_alone():
    one, other = (Curriculum(EASY + HARD, {}, {"easy/e3": [1, 8]}) for _ in range(2))
    assert one.draw(20, "a") == other.draw(20, "a")
    assert one.draw(20, "a") != one.draw(20, "b")


def test_shares_decide_between_environments():
    curriculum = Curriculum(EASY + HARD[:10], {"easy": 1.0, "hard": 1.0})
    drawn = draws(curriculum, rounds=300, count=1)
    assert 0.7 < drawn["hard"] / drawn["easy"] < 1.4
    assert draws(Curriculum(EASY + HARD, {"hard": 1.0})) == {"hard": 600}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 12), st.floats(0.05, 9)), min_size=1),
    st.data(),
)
def test_quotas_are_the_shares_to_within_one(families, data):
    """While no environment is exhausted; and where some are, the number is right all the same."""
    problems = [
        Problem(f"{name}{place}", name, "exact", (), "1")
        for name, (size, _) in families.items()
        for place in range(size)
    ]
    shares = {name: share for name, (_, share) in families.items()}
    count = data.draw(st.integers(1, len(problems)))
    drawn = Curriculum(problems, shares).draw(count, "seed")
    assert len({problem.id for problem in drawn}) == count
    quotas = {name: count * share / sum(shares.values()) for name, share in shares.items()}
    if all(quota + 1 <= families[name][0] for name, quota in quotas.items()):
        found = Counter(problem.environment for problem in drawn)
        assert all(abs(found[name] - quota) < 1 + 1e-9 for name, quota in quotas.items())


def test_a_paused_prompt_is_found_again_among_its_phrasings():
    said = [Problem("same", "easy", "exact", ({"role": "user", "content": text},), "1") for text in ("a", "b")]
    curriculum = Curriculum([*EASY, *said, *said], {})
    assert [curriculum.place(problem) for problem in (EASY[7], *copy.deepcopy(said))] == [7, 50, 51]


def test_environments_that_share_a_problem_have_their_own_rates():
    """A call and no call of one task have one id, and so have the phrasings of a problem: these have one record."""
    call, none = (Problem("task", name, "exact", (), "1") for name in ("call", "none"))
    said = [Problem("task", "call", "exact", ({"role": "user", "content": text},), "1") for text in ("a", "b")]
    curriculum = Curriculum([*said, Problem("other", "call", "exact", (), "1"), none], {})
    curriculum.record(call, 8, 8)
    curriculum.record(curriculum.problems[2], 0, 8)
    curriculum.record(none, 2, 8)
    assert curriculum.rates() == {"call": 0.5, "none": 0.25}
    assert curriculum.weights() == pytest.approx([1 - 10 / 12, 1 - 10 / 12, 1 - 2 / 12, 0.75])
    assert {each.environment for each in curriculum.draw(4, "seed", {key(call), "call/other"})} == {"none"}


def test_an_unknown_environment_and_too_many_prompts_are_refused():
    with pytest.raises(JobError, match="'gone'"):
        Curriculum(EASY, {"gone": 1.0})
    with pytest.raises(JobError, match=r"rl\.prompts = 51: .* leave 50 problems"):
        Practice(RlConfig(prompts=51), Curriculum(EASY, {}), None)


def test_what_was_tried_is_left_out_of_a_refill():
    curriculum = Curriculum(EASY, {})
    first = set(map(key, curriculum.draw(45, "seed")))
    again = curriculum.draw(10, "refill", first)
    assert len(again) == 5
    assert first.isdisjoint(map(key, again))


class Dull:
    """Plays what it is given: every response is wrong."""

    version = 3

    def roll_out(self, work):
        groups = [Group(one.problem, [Episode("s", ended=True)] * 2, [0.0] * 2) for one in work]
        return groups, []


class Half(Dull):
    """The easy ones are right half of the time, the hard ones never."""

    def roll_out(self, work):
        groups, left = super().roll_out(work)
        for group in groups:
            group.rewards[0] = float(group.problem.environment == "easy")
        return groups, left


def test_what_replaces_a_dull_group_is_of_an_environment_that_was_not_dull():
    config = RlConfig(prompts=20, responses=2, refill=8)
    practice = Practice(config, Curriculum(EASY + HARD, {"easy": 1.0, "hard": 1.0}), None)
    groups, drawn, _ = practice.iterate(Half(), [])
    assert Counter(group.problem.environment for group in groups) == {"easy": 18, "hard": 2}
    assert Counter(group.problem.environment for group in drawn) == {"easy": 18, "hard": 10}
    assert len({key(group.problem) for group in drawn}) == 28, "what was replaced was drawn as well, once"


class Slow(Dull):
    """One of the easy ones' two responses ends in an iteration; of the hard ones both, but none of what is refilled."""

    def __init__(self) -> None:
        self.refilled = 0

    def roll_out(self, work):
        groups, left = [], []
        for one in work:
            easy, first = one.problem.environment == "easy", "refill" not in one.episodes[0].seed
            self.refilled += not first
            ending = one.episodes[:1] if easy else one.episodes if first else []
            if ending:
                rewards = [0.0] * len(ending)
                groups.append(Group(one.problem, ending, rewards, tuple(0.0 for _ in one.before), one.before))
            if rest := one.episodes[len(ending) :]:
                before = tuple(Ended(0.0, True, 1, []) for _ in ending)
                left.append(Open(one.problem, rest, (*one.before, *before)))
        return groups, left


def test_a_prompt_is_not_replaced_before_all_its_responses_have_ended():
    """And one whose replacements are all paused is told of as it is: nothing stands in its place."""
    practice = Practice(RlConfig(prompts=10, responses=2, refill=8), Curriculum(EASY, {}), None)
    player = Slow()
    groups, _, left = practice.iterate(player, [])
    assert (len(groups), len(left), player.refilled) == (10, 10, 0)
    groups, _, left = practice.iterate(player, left)
    assert player.refilled == 8, "those that were resumed have all ended, and all were wrong"
    assert len(groups) == 20
    hard, player = Practice(RlConfig(prompts=10, responses=2, refill=8), Curriculum(HARD, {}), None), Slow()
    groups, _, left = hard.iterate(player, [])
    assert (len(groups), len(left), player.refilled) == (10, 8, 8)


def test_a_refill_of_few_problems_takes_those_that_are_left():
    """What is resumed makes an iteration's groups more than there are problems."""
    practice = Practice(RlConfig(prompts=3, responses=2, refill=8), Curriculum(EASY[:4], {}), None)
    paused = [{"problem": place, "episodes": [], "before": []} for place in range(4)]
    groups, _, left = practice.iterate(Dull(), paused)
    assert (len(groups), left) == (7, [])


def test_replies_that_are_compared_are_no_successes():
    """1.0 says that a rule lets them be compared: as successes they would keep their prompts from being drawn."""
    open_ended = [Problem(f"o{place}", "critique", "critique", (), {}) for place in range(3)]
    curriculum = Curriculum([*open_ended, *HARD], {})
    practice = Practice(RlConfig(prompts=53), curriculum, None)
    practice.iterate(Dull(), [])
    assert curriculum.seen.keys() == {key(problem) for problem in HARD}
