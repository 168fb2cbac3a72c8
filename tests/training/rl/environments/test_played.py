"""Environments of the library `verifiers` as they were before 0.4, which play their tasks themselves.

With OPENK2_VERIFIERS_BEFORE_PYTHON, an interpreter that has verifiers 0.1.14 to 0.3, they are run in the library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from model.chat import Reply, ToolCall
from tests.posttraining import World, go, summary
from training.rl.config import LibraryConfig
from training.rl.environments import EnvironmentUnavailable, Services, verifiers
from training.rl.environments.table import environment
from training.rl.train import Reinforcement
from training.trainer import DONE

PYTHON = os.environ.get("OPENK2_VERIFIERS_BEFORE_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="OPENK2_VERIFIERS_BEFORE_PYTHON names no interpreter with verifiers")


def guesses(kind: str = "single", full: float = 1.0, **changes: Any) -> LibraryConfig:
    module = Path(__file__).with_name("guesses.py")
    return LibraryConfig(python=PYTHON, module=str(module), arguments={"kind": kind}, full=full, **changes)


def test_an_environment_of_one_reply_obeys_the_law():
    config = guesses(full=1.2)
    problems = verifiers.problems(20, "a", config)
    assert len(problems) == 10
    assert problems == verifiers.problems(20, "a", config)
    assert [one["role"] for one in problems[0].messages] == ["system", "user"]
    with Services(library=config) as services:
        for problem in problems:
            judge = environment(problem, services)
            judge.validate(problem)
            assert {judge.play(problem, one).reward for one in judge.corrupted(problem)} == {0.0}
            assert judge.play(problem, [Reply("x" * 20)]).reason == "its reward is 0"


def test_its_tools_answer_and_calls_that_are_due_are_part_of_the_law():
    config = guesses("tools", calls="steps")
    problem = next(one for one in verifiers.problems(10, "a", config) if one.answer["row"] == 3)
    assert [tool["function"]["name"] for tool in problem.tools] == ["spell"]
    with Services(library=config) as services:
        judge = environment(problem, services)
        assert judge.play(problem, judge.gold(problem)).reward == 1.0
        assert judge.play(problem, [Reply("three")]).reason == "its reward is 0.5"
        judge.reset(problem)
        both = Reply("", (ToolCall("spell", {"number": 3}, 0), ToolCall("burn", {}, 1)))
        said = judge.step(both).messages
        assert [(one["tool_call_id"], one["content"]) for one in said] == [
            ("functions.spell:0", "three"),
            ("functions.burn:1", "'burn'"),
        ]
        assert judge.step(Reply("three")).reward == 1.0


def test_its_user_answers_the_same_when_an_episode_is_played_again():
    config = guesses("guesses")
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services:
        judge = environment(problem, services)

        def told(*replies: str) -> list[str]:
            judge.reset(problem)
            return [judge.step(Reply(reply)).messages[0]["content"] for reply in replies]

        first = told("no", "no")
        assert first == told("no", "no")
        assert first[0].startswith("Colder by")
        assert first[0] != first[1]
        assert judge.step(judge.gold(problem)[0]).reward == 1.0
        assert judge.play(problem, [Reply("no")] * 4).reason == "its reward is 0", "its own limit of turns"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("rewriting", "it changes what was said before"),
        ("groups", "its rewards compare the replies of a group"),
        ("raises", "10 of 10 .* the gold reply scores 0: its reward is 0"),
        ("unknown", "no rows of unknown"),
    ],
)
def test_why_an_environment_is_refused(kind, said):
    with pytest.raises(EnvironmentUnavailable, match=said):
        verifiers.problems(9, "a", guesses(kind))


def test_rl_practises_it(tmp_path):
    world, config = World(tmp_path), guesses("guesses")
    given = {"sets": {"verifiers": 8}, "library": config.model_dump(mode="json"), "environments": {"verifiers": 1}}
    short = {"iterations": 2, "prompts": 2, "responses": 2, "evaluate_prompts": 4, "evaluate_samples": 1}
    job = world.rl("rl", world.base, **given, **short)
    assert go(Reinforcement, job) == DONE
    assert summary(job.parent)["after"]["by_environment"]["verifiers"]["problems"] > 0
