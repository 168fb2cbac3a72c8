"""Tasks of the library `verifiers` in the library itself.

They run with OPENK2_VERIFIERS_PYTHON, an interpreter that has verifiers 0.4.
"""

from __future__ import annotations

import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from model.chat import Reply, ToolCall
from training.rl.config import LibraryConfig, RlConfig
from training.rl.environments import EnvironmentUnavailable, Problem, Services, verifiers
from training.rl.environments import verifiers_process as process
from training.rl.environments.table import environment
from training.rl.measuring import made

SUMS, SHELVES = (Path(__file__).with_name(name) for name in ("sums.py", "shelves.py"))
PYTHON = os.environ.get("OPENK2_VERIFIERS_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="OPENK2_VERIFIERS_PYTHON names no interpreter with verifiers 0.4")


def real(**changes: Any) -> LibraryConfig:
    return LibraryConfig(**{"python": PYTHON, "module": str(SUMS), "gold": "It is \\boxed{{answer}}."} | changes)


def test_tasks_of_the_library_obey_the_law_and_the_others_are_left_out(caplog):
    config = real()
    with caplog.at_level(logging.WARNING):
        problems = verifiers.problems(100, "a", config)
    assert len(problems) == 36, "one has no answer, three are no turn of words"
    assert "4 of 40" in caplog.text
    assert problems == verifiers.problems(100, "a", config)
    assert {problem.messages[0]["content"] for problem in problems} == {"You add."}
    train, development, test = made(
        RlConfig.model_validate({"sets": {"verifiers": 20}, "library": config.model_dump()})
    )
    assert [len(train), len(development), len(test)] == [20, 2, 4]
    with Services(library=config) as services:

        def right(problem: Problem) -> list[float]:
            judge = environment(problem, services)
            replies = (judge.gold(problem), *judge.corrupted(problem), [Reply("")])
            return [judge.play(problem, one).reward for one in replies]

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(right, problems)) == [[1.0, 0.0, 0.0, 0.0, 0.0]] * 36


def shelves(kind: str, **changes: Any) -> LibraryConfig:
    return real(module=str(SHELVES), gold="{answer}", arguments={"kind": kind}, **changes)


@pytest.mark.parametrize(("kind", "calls"), [("counted", ""), ("moved", "steps")])
def test_tasks_of_the_library_with_tools_obey_the_law(kind, calls):
    config = shelves(kind, calls=calls)
    problems = verifiers.problems(100, "a", config)
    assert len(problems) == 12
    names = [tool["function"]["name"] for tool in problems[0].tools]
    assert sorted(names) == ["shelf_count", "shelf_move", "shelf_read_sign"]
    with Services(library=config) as services:
        for problem in problems[:3]:
            judge = environment(problem, services)
            assert judge.play(problem, judge.gold(problem)).reward == 1.0
            assert {judge.play(problem, one).reward for one in judge.corrupted(problem)} == {0.0}


def test_tools_of_the_library_share_a_state_within_an_episode_and_none_beyond_it():
    config = shelves("moved", calls="steps")
    problem = next(one for one in verifiers.problems(100, "a", config) if one.answer["row"] == 5)
    count = {"name": "shelf_count", "arguments": {"shelf": "left"}}
    move = {"name": "shelf_move", "arguments": {"number": 2}}
    with Services(library=config) as services:
        judge = environment(problem, services)

        def told(*calls: dict[str, Any]) -> list[str]:
            judge.reset(problem)
            made = [Reply("", (ToolCall(**call, index=place),)) for place, call in enumerate(calls)]
            return [judge.step(reply).messages[0]["content"] for reply in made]

        assert told(count, move, count) == ["7", "moved", "5"]
        assert told(count, move, move, count) == ["7", "moved", "moved", "3"]
        assert "only 7 are there" in told({"name": "shelf_move", "arguments": {"number": 8}})[0]
        assert "number" in told({"name": "shelf_move", "arguments": {"number": "many"}})[0]
        assert "there is no tool 'shelf_burn'" in told({"name": "shelf_burn", "arguments": {}})[0]
        assert told({"name": "shelf_read_sign", "arguments": {}}) == ["7 books"], "setup_task saw the task"
        assert services.library._process.alive


@pytest.mark.parametrize(
    ("kind", "calls", "said"),
    [
        ("counted", "steps", "a wrong reply scores 1: it is paid"),
        ("moved", "", "the gold reply scores 0: its reward is 0"),
        ("elsewhere", "", "its tools are elsewhere"),
        ("contained", "", "its tools need a container"),
        ("stateless", "", "its tools keep a state that it does not have"),
        ("broken", "", "RuntimeError: no shelf"),
    ],
)
def test_why_a_task_with_tools_is_left_out(kind, calls, said):
    with pytest.raises(EnvironmentUnavailable, match=f"12 of 12 tasks .*{said}"):
        verifiers.problems(100, "a", shelves(kind, calls=calls))


def test_why_a_task_of_the_library_is_left_out():
    with Services(library=real()) as services:
        reasons = {row: services.library.row(row).get("refused") for row in (4, 5, 6, 7)}
    assert reasons == {
        4: None,
        5: "it needs a container",
        6: "its reward ran needs a runtime",
        7: "it prepares a runtime",
    }


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("paid", "a wrong reply scores 1: it is paid"),
        ("listed", "a wrong reply scores 1: it is paid"),
        ("partial", "36 of them .* the gold reply scores 0: its reward is 0.75"),
        ("raises", "the gold reply scores 0: its reward raised TaskError: .*a reward that cannot be"),
        ("nan", "the reward of task .* is nan"),
        ("late", "took more than 1 s"),
        ("ends", "or ended its process"),
    ],
)
def test_rewards_of_the_library_that_break_the_law_are_refused(kind, said):
    with pytest.raises(EnvironmentUnavailable, match=said):
        verifiers.problems(9, "a", real(arguments={"kind": kind}, seconds=1.0))


def test_what_a_reward_prints_is_no_answer_and_a_set_may_have_no_end():
    endless = real(arguments={"kind": "noisy", "endless": True})
    assert [problem.answer["row"] for problem in verifiers.problems(6, "a", endless)] == [0, 1, 2, 3, 8, 9]


def test_a_worker_that_is_stopped_is_replaced_and_a_set_that_changes_is_refused(tmp_path):
    moved = tmp_path / "sums.py"
    moved.write_text(SUMS.read_text())
    config = real(module=str(moved), seconds=5.0)
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services:
        judge = environment(problem, services)
        judge.validate(problem)
        worker = services.library._process
        assert worker is not None
        os.kill(worker.pid, signal.SIGSTOP)
        assert judge.play(problem, judge.gold(problem)).reason == process.FAILED
        assert not worker.alive
        judge.validate(problem)
        os.kill(services.library._process.pid, signal.SIGKILL)
        moved.write_text(SUMS.read_text().replace("Give it", "Write it"))
        services.library._process.kill()
        with pytest.raises(EnvironmentUnavailable, match="another than when the set was read first"):
            judge.play(problem, judge.gold(problem))


def test_a_set_that_is_not_there_or_is_none_is_told():
    with pytest.raises(EnvironmentUnavailable, match="'nowhere' not found"):
        verifiers.problems(9, "a", real(module="nowhere"))
    with pytest.raises(EnvironmentUnavailable, match=r"extra_forbidden|Extra inputs"):
        verifiers.problems(9, "a", real(arguments={"unknown": 1}))
