"""Real tools in dialogues: arguments fit any schema, a server is asked once, and what it said is what is trained on."""

from __future__ import annotations

import json
import random
import sys
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from flows.preset import load_preset
from flows.request import PresetName, Request
from model.dialogue import compact
from tasks.agentic.calls import on_side
from tasks.agentic.config import OF_SERVERS, CallsConfig, DialoguesConfig, ServersConfig, TaskConfig
from tasks.agentic.dialogues import make_dialogues, makers_of
from tasks.agentic.mcp.arguments import draw_arguments
from tasks.agentic.mcp.config import RecordingConfig, ServerConfig, ServerError
from tasks.agentic.mcp.recorded import RecordedTool, _tool, recorded_tools
from tasks.agentic.mcp.recording import called, record, run
from tasks.agentic.roles import Roles
from tasks.agentic.synthesis.config import ToolsConfig
from tasks.agentic.tools import ToolError
from tasks.artifact import Step
from tasks.launch import Execution
from tasks.report.book import Book
from tasks.report.chapters.tools import _called, _dialogues
from tests.posttraining import tokenizer_artifact
from training.rl.environments import Problem
from training.rl.environments.exact import RightCall
from training.rl.environments.services import Services
from training.rl.environments.table import play
from training.rl.worlds.wording import SPLITS

HOSTILE = str(Path(__file__).parent / "hostile.py")
PLACES = tuple(f"place {number}" for number in range(60))
CONFIG = DialoguesConfig(
    tasks=(TaskConfig(train=20, family="addition", development=4, test=4),),
    calls=CallsConfig(train=0),
    servers=ServersConfig(train=40, development=5, test=5, requests=2),
    max_tokens=4096,
)


def row(kind: str, **fields: object) -> ServerConfig:
    given = {"name": "bad", "command": sys.executable, "args": (HOSTILE, kind), "licence": "MIT", "walls": False}
    return ServerConfig.model_validate({**given, "values": {"text": PLACES}, "tools": ("echo",), **fields})


def recorded(root: Path, *servers: ServerConfig):
    """The artifact of a tools stage that has recorded these servers and done nothing else."""
    step = Step("tools", ToolsConfig(servers=servers, recorded=50), str(root), leaf=True)
    return step.publish({"servers": record(step, servers, 50, 0)})


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    requests = {"echo": ("(What|How) is it in {text}?",)}
    return recorded(tmp_path_factory.mktemp("honest"), row("honest", requests=requests))


@pytest.fixture(scope="module")
def made(honest, tmp_path_factory):
    root = tmp_path_factory.mktemp("dialogues")
    return make_dialogues(Step("dialogues", CONFIG, str(root)), tokenizer_artifact(root), honest)


@pytest.mark.parametrize("result", ['{"temperature": NaN}', "[1, Infinity]", "1e999"])
def test_an_answer_that_is_no_json_is_a_text(honest, result):
    assert recorded_tools(honest)[0].reply("en", {}, result) == result


def answering(name: str, *calls: dict[str, object]) -> RecordedTool:
    """A recorded tool that answers these calls."""
    properties = {argument: {"type": "string"} for one in calls for argument in one}
    function = {"name": name, "parameters": {"type": "object", "properties": properties}}
    declared = json.dumps({"type": "function", "function": function})
    row = {"declaration": declared, "function": name, "licence": "MIT", "requests": []}
    return _tool(row, {compact(one): ("said", "") for one in calls})


def rows(artifact, group):
    return [row for path in artifact.files(group) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "string"},
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": 5, "exclusiveMaximum": 9},
        {"type": "number", "minimum": -2.5, "maximum": -2},
        {"type": ["null", "boolean"]},
        {"enum": ["up", "down", 3]},
        {"const": 7},
        {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["EUR", "USD"]},
        {"type": "array", "items": {"type": "integer", "multipleOf": 5}, "minItems": 2},
        {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/point"}]},
    ],
)
def test_arguments_fit_their_schema(argument):
    point = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]}
    properties = {"source_timezone": {"type": "string"}, "it": argument, "spare": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["source_timezone", "it"],
        "$defs": {"point": point},
    }
    draw = random.Random(0)
    found = [draw_arguments(schema, {}, draw) for _ in range(40)]
    assert all(one is not None and Draft202012Validator(schema).is_valid(one) for one in found)
    assert {"spare" in one for one in found} == {True, False}
    assert all("/" in one["source_timezone"] for one in found)


@pytest.mark.parametrize(
    "argument",
    [
        {"type": "integer", "minimum": 9, "maximum": 3},
        {"type": "array", "minItems": 10**9, "items": {"type": "string"}},
        {"type": "string", "minLength": 10**9},
        {"type": "number", "minimum": 1e308, "exclusiveMinimum": 1e308},
        {"type": ["null"]},
        {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},  # of draft 7
        False,
    ],
)
def test_arguments_that_nobody_can_give_are_none(argument):
    schema = {"type": "object", "properties": {"it": argument}, "required": ["it"]}
    assert draw_arguments(schema, {}, random.Random(0)) is None


def test_a_schema_of_an_older_draft_is_read_as_that():
    older = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["it"]}
    pair = {"type": "array", "items": [{"type": "integer"}, {"type": "integer"}]}
    assert draw_arguments(older | {"properties": {"it": pair}}, {}, random.Random(0)) is None
    assert draw_arguments(older | {"properties": {"it": {"type": "boolean"}}}, {}, random.Random(0)) is not None


def test_a_record_holds_what_was_asked_and_said_and_whose_it_is(honest):
    (tool,) = rows(honest, "server_tools")
    assert (tool["function"], tool["licence"], tool["announced"]) == ("bad_echo", "MIT", "honest 1")
    calls = rows(honest, "server_calls")
    assert 30 < len({call["arguments"] for call in calls}) == len(calls) <= 50
    assert all(call["result"] == json.loads(call["arguments"]).get("text", "") for call in calls)
    assert honest.statistics["servers"]["calls"] == len(calls)


def test_dialogues_hold_what_the_server_said_as_chat_declares_it(made, honest):
    (tool,) = recorded_tools(honest)
    asked = set()
    for entry in rows(made, f"dialogues/train/{OF_SERVERS}"):
        assert (entry["licence"], entry["topic"], entry["verifier"]) == ("MIT", "bad_echo", "call")
        assert dict(tool.declared) in json.loads(entry["tools"])
        messages = json.loads(entry["messages"])
        asked.add(messages[0]["content"])
        for message in messages:
            for call in message.get("tool_calls", ()):
                if call["function"]["name"] == "bad_echo":
                    arguments = json.loads(call["function"]["arguments"])
                    said = next(one for one in messages if one.get("tool_call_id") == call["id"])["content"]
                    assert said == arguments.get("text", "")
    assert any(text.startswith("How is it in place ") for text in asked)
    assert any("echo with text place " in text for text in asked)
    assert not [row for row in rows(made, "dialogues/train/addition") if row["licence"]]


def test_the_card_counts_the_licences_of_what_servers_said(made):
    assert made.statistics["licences"] == {"MIT": 50}
    card = made.file("card").read_text()
    assert "- 50 dialogues with what tools of real servers say: MIT" in card
    assert "No text of others" not in card


def test_they_are_problems_of_rl_that_need_no_server(made):
    for entry in rows(made, f"dialogues/test/{OF_SERVERS}"):
        messages, answer, tools = (json.loads(entry[name]) for name in ("messages", "answer", "tools"))
        assert entry["unseen"] == ["arguments"]
        problem = Problem(entry["problem"], OF_SERVERS, entry["verifier"], tuple(messages[:1]), answer, tuple(tools))
        law = RightCall(Services())
        assert play(problem, law.gold(problem)).reward == 1.0
        assert all(play(problem, wrong).reward == 0.0 for wrong in law.corrupted(problem))


def test_the_same_record_gives_the_same_bytes(made, honest, tmp_path):
    again = make_dialogues(Step("dialogues", CONFIG, str(tmp_path)), tokenizer_artifact(tmp_path), honest)
    assert again.manifest["content"] == made.manifest["content"]


def test_instructions_in_a_result_are_not_what_the_assistant_learns_to_say(tmp_path):
    (tool,) = recorded_tools(recorded(tmp_path, row("instructions")))
    arguments = tool.draw(random.Random(0))
    result = tool.call(arguments)
    assert "<|im_system|>" in result
    assert tool.reply("english", arguments, result) == "It is done."


def test_what_a_server_refuses_is_rejected_with_the_reason(tmp_path):
    tools = recorded(tmp_path / "tools", row("fails"))
    assert tools.statistics["servers"]["refused"] == {"failed": tools.statistics["servers"]["calls"]}
    with pytest.raises(ValueError, match=f"only 0 of 40 different dialogues of '{OF_SERVERS}'"):
        make_dialogues(Step("dialogues", CONFIG, str(tmp_path)), tokenizer_artifact(tmp_path), tools)


def test_a_server_that_is_not_there_is_an_error_or_left_out(tmp_path, caplog):
    missing = {"command": "no-such-server", "args": ()}
    with pytest.raises(ServerError, match="there is no program 'no-such-server': install it"):
        recorded(tmp_path / "needed", row("honest", **missing))
    tools = recorded(tmp_path / "optional", row("honest", optional=True, **missing))
    assert "the tools of 'bad' take no part: " in caplog.text
    assert "install it" in tools.statistics["servers"]["left_out"]["bad"]
    without = make_dialogues(Step("dialogues", CONFIG, str(tmp_path)), tokenizer_artifact(tmp_path), tools)
    assert sorted(without.statistics["by_environment"]) == ["addition"]


def test_a_server_that_dies_while_it_is_recorded_takes_no_part_with_half_of_its_tools(tmp_path, monkeypatch):
    def dying(box, tool, *given):
        if tool.function == "dying_other":
            raise ServerError("it ended while it was called")
        return called(box, tool, *given)

    monkeypatch.setattr("tasks.agentic.mcp.recording.called", dying)
    half = row("honest", name="dying", tools=("echo", "other"), optional=True)
    tools = recorded(tmp_path, half, row("honest"))
    for group in ("server_tools", "server_calls"):
        assert {one["function"] for one in rows(tools, group)} == {"bad_echo"}
    assert tools.statistics["servers"]["left_out"] == {"dying": "it ended while it was called"}


def test_a_tool_without_arguments_is_in_one_split_and_the_others_have_the_rest(tmp_path, caplog):
    calls = {"s_now": [{}], "s_at": [{"zone": place} for place in PLACES]}
    tools = {name: answering(name, *given) for name, given in calls.items()}
    homes = [split for split in SPLITS if "s_now" in {tool.name for tool in on_side([*tools.values()], split, 0.1)}]
    assert len(homes) == 1
    for split in SPLITS:
        makers = makers_of(CONFIG, split, OF_SERVERS, [], Roles(), [*tools.values()])
        called = {one.problem.answer["name"] for one in (make() for make in islice(makers, 60))}
        assert {name for name in called if name in tools} == ({"s_at", "s_now"} if split in homes else {"s_at"})
        assert (f"no dialogue of {split} has s_now" in caplog.text) == (split not in homes)
    (other, *_) = (split for split in SPLITS if split not in homes)
    with pytest.raises(ValueError, match=f"none of the recorded calls of tools.servers is on the side of {other}"):
        on_side([tools["s_now"]], other, 0.1)


def test_requests_of_what_is_not_offered_are_refused(tmp_path):
    for requests, said in (({"ehco": ["say it"]}, "the tool 'ehco'"), ({"echo": ["say {txt}"]}, "names txt")):
        with pytest.raises(ServerError, match=said):
            recorded(tmp_path, row("honest", requests=requests))


def test_who_is_asked_what_is_identity_and_how_it_runs_is_not(tmp_path):
    def of(**fields: object) -> str:
        return Step("tools", ToolsConfig(servers=(row("honest", **fields),)), str(tmp_path)).fingerprint

    assert of() == of(limits={"call_seconds": 3}) == of(walls=True, reads=("/srv",)) == of(optional=True)
    assert len({of(), of(version="2"), of(values={}), of(requests={"echo": ["x"]}), of(args=(HOSTILE, "fails"))}) == 5


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ('{"success": true}', "The success is true."),
        ('["a", "b"]', '["a","b"]'),
        ("null", "null"),
        ('"plain"', "plain"),
        ("12:30", "12:30"),
    ],
)
def test_a_result_is_told_in_json_and_not_in_python(result: str, said: str) -> None:
    declared = {"type": "function", "function": {"name": "s_t", "parameters": {"type": "object"}}}
    row = {"declaration": json.dumps(declared), "function": "s_t", "licence": "MIT", "requests": []}
    assert _tool(row, {"{}": (result, "")}).reply("english", {}, result) == said


def test_a_call_is_held_against_the_draft_that_its_schema_names() -> None:
    """A pair of draft 7, which draft 2020-12 cannot read, ended the stage."""
    pair = {"type": "array", "items": [{"type": "string"}, {"type": "string"}]}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"pair": pair}}
    declared = {"type": "function", "function": {"name": "s_t", "parameters": schema}}
    row = {"declaration": json.dumps(declared), "function": "s_t", "licence": "MIT", "requests": []}
    tool = _tool(row, {compact({"pair": ["a", "b"]}): ("said", "")})
    assert tool.call({"pair": ["a", "b"]}) == "said"
    with pytest.raises(ToolError, match="1 is not of type 'string'"):
        tool.call({"pair": ["a", 1]})


@pytest.mark.parametrize("kind", ["number", ["number", "null"], "integer"])
def test_what_a_server_answered_to_a_number_is_found_again(kind) -> None:
    schema = {"type": "object", "properties": {"celsius": {"type": kind}}, "required": ["celsius"]}
    declared = {"type": "function", "function": {"name": "s_t", "parameters": schema}}
    row = {"declaration": json.dumps(declared), "function": "s_t", "licence": "MIT", "requests": []}
    given = [{"celsius": 37}] if kind == "integer" else [{"celsius": 36.6}, {"celsius": 37.0}, {"celsius": -0.5}]
    tool = _tool(row, {compact(one): (str(one["celsius"]), "") for one in given})
    assert [tool.call(one) for one in given] == [str(one["celsius"]) for one in given]
    if kind == "integer":
        assert tool.call({"celsius": 37.0}) == "37"


def test_servers_that_are_called_for_the_report_are_in_it_and_missing_ones_too(tmp_path):
    gone = row("honest", name="gone", command="no-such-server", args=(), optional=True)
    step = Step("real-tools", RecordingConfig(servers=(row("honest"), gone), recorded=3), str(tmp_path), leaf=True)
    run(step, Execution())
    shown = str(list(_called(Book([step]))))
    assert "1 tools of real servers were listed and called" in shown
    assert "bad_echo" in shown
    assert "{} gives" in shown
    assert "there is no program 'no-such-server': install it" in shown


def test_the_report_shows_dialogues_with_real_tools_and_what_refused_some(tmp_path):
    values = {"text": ["one", "two", "three", "four", "five"]}
    servers = (row("honest", name="good", values=values), row("fails", name="bad", values=values))
    step = Step("real-tools", RecordingConfig(servers=servers, recorded=5), str(tmp_path), leaf=True)
    counts = run(step, Execution()).statistics["dialogues"]
    made = rows(step.require(), "server_dialogues")
    refused = [one for one in made if one["reason"]]
    calls = rows(step.require(), "server_calls")
    assert counts["drawn"] == len(calls) == counts["twice"] + len(made) > 5
    assert counts["refused"] == {"the tool failed: bad_echo": len(refused)}
    assert counts["kept"] == len(made) - len(refused) > 0
    called = {(one["function"], one["arguments"]): one["result"] for one in calls}
    for one in made:
        messages = json.loads(one["messages"])
        results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
        for call in (call for message in messages for call in message.get("tool_calls", ())):
            name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
            if not one["reason"] and name.startswith(("good_", "bad_")):
                assert results[call["id"]] == called[name, compact(given)]
    shown = str(list(_dialogues(Book([step]))))
    assert f"{counts['kept']} were kept" in shown
    assert "the tool failed: bad_echo" in shown
    assert shown.count("Transcript(") == 2


def test_laptop_s_servers_answer_every_call(walls, tmp_path):
    preset = load_preset(Request(preset=PresetName.laptop))
    servers = preset.real_tools.servers
    assert [(one.name, one.optional) for one in servers] == [
        (name, True) for name in ("time", "git", "files", "memory")
    ]
    slow = {"start_seconds": 300.0, "call_seconds": 300.0}
    patient = tuple(one.model_copy(update={"limits": one.limits.model_copy(update=slow)}) for one in servers)
    step = Step("real-tools", preset.real_tools.model_copy(update={"servers": patient}), str(tmp_path))
    statistics = run(step, Execution()).statistics["servers"]
    assert set(statistics["left_out"]) <= {"files", "memory"}  # where npm is not
    called = rows(step.require(), "server_calls")
    assert {call["error"] for call in called} == {""}
    dialogues = step.require().statistics["dialogues"]
    assert dialogues["kept"] == dialogues["drawn"] - dialogues["twice"] > 0
    assert {"time_get_current_time", "time_convert_time", "git_git_status"} <= {call["function"] for call in called}
    staged = [call["result"] for call in called if call["function"] == "git_git_diff_staged"]
    assert all("+hello" in text for text in staged)
