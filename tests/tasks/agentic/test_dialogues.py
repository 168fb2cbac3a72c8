"""The dialogues stage: what is kept passes its filters, results are real, splits share nothing, bytes repeat."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.chat import Chat
from tasks.agentic.calls import call_dialogue, work_of
from tasks.agentic.catalogue import BY_NAME, CATALOGUE
from tasks.agentic.config import NOVELTIES, CallsConfig, DialoguesConfig, TaskConfig, WorldsConfig
from tasks.agentic.dialogues import collect, make_dialogues, makers_of
from tasks.agentic.problems import FAMILIES, ask, same_work, side
from tasks.agentic.roles import Roles
from tasks.agentic.rubric import Rubric, broken_criterion
from tasks.agentic.tools import ToolError
from tasks.artifact import Step
from tests.posttraining import byte_tokenizer, dialogues_artifact, tokenizer_artifact
from training.inputs import JobError, Splits, load_splits
from training.rl.worlds.filters import Trajectory, judge
from training.rl.worlds.personas import PERSONAS
from training.rl.worlds.task import Kind, draw_task
from training.rl.worlds.wording import FRAMES, SPLITS, expand, split_of

CONFIG = DialoguesConfig(
    tasks=(
        TaskConfig(family="addition", train=60, development=12, test=12),
        TaskConfig(family="reverse", size=3, train=40, development=10, test=10),
    ),
    calls=CallsConfig(train=60, development=8, test=8, requests=3),
    worlds=WorldsConfig(train=12, development=3, test=3, wrong=0.6),
    max_tokens=8192,
)
HELD_OUT = ("development", "test")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("dialogues")
    return dialogues_artifact(root, tokenizer_artifact(root), CONFIG)


def rows(artifact, group):
    return [row for path in artifact.files(group) for row in pq.read_table(path).to_pylist()]


def calls_of(row):
    for message in json.loads(row["messages"]):
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"], json.loads(call["function"]["arguments"])


def test_counts_are_those_asked_for(made):
    found = {
        f"{split}/{name}": entry["dialogues"]
        for name, splits in made.statistics["by_environment"].items()
        for split, entry in splits.items()
    }
    assert found == CONFIG.wanted
    assert found["train/no_call"] == 18
    assert made.statistics["dialogues"] == len(rows(made, "dialogues")) == sum(found.values())
    reasons = made.statistics["rejected_by_reason"]
    assert made.statistics["rejected"] == len(rows(made, "rejected")) == sum(reasons.values()) > 0
    assert "the tool failed: math.divide" in reasons, "users ask for impossible things now and then"


def test_who_the_user_is_stands_in_the_data_and_is_counted(made):
    known = {persona.name for persona in PERSONAS}
    kept = rows(made, "dialogues")
    for row in [*kept, *rows(made, "rejected")]:
        assert (row["persona"] in known) == (row["environment"] not in FAMILIES)
        assert json.loads(row["rubric"])["criteria"]
    assert made.statistics["personas"] == Counter(row["persona"] for row in kept if row["persona"])
    assert set(made.statistics["personas"]) == known
    for persona in PERSONAS:
        said = f"| {persona.name} | {persona.style} | {persona.who} | {made.statistics['personas'][persona.name]} |"
        assert said in made.file("card").read_text()


def test_a_user_of_a_call_dialogue_speaks_in_one_style():
    """Whatever is asked for, it is asked in the frames of the persona's style."""
    config, draw = CallsConfig(requests=6, silent=0, styles=("formal", "polite"), chinese=0), random.Random(3)
    for _ in range(60):
        dialogue = call_dialogue(config, 0.1, "train", "tool_call", draw)
        style = next(one.style for one in PERSONAS if one.name == dialogue.persona)
        assert style in config.styles
        asked = [one["content"] for one in dialogue.messages if one["role"] == "user"]
        ends = {style: FRAMES[style]["english"] for style in config.styles}
        for text in asked:
            fits = [
                name
                for name, frames in ends.items()
                if any(text.startswith(before) and text.endswith(after) for before, after in map(_around, frames))
            ]
            assert style in fits or text.endswith("?"), (style, text)


def _around(frame):
    before, _, after = frame.partition("{clause}")
    return before, after


def test_no_problem_is_in_two_splits(made):
    problems = {split: {row["problem"] for row in rows(made, f"dialogues/{split}")} for split in SPLITS}
    assert all(problems.values())
    assert not problems["train"] & problems["test"]
    assert not problems["train"] & problems["development"]
    assert not problems["development"] & problems["test"]


@pytest.mark.parametrize("split", SPLITS)
def test_every_request_of_a_call_dialogue_is_on_its_splits_side(made, split):
    for row in rows(made, f"dialogues/{split}"):
        if row["environment"].startswith("tool_call"):
            for name, arguments in calls_of(row):
                assert side(work_of(BY_NAME[name], arguments), CONFIG.heldout_share) == split


@pytest.mark.parametrize("split", HELD_OUT)
def test_what_is_new_is_what_the_environment_says(made, split):
    trained = {BY_NAME[name].name for row in rows(made, "dialogues/train/tool_call") for name, _ in calls_of(row)}
    for environment in NOVELTIES:
        for row in rows(made, f"dialogues/{split}/{environment}"):
            assert row["unseen"] == ["arguments", *environment.split("_")[2:]]
            if environment == "no_call":
                continue
            name, _ = next(calls_of(row))
            assert row["topic"] == BY_NAME[name].name
            assert (BY_NAME[name].split == split) == (environment == "tool_call_tool")
            assert (split_of("tool", name) == split) == (environment == "tool_call_name")
            assert environment != "tool_call_tool" or row["topic"] not in trained


def test_a_function_is_known_by_as_many_names_as_are_asked_for():
    """All the same a dialogue about an unknown name has one."""
    for names in (1, 3):
        config, draw = CallsConfig(names=names, offered=1), random.Random(0)
        known: dict[str, set[str]] = {}
        for _ in range(300):
            dialogue = call_dialogue(config, 0.1, "train", "tool_call", draw)
            known.setdefault(dialogue.topic, set()).add(dialogue.problem.answer["name"])
        assert max(map(len, known.values())) == names
        new = call_dialogue(config, 0.1, "test", "tool_call_name", draw)
        assert new.problem.answer["name"] not in known[new.topic]


def test_a_sum_through_the_tool_is_the_sum():
    assert work_of(BY_NAME["math.plus"], {"a": 71, "b": 15}) == same_work("addition", (15, 71))
    assert work_of(BY_NAME["math.plus"], {"a": 71, "b": 1}) == same_work("successor", (71,))
    assert work_of(BY_NAME["math.subtract"], {"a": 71, "b": 15}) == same_work("subtraction", (71, 15))
    assert work_of(BY_NAME["math.subtract"], {"a": 15, "b": 71}) != same_work("subtraction", (71, 15))


def test_every_tool_result_is_what_the_tool_says(made):
    seen = set()
    for row in rows(made, "dialogues"):
        calls = {}
        for message in json.loads(row["messages"]) if row["verifier"] != "world" else ():
            for call in message.get("tool_calls", ()):
                calls[call["id"]] = call["function"]
            if message["role"] == "tool":
                function = calls[message["tool_call_id"]]
                assert BY_NAME[function["name"]].call(json.loads(function["arguments"])) == message["content"]
                seen.add(BY_NAME[function["name"]].name)
    assert len(seen) >= 20


def test_a_world_is_drawn_again_from_its_answer_and_the_filters_refuse_every_wrong_assistant(made):
    kept = rows(made, "dialogues/train/world")
    for row in kept:
        answer = json.loads(row["answer"])
        task = draw_task(answer["seed"], answer["split"], Kind(**answer["kind"]), answer["family"])
        messages = json.loads(row["messages"])
        assert (task.id, task.tools) == (row["problem"], json.loads(row["tools"]))
        assert messages[: row["prompt_turns"]][-1]["content"] == task.requests[0].text
        assert judge(Trajectory(task, tuple(messages), row["player"])).score == 1.0
        assert row["player"] in ("script: right", "script: recovering")
        assert json.loads(row["verdicts"])["rules"] == "passed"
    refused = rows(made, "rejected/train/world")
    assert len(refused) >= len(kept) / 3
    assert not {"script: right", "script: recovering"} & {row["player"] for row in refused}
    assert made.statistics["filters"]["world"].keys() >= {row["reason"] for row in refused}


def test_ids_are_the_rendered_dialogue_and_the_mask_the_assistants_words(made):
    chat = Chat(byte_tokenizer())
    for row in rows(made, "dialogues"):
        kept = [token for token, trained in zip(row["ids"], row["mask"], strict=True) if trained]
        said = [message for message in json.loads(row["messages"]) if message["role"] == "assistant"]
        assert kept.count(chat.stop) == len(said)
        assert chat.parse(kept).content == (said[0]["content"] or "")
        assert len(row["ids"]) <= CONFIG.max_tokens


def test_a_run_cut_in_the_middle_ends_with_the_same_bytes(made, tmp_path, monkeypatch):
    tokenizer = tokenizer_artifact(tmp_path)
    step = Step("dialogues", CONFIG, str(tmp_path))
    real, count = Step.put, 0

    def failing(self, *arguments, **named):
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return real(self, *arguments, **named)

    monkeypatch.setattr(Step, "put", failing)
    with pytest.raises(KeyboardInterrupt):
        make_dialogues(step, tokenizer)
    assert make_dialogues(step, tokenizer).manifest["content"] == made.manifest["content"]


@pytest.mark.parametrize(("one", "other"), [("train", "test"), ("development", "test"), ("train", "development")])
def test_the_jobs_refuse_splits_that_share_a_problem(made, monkeypatch, one, other):
    found = load_splits(made.uri)
    assert [len(split.examples) for split in found] == [190, 65, 65]
    import training.inputs as inputs

    shared = found._replace(**{one: getattr(found, other)})
    monkeypatch.setattr(inputs, "load_dialogues", lambda uri, split: getattr(shared, split))
    with pytest.raises(JobError, match=f"in {one} and in {other}"):
        load_splits(made.uri)
    assert Splits._fields == SPLITS


def gather(config, name, count):
    return collect(config, Chat(byte_tokenizer()), "train", name, count, makers_of(config, "train", name, [], Roles()))


def test_a_family_that_has_not_so_many_problems_says_so():
    config = DialoguesConfig(tasks=(TaskConfig(family="copy", size=1, train=100),))
    with pytest.raises(ValueError, match="of 'copy' were found for train"):
        gather(config, "copy", 100)


def test_too_long_dialogues_are_rejected_with_the_reason():
    with pytest.raises(ValueError, match="'tool_call'"):
        gather(DialoguesConfig(max_tokens=32), "tool_call", 1)


# ---------------------------------------------------------------------------------------------------------- the rubric


def good(seed: int = 0):
    """Two requests, the first and the last answered by a call, and what the rubric wants of them."""
    draw = random.Random(seed)
    config = CallsConfig(requests=2, silent=0.0)
    while True:
        dialogue = call_dialogue(config, 0.1, "train", "tool_call", draw)
        result = dialogue.messages[-2]["content"]
        if dialogue.broken is None and len(dialogue.work) == 2 and result in dialogue.messages[-1]["content"]:
            called = tuple(message["name"] for message in dialogue.messages if message["role"] == "tool")
            return dialogue, Rubric(called, result)


@pytest.mark.parametrize("seed", range(4))
def test_a_good_dialogue_meets_its_rubric(seed):
    dialogue, rubric = good(seed)
    assert broken_criterion(rubric, dialogue.messages, dialogue.problem.tools) is None


def _edit(messages, turn, **changes):
    return [{**message, **changes} if place == turn else message for place, message in enumerate(messages)]


def _edit_call(messages, **changes):
    call = messages[1]["tool_calls"][0]
    function = {**call["function"], **{key: value for key, value in changes.items() if key in ("name", "arguments")}}
    return _edit(messages, 1, tool_calls=[{**call, "function": function, "id": changes.get("id", call["id"])}])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda m: _edit(m, 2, content="wrong"), "not what the tool says"),
        (lambda m: _edit(m, 2, tool_call_id="functions.x:9"), "answers no call"),
        (lambda m: _edit_call(m, arguments="{"), "not JSON"),
        (lambda m: _edit_call(m, arguments="{}"), "does not fit its schema"),
        (lambda m: _edit_call(m, name="gone"), "does not fit its schema"),
        (lambda m: _edit_call(m, id="call_1"), "does not count on"),
        (lambda m: [*m[:2], *m[3:]], "has no result"),
        (lambda m: m[:4], "tool-use pattern"),
        (lambda m: _edit(m, len(m) - 1, content="I do not know."), "does not give the answer"),
        (lambda m: m[:-1], "does not give the answer"),
    ],
)
def test_every_way_to_spoil_a_dialogue_is_noticed(spoil, reason):
    dialogue, rubric = good()
    found = broken_criterion(rubric, spoil(dialogue.messages), dialogue.problem.tools)
    assert found is not None
    assert reason in found


def test_a_task_with_a_wrong_answer_breaks_its_rubric():
    messages = [{"role": "user", "content": "2+3="}, {"role": "assistant", "content": "6"}]
    assert broken_criterion(Rubric((), "5"), messages, ()) == "the last turn does not give the answer"


# --------------------------------------------------------------------------------------------- tools and task families


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("math.multiply", {"a": 12, "b": 12}, "144"),
        ("math.add", {"a": 12.0, "b": 1}, "13"),
        ("math.divide", {"a": 91, "b": 7}, "13"),
        ("math.kilometres", {"km": 5}, "5000 m"),
        ("dates.days_left", {"month": 12, "day": 24}, "7"),
        ("dates.weekday", {"month": 11.0, "day": 21}, "Saturday"),
        ("geo.main_city", {"country": "Peru"}, "Lima"),
        ("text.letters", {"word": "banana", "letter": "a"}, "3"),
        ("clock.later", {"hour": 23, "hours": 2}, "1"),
        ("shop.price", {"item": "tea", "count": 12}, "36"),
    ],
)
def test_tools_do_what_they_say(name, arguments, result):
    assert BY_NAME[name].call(arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("math.divide", {"a": 1, "b": 0}),
        ("math.divide", {"a": 5, "b": 2}),
        ("math.add", {"a": "1", "b": 2}),
        ("math.add", {"a": 1}),
        ("math.add", {"a": 1, "b": 2, "c": 3}),
        ("math.multiply", {"a": 10**4000, "b": 10**4000}),
        ("dates.weekday", {"month": 2, "day": 30}),
        ("dates.weekday", {"month": 2, "day": 2**80}),
        ("geo.capital", {"country": "Atlantis"}),
        ("clock.alarm", {"hour": 24}),
    ],
)
def test_what_a_tool_cannot_do_it_refuses(name, arguments):
    with pytest.raises(ToolError):
        BY_NAME[name].call(arguments)


def test_the_catalogue_holds_what_it_promises():
    assert len(BY_NAME) == sum(len(tool.names) for tool in CATALOGUE), "no name stands for two tools"
    wordings = {wording for tool in CATALOGUE for language in tool.requests for wording in tool.wordings(language)}
    assert len(wordings) >= 400
    draw = random.Random(0)
    for tool in CATALOGUE:
        assert any(split_of("tool", name) == "train" for name in tool.names)
        arguments = tool.draw(draw)
        for language in tool.requests:
            sides = {split_of("wording", wording) for wording in tool.wordings(language)}
            assert "train" in sides
            for grammar in tool.requests[language]:
                said = expand(grammar)[0].format(**arguments)
                assert all(str(value) in said for value in arguments.values())
    for split in HELD_OUT:
        assert sum(tool.split == split for tool in CATALOGUE) >= 2


@given(st.sampled_from(sorted(FAMILIES)), st.integers(1, 4), st.integers())
@settings(max_examples=200)
def test_answers_follow_the_rule_and_prompts_name_the_problem(name, size, seed):
    draw = random.Random(seed)
    family = FAMILIES[name]
    key = family.draw(draw, size)
    answer = family.answer(key)
    rule = {
        "addition": lambda a, b: a + b,
        "subtraction": lambda a, b: a - b,
        "larger": max,
        "reverse": lambda text: "".join(reversed(text)),
        "copy": lambda text: text,
        "sort": lambda text: "".join(sorted(text)),
        "rotate": lambda text: text[1:] + text[0],
        "successor": lambda number: number + 1,
    }[name]
    assert answer == str(rule(*key))
    assert not answer.startswith("-")
    assert all(str(item) in ask(family, key, draw) for item in key)


def test_both_orders_of_a_sum_are_one_problem():
    family = FAMILIES["addition"]
    asked = {ask(family, (15, 71), random.Random(seed)) for seed in range(40)}
    assert {"15+71=", "71+15="} <= asked
