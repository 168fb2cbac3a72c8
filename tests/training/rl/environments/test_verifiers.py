"""Tasks of the library `verifiers`: the law, what its process may say, and a run of RL on them.

The library is no dependency (331 MB, other pins than ours): a process that answers as ours stands in for it. Tests of
the library itself are in test_library.py, and of its releases before 0.4 in test_played.py.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from model.chat import Chat, Reply, ToolCall
from tests.posttraining import World, byte_tokenizer, go, summary
from training.rl.config import LibraryConfig, RlConfig
from training.rl.environments import EnvironmentUnavailable, Services, verifiers
from training.rl.environments import verifiers_process as process
from training.rl.environments.table import environment
from training.rl.train import Reinforcement
from training.trainer import DONE, FAILED

PRETENDED = """#!{python}
import json, sys, time
first = json.loads(sys.stdin.readline())
say = lambda answer: print(json.dumps(answer), flush=True)
say({{"count": 40}})
for line in sys.stdin:
    asked = json.loads(line)
    row, turns = asked["row"], asked.get("turns")
    reply = turns and turns[-1]["content"]
    {hostile}
    if reply is None:
        say({{"messages": [{{"role": "user", "content": f"{{row}}+{{row}}="}}], "key": f"key-{{row}}",
             "answer": None if row == 3 else str(2 * row), **{tools}}})
    elif turns[-1]["calls"]:
        calls = enumerate(turns[-1]["calls"])
        say({{"said": [{{"text": str(2 * call["arguments"]["n"]), "call": place}} for place, call in calls]}})
    else:
        say({{"reward": float(reply == f"={{2 * row}}")}})
"""
"""Doubles numbers; the third is not said."""
HANGS = "time.sleep(600)"


def pretended(folder: Path, hostile: str = "pass", tools: str = "{}", **changes: Any) -> LibraryConfig:
    """A configuration whose interpreter answers for the library; `hostile` runs before each of its answers. `tools`:
    what every task has besides."""
    script = folder / "python"
    script.write_text(PRETENDED.format(python=sys.executable, hostile=hostile, tools=tools))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return LibraryConfig(**{"python": str(script), "module": "doubles", "gold": "={answer}"} | changes)


def test_tasks_become_problems_and_what_has_no_answer_is_left_out(tmp_path, caplog):
    config = pretended(tmp_path)
    with caplog.at_level(logging.WARNING):
        problems = verifiers.problems(100, "a", config)
    assert len(problems) == 39
    assert "1 of 40 tasks of doubles are left out, 1 of them (task 3 is the first) because its 'answer'" in caplog.text
    assert verifiers.problems(100, "a", config) == problems != verifiers.problems(100, "b", config)
    assert verifiers.problems(5, "a", config) == problems[:5]
    with Services(library=config) as services:
        for problem in problems[:3]:
            judge = environment(problem, services)
            judge.validate(problem)
            assert [judge.play(problem, replies).reward for replies in judge.corrupted(problem)] == [0.0] * 3
            assert judge.play(problem, [Reply("=1")]).reason == "its reward is 0"
            call = Reply("", (ToolCall("add", {}, 0),))
            assert judge.play(problem, [call]).reason == "a call where an answer is asked for"
            assert judge.play(problem, [Reply("\n" * 30_000)]).reason == "no answer but a long text"


@pytest.mark.parametrize("first", [{"role": "developer", "content": "x"}, {"role": "system", "content": "\ud83d"}, "x"])
def test_a_prompt_that_cannot_be_rendered_is_left_out_before_a_run_draws_it(tmp_path, caplog, first):
    """Those of every task but one have it."""
    tools = f"""{{"messages": [*({first!r},) * (row != 5), {{"role": "user", "content": str(row)}}]}}"""
    with caplog.at_level(logging.WARNING):
        (problem,) = verifiers.problems(40, "a", pretended(tmp_path, tools=tools))
    assert "because its prompt cannot be written: " in caplog.text
    assert Chat(byte_tokenizer()).prompt(problem.messages, problem.tools)


DOUBLE = """{"tools": [{"name": "double", "description": "", "parameters": {"type": "object"}}],
             "calls": [{"name": "double", "arguments": {"n": row}}]}"""


def calling(*numbers: int, first: int = 0) -> Reply:
    return Reply("", tuple(ToolCall("double", {"n": n}, first + place) for place, n in enumerate(numbers)))


def test_tools_of_a_task_answer_until_a_reply_without_calls_is_judged(tmp_path):
    config = pretended(tmp_path, tools=DOUBLE, turns=3)
    problem = next(one for one in verifiers.problems(40, "a", config) if one.answer["row"] == 7)
    assert [tool["function"]["name"] for tool in problem.tools] == ["double"]
    assert problem.answer["calls"] == [], "rl.library.calls names none"
    with Services(library=config) as services:
        judge = environment(problem, services)
        judge.reset(problem)
        outcome = judge.step(calling(7, 8))
        assert [(one["content"], one["tool_call_id"]) for one in outcome.messages] == [
            ("14", "functions.double:0"),
            ("16", "functions.double:1"),
        ]
        assert judge.step(calling(9, first=2)).messages[0]["content"] == "18"
        assert judge.step(Reply("=14")).reward == 1.0
        assert judge.play(problem, [calling(7), Reply("=15")]).reason == "its reward is 0"
        assert judge.play(problem, [calling(7), calling(7)]).reason == "a call's id does not count on"
        three = [calling(1, first=place) for place in range(3)]
        assert judge.play(problem, three).reason == "not at an end after 3 turns"
        long = Reply("", (ToolCall("double", {"n": "x" * 50_000}, 0),))
        assert judge.play(problem, [long]).reason == "no answer but a long text"


def test_calls_that_are_due_are_part_of_the_law(tmp_path):
    unpaid = "if reply is not None and not turns[-1]['calls'] and len(turns) == 1: say({'reward': 0.0}); continue"
    config = pretended(tmp_path, unpaid, DOUBLE, calls="steps")
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services:
        judge = environment(problem, services)
        assert judge.play(problem, judge.gold(problem)).reward == 1.0
        wrong = judge.corrupted(problem)
        assert [judge.play(problem, replies).reward for replies in wrong] == [0.0] * 5
    with pytest.raises(EnvironmentUnavailable, match=r"40 of 40 .*, 39 of them .* a wrong reply scores 1: it is paid"):
        verifiers.problems(1, "a", pretended(tmp_path, "pass", DOUBLE, calls="steps"))
    for calls in ("'double'", "[{}]", "[{'name': 'double', 'arguments': '7'}]"):
        tools = f"{{'tools': [], 'calls': {calls}}}"
        with pytest.raises(EnvironmentUnavailable, match=r"its 'steps' \(rl.library.calls\) is no list of calls"):
            verifiers.problems(1, "a", pretended(tmp_path, "pass", tools, calls="steps"))


@pytest.mark.parametrize(
    "said",
    [
        *("[]", "[1]", "'14'", "None", "[{'text': '2'}]", "[{'text': '2', 'call': 1}]", "[{'text': 2, 'call': 0}]"),
        "[{'text': '2', 'call': 0}, {'text': '2', 'call': 0}]",
    ],
)
def test_tools_that_say_no_text_for_each_call_end_in_one_sentence(tmp_path, said):
    config = pretended(tmp_path, f"if turns and turns[-1]['calls']: say({{'said': {said}}}); continue", DOUBLE)
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services, pytest.raises(EnvironmentUnavailable, match="no text for each call"):
        environment(problem, services).play(problem, [calling(1)])


def test_a_user_may_answer_a_reply_and_more_than_1_may_be_full(tmp_path):
    again = "say({'said': [{'text': 'Again.'}]} if len(turns) < 3 else {'reward': 1.2})"
    hostile = f"if turns and reply != '=' + str(2 * row):\n        {again}\n        continue"
    config = pretended(tmp_path, hostile, turns=3)
    with pytest.raises(EnvironmentUnavailable, match="40 of 40"):
        verifiers.problems(1, "a", config.model_copy(update={"full": 1.2}))
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services:
        judge = environment(problem, services)
        assert judge.play(problem, [Reply("=1")]).reason == "it does not come to an end"
        judge.reset(problem)
        assert judge.step(Reply("=1")).messages == ({"role": "user", "content": "Again."},)
        assert judge.step(Reply("=1")).messages == ({"role": "user", "content": "Again."},)
        assert judge.step(Reply("=1")).reward == 1.0, "1.2 is more than full"
        judge.reset(problem)
        judge.step(Reply("=1"))
        assert judge.step(judge.gold(problem)[0]).reward == 1.0


def test_a_tool_that_hangs_makes_a_reply_wrong(tmp_path):
    config = pretended(tmp_path, f"turns and turns[-1]['calls'] and {HANGS}", DOUBLE, seconds=3.0)
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services:
        judge = environment(problem, services)
        assert judge.play(problem, [calling(1)]).reason == process.FAILED
        assert judge.play(problem, judge.gold(problem)).reward == 1.0


def test_a_field_and_a_reply_are_the_sets_own(tmp_path):
    with pytest.raises(EnvironmentUnavailable, match=r"40 of 40.*, 39 of .* the gold reply scores 0: its reward is 0"):
        verifiers.problems(9, "a", pretended(tmp_path, gold="Answer: {answer}"))
    config = pretended(tmp_path, "if reply is not None: say({'reward': 1.0}); continue")
    with pytest.raises(EnvironmentUnavailable, match=r"40 of 40.* because a wrong reply scores 1: it is paid"):
        verifiers.problems(9, "a", config)


def test_a_set_that_is_empty_or_never_ends_is_no_endless_search(tmp_path):
    config = pretended(tmp_path, "if row: say({'refused': 'it is not the first'}); continue")
    script = Path(config.python)
    whole = script.read_text()
    script.write_text(whole.replace('"count": 40', '"count": None'))
    assert [problem.answer["row"] for problem in verifiers.problems(9, "a", config)] == [0]
    script.write_text(whole.replace('"count": 40', '"count": 0'))
    with pytest.raises(EnvironmentUnavailable, match="doubles has no tasks with these arguments"):
        verifiers.problems(9, "a", config)


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        ("print('x' * 3_000_000, flush=True)", "more than 1,048,576 bytes"),
        (HANGS, r"task \d+: it did not answer within 0.5 s"),
        ("sys.exit(1)", "it ended without an answer"),
        ("print('hello', flush=True); continue", "no line with a JSON object: 'hello"),
        ("print('[' * 100_000, flush=True); continue", r"no line with a JSON object: '\[\["),
        ("say([1]); continue", "no line with a JSON object"),
        ("say({'messages': 'x', 'key': 'k'}); continue", "what it says of task .* is no task"),
        (
            "if reply is not None: say({'reward': float('nan')}); continue",
            "the reward of task .* is nan, which is no number",
        ),
        ("if reply is not None: say({'reward': float('inf')}); continue", "the reward of task .* is inf"),
        ("if reply is not None: say({'reward': True}); continue", "the reward of task .* is True"),
        ("if reply is not None: say({'reward': '1'}); continue", "the reward of task .* is 1,"),
        ("if reply is not None: say({}); continue", "the reward of task .* is None"),
        ("reply is not None and print('x' * 2_000_000, flush=True)", "the reward of task .*more than 1,048,576 bytes"),
        (f"reply is not None and {HANGS}", "the reward of task .* for the gold reply took more than 0.5 s"),
        ("reply is not None and sys.exit(1)", "the reward of task .* or ended its process"),
        ("if reply is not None: say({'changed': True}); continue", "is another than when the set was read first"),
        ("if reply is not None: say({'error': 'it goes by chance'}); continue", r"task \d+: it goes by chance"),
    ],
)
def test_what_is_no_answer_ends_in_one_sentence(tmp_path, hostile, said):
    with pytest.raises(EnvironmentUnavailable, match=said):
        verifiers.problems(9, "a", pretended(tmp_path, hostile, seconds=0.5 if hostile.endswith(HANGS) else 20))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sys.exit(1)", "does not run it: it ended without an answer"),
        ("time.sleep(600)", "does not run it: it did not answer within 1 s"),
        ("print('Welcome!', flush=True)", "no line with a JSON object: 'Welcome!"),
        ("say({'error': 'ModuleNotFoundError: no sums'})", "ModuleNotFoundError: no sums"),
        ("say({'count': 'many'})", "'many'"),
    ],
)
def test_a_set_that_cannot_be_loaded_is_told_with_what_to_do(tmp_path, monkeypatch, script, said):
    monkeypatch.setattr(process, "LOAD_SECONDS", 1.0 if "sleep" in script else 300.0)
    config = pretended(tmp_path)
    written = Path(config.python).read_text().replace('say({"count": 40})', script)
    Path(config.python).write_text(written)
    with pytest.raises(EnvironmentUnavailable, match=rf"{said}.*rl\.library\.python is an interpreter with verifiers"):
        verifiers.problems(9, "a", config)


@pytest.mark.parametrize(
    ("module", "library", "missing"),
    [
        ("lacking.py", "0.4", "a_dependency"),
        ("lacking.py", "0.3", "a_dependency"),
        ("lacking.py", "", "a_dependency"),
        ("nowhere.py", "0.3", "nowhere"),
        ("nowhere.py", "", "verifiers"),
    ],
)
def test_a_set_that_lacks_a_module_says_which(tmp_path, module, library, missing):
    (tmp_path / "lacking.py").write_text("import a_dependency\n")
    if library:
        for folder in ("verifiers", *(["verifiers/v1"] if library == "0.4" else [])):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "__init__.py").touch()
    config = LibraryConfig(python=sys.executable, module=str(tmp_path / module))
    with pytest.raises(EnvironmentUnavailable, match=rf"{module} .*: No module named '{missing}' "):
        verifiers.problems(9, "a", config)


LIBRARY = {
    "__init__": "",
    "clients": "class Client:\n    def __init__(self, config): pass\n",
    "types": "from types import SimpleNamespace\nResponse = ResponseMessage = ToolCall = SimpleNamespace\n",
}
"""As much of the library before 0.4 as an environment of ours needs."""
PAGES = """
class Pages:
    requires_group_rollouts = False

    def get_dataset(self):
        return [{"question": asked, "answer": "1"} for asked in ("One?", "One? " * 500_000)]

    async def rollout(self, given, client, model, arguments):
        messages = [{"role": "user", "content": given["question"]}]
        while True:
            said = (await client.get_response(messages, model, arguments)).message
            messages.append({"role": "assistant", "content": said.content})
            if not said.tool_calls:
                return {"reward": float(said.content == "1")}
            page = {"role": "tool", "content": chr(0x4E2D) * 20_000}
            messages += [{**page, "tool_call_id": call.id} for call in said.tool_calls]

    @property
    def rubric(self):
        return self

    async def score_rollout(self, state): pass


load_environment = Pages
"""


def test_an_answer_of_the_library_that_is_too_long_is_no_end_of_the_job(tmp_path, caplog):
    (tmp_path / "verifiers").mkdir()
    for name, text in LIBRARY.items():
        (tmp_path / "verifiers" / f"{name}.py").write_text(text)
    (tmp_path / "pages.py").write_text(PAGES)
    config = LibraryConfig(python=sys.executable, module=str(tmp_path / "pages.py"))
    with caplog.at_level(logging.WARNING):
        (problem,) = verifiers.problems(9, "a", config)
    assert "1 of 2 tasks" in caplog.text
    assert "because too much: an answer of more than 1,048,576 bytes" in caplog.text
    tool = {"type": "function", "function": {"name": "page", "parameters": {"type": "object"}}}
    problem = replace(problem, tools=(tool,))
    with Services(library=config) as services:
        judge = environment(problem, services)
        few, many = ([ToolCall("page", {}, place) for place in range(count)] for count in (2, 20))
        assert judge.play(problem, [Reply("", tuple(few)), Reply("1")]).reward == 1.0
        assert judge.play(problem, [Reply("", tuple(many))]).reason.startswith("its tool raised too much")


def test_an_interpreter_that_is_not_there_is_told():
    with pytest.raises(EnvironmentUnavailable, match="nowhere/python does not run it"):
        verifiers.problems(9, "a", LibraryConfig(python="/nowhere/python", module="doubles"))


def test_a_reward_that_hangs_is_a_wrong_reply_and_too_many_in_a_row_end_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "MOST_FAILED", 3)  # few, for seconds in which a busy machine too judges the others
    config = pretended(tmp_path, "reply == 'hang' and time.sleep(600)", seconds=1.5)
    (problem,) = verifiers.problems(1, "a", config)
    with Services(library=config) as services:
        judge = environment(problem, services)
        for _ in range(2 * process.MOST_FAILED):
            assert judge.play(problem, [Reply("hang")]).reason == process.FAILED
            judge.validate(problem)
        for _ in range(process.MOST_FAILED - 1):
            assert judge.play(problem, [Reply("hang")]).reason == process.FAILED
        with pytest.raises(EnvironmentUnavailable, match=r"did not answer within 1\.5 s"):
            judge.play(problem, [Reply("hang")])


def test_a_process_gets_no_credentials_and_takes_its_children_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENK2_ENGINE_KEY", "secret")
    child = "import os, subprocess; seen = subprocess.Popen(['sleep', '600']).pid"
    say = "say({'refused': f\"{seen} {'OPENK2_ENGINE_KEY' in os.environ}\"}); continue"
    with Services(library=pretended(tmp_path, f"{child}; {say}")) as services:
        told = services.library.row(0)["refused"].split()
        assert told[1] == "False"
        os.kill(int(told[0]), 0)
    child_process = Path(f"/proc/{told[0]}/stat")
    deadline = time.monotonic() + 30  # a killed process is there until it is scheduled once more
    while running(child_process) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(child_process)


def running(stat_file: Path) -> bool:
    try:
        return stat_file.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_configuration_is_refused_where_it_cannot_be_and_paths_are_no_identity():
    library = {"python": "/a/python", "module": "/a/sums.py", "arguments": {"tasks": 9}}
    for given in ({"sets": {"verifiers": 9}}, {"library": library}):
        with pytest.raises(ValidationError, match="give both, or neither"):
            RlConfig.model_validate(given)
    with pytest.raises(ValidationError, match=r"write \{answer\} where it stands"):
        LibraryConfig(python="python", module="sums", gold="yes")
    whole = RlConfig.model_validate({"sets": {"verifiers": 9}, "library": library})
    moved = {"python": "/b/python", "module": "/b/sums.py"}
    there = whole.model_copy(update={"library": LibraryConfig(**library | moved)})
    assert whole.literals() == there.literals() != whole.model_copy(update={"library": None}).literals()
    assert RlConfig.model_validate(whole.model_dump(mode="json")) == whole, "the job gets the paths"


def test_rl_practises_and_measures_the_set(tmp_path, capsys):
    world, config = World(tmp_path), pretended(tmp_path)
    given = {"sets": {"verifiers": 20}, "library": config.model_dump(mode="json"), "environments": {"verifiers": 1}}
    short = {"iterations": 2, "prompts": 4, "responses": 2, "evaluate_prompts": 9, "evaluate_samples": 1}
    job = world.rl("rl", world.base, **given, **short)
    assert go(Reinforcement, job) == DONE
    found = summary(job.parent)
    assert found["after"]["by_environment"]["verifiers"]["problems"] == 4, "a fifth of those to practise on"
    assert 2 <= found["prompts_seen"] <= 8
    Path(config.python).unlink()
    assert go(Reinforcement, world.rl("gone", world.base, **given, **short)) == FAILED
    assert "does not run it" in capsys.readouterr().err


def test_tasks_without_room_for_a_reply_do_not_end_a_run_of_rl(tmp_path, caplog):
    """Every fourth task has more tokens than the model's window of 1,024."""
    tools = """{"messages": [{"role": "user", "content": "x" * 2000 * (row % 4 == 0) + f"{row}+{row}="}]}"""
    world, config = World(tmp_path), pretended(tmp_path, tools=tools)
    given = {"sets": {"verifiers": 20}, "library": config.model_dump(mode="json"), "environments": {"verifiers": 1}}
    short = {"iterations": 3, "prompts": 8, "responses": 2, "evaluate_prompts": 9, "evaluate_samples": 1}
    assert go(Reinforcement, world.rl("rl", world.base, **given, **short)) == DONE
    assert re.search(r"rl\.sets: \d+ of 26 problems of 'verifiers' fill the model's window", caplog.text)
