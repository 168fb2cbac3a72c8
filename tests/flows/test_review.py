"""The page of `openk2 review` over real HTTP: who gets in, what is kept of a verdict, and what hostile text can do."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import polars as pl
import pytest

from flows.preset import load_preset
from flows.request import PresetName, Request
from flows.review.queue import Item, queue, reviewable
from flows.review.rubric import marked
from flows.review.server import HERE, Review
from flows.steps import graph, reviewed
from model.serve.server import ServeError, in_background, listen
from tasks.agentic.config import CallsConfig, DialoguesConfig, TaskConfig, WorldsConfig
from tasks.agentic.rubric import shown
from tasks.agentic.verdicts import VerdictsError, append_verdict, read_verdicts, verdicts_file
from tasks.artifact import NotReady, Step
from tests.model.serve.browser import browser
from tests.posttraining import dialogues_artifact, tokenizer_artifact
from training.rl.worlds.policies import WRONG, play
from training.rl.worlds.task import Kind, draw_task

HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>"
CALL = {"id": "functions.f:0", "type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}}
TURNS = [
    {"role": "user", "content": HOSTILE},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": HOSTILE, "content": HOSTILE, "tool_call_id": "functions.f:0"},
]
TOOLS = [{"type": "function", "function": {"name": HOSTILE, "description": HOSTILE, "parameters": {}}}]


@pytest.fixture
def review(tmp_path: Path) -> Iterator[tuple[Review, str]]:
    """A review that is served, and its address."""
    items = [Item("one", "copy", TURNS, TOOLS, [("rules", HOSTILE)]), Item("two", "copy", TURNS, [], [])]
    found = Review(
        [*items, Item("", "copy", TURNS, [], [("rules", "refused: too long")])], verdicts_file(str(tmp_path)), "mine"
    )
    with in_background(found.app()) as address:
        yield found, address


def client(review: tuple[Review, str], **headers: str) -> httpx.Client:
    owner = {"Authorization": f"Bearer {review[0].key}"}
    return httpx.Client(base_url=review[1], trust_env=False, timeout=30, headers=owner | headers)


def test_a_verdict_is_kept_and_taken_back(review):
    with client(review) as owner:
        assert [one["id"] for one in owner.get("/api/dialogues").json()] == ["one", "two", ""]
        for verdict in ("accept", "reject"):
            assert owner.post("/api/verdicts", json={"id": "one", "verdict": verdict}).json()["verdict"] == verdict
        owner.post("/api/verdicts", json={"id": "two", "verdict": "reject"})
        assert read_verdicts(review[0].file) == {"one": "reject", "two": "reject"}
        assert owner.post("/api/verdicts", json={"id": "two", "verdict": "undo"}).json()["verdict"] == ""
        assert [one["verdict"] for one in owner.get("/api/dialogues").json()] == ["reject", "", ""]
    lines = [json.loads(line) for line in review[0].file.read_text().splitlines()]
    assert [line["verdict"] for line in lines] == ["accept", "reject", "reject", "undo"]
    assert Review(review[0].items, review[0].file, "mine").verdicts == {"one": "reject"}  # whoever comes back goes on


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "three", "verdict": "accept"}, 400),
        ({"id": "", "verdict": "accept"}, 400),
        ({"id": "one", "verdict": "burn"}, 400),
        ({"id": "one", "verdict": ["accept"]}, 400),
        (["one"], 400),
        ("x" * 2000, 413),
    ],
)
def test_what_is_no_verdict_changes_nothing(review, body, status):
    with client(review) as owner:
        assert owner.post("/api/verdicts", json=body).status_code == status
    assert not review[0].file.exists()


def test_nobody_gets_in_without_the_key(review):
    for key in ("", "Bearer", "Bearer wrong", review[0].key, f"Basic {review[0].key}"):
        with client(review, Authorization=key) as stranger:
            assert stranger.get("/api/dialogues").status_code == 403
            assert stranger.get("/api/dialogues/0").status_code == 403
            assert stranger.post("/api/verdicts", json={"id": "one", "verdict": "reject"}).status_code == 403
            assert review[0].key not in stranger.get("/").text
    assert not review[0].file.exists()


def test_other_pages_and_other_names_are_refused_even_with_the_key(review):
    body = {"id": "one", "verdict": "reject"}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        with client(review, **headers) as foreign:
            assert foreign.get("/").status_code in (400, 403)
            assert foreign.post("/api/verdicts", json=body).status_code in (400, 403)
    assert not review[0].file.exists()
    with client(review, Origin=review[1]) as own:
        assert own.post("/api/verdicts", json=body).status_code == 200


def test_hostile_text_stays_data(review):
    with client(review) as owner:
        for path in ("/", "/page.js", "/page.css", "/api/dialogues", "/api/dialogues/0"):
            answer = owner.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert ("<script>alert" in answer.text) == (path == "/api/dialogues/0")
        told = owner.get("/api/dialogues/0")
        assert told.headers["content-type"] == "application/json"
        assert told.json()["messages"][0]["content"] == HOSTILE


def test_the_page_makes_no_markup_of_text_and_loads_nothing_from_elsewhere():
    script = (HERE / "page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(|srcdoc", script)
    for name in ("page.html", "page.js", "page.css"):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", (HERE / name).read_text()), name
    assert not re.search(r"<script(?! src=)|\son\w+=|style=", (HERE / "page.html").read_text())


def test_a_taken_port_is_told():
    with listen("127.0.0.1", 0) as taken, pytest.raises(ServeError, match="can't be opened"):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
def test_an_address_of_ipv6_is_listened_on():
    with listen("::1", 0) as opened:
        assert opened.getsockname()[0] == "::1"


def test_what_people_refuse_is_another_recipe_from_the_dialogues_on(tmp_path):
    request = Request(preset=PresetName.test, root=str(tmp_path), overrides=["execution.precision=float32"])
    preset, file = load_preset(request), verdicts_file(str(tmp_path))
    append_verdict(file, "b", "accept", "copy", "test")
    append_verdict(file, "of another recipe", "reject", "copy", "laptop")
    assert reviewed(preset, request) == preset
    for name, verdict in (("b", "reject"), ("a", "reject"), ("c", "reject"), ("c", "undo")):
        append_verdict(file, name, verdict, "copy", "test")
    found = graph(request, preset)
    assert found["dialogues"].config.refused == ("a", "b")
    assert found["tools"].config == preset.tools
    kept = file.read_bytes()
    for line in (b'{"id": "d"}', b"\xff"):
        file.write_bytes(kept + line + b"\n")
        with pytest.raises(VerdictsError, match=r"line 7 of .*dialogues\.jsonl is no verdict"):
            graph(request, preset)


def test_a_refused_dialogue_is_replaced_by_another(tmp_path):
    task = TaskConfig(family="copy", size=3, train=20, development=5, test=5)
    config = DialoguesConfig(tasks=(task,), calls=CallsConfig(train=8, development=1, test=1))
    tokenizer = tokenizer_artifact(tmp_path)
    first = dialogues_artifact(tmp_path, tokenizer, config)
    shown = queue(first, 10)
    kept = [item.id for item in shown if item.id]
    assert {item.environment for item in shown} == {"copy", "tool_call", "no_call"}
    assert shown == queue(first, 10)
    changed = config.model_copy(update={"refused": tuple(kept[:2])})
    # A page that is opened again before the next run still has something to show.
    assert reviewable(Step("dialogues", changed, str(tmp_path))) == first
    with pytest.raises(NotReady):
        reviewable(Step("dialogues", config.model_copy(update={"seed": 7}), str(tmp_path)))
    again = dialogues_artifact(tmp_path, tokenizer, changed)
    assert again.statistics["dialogues"] == first.statistics["dialogues"]
    assert again.statistics["rejected_by_reason"]["people refused it"] == 2
    assert not {item.id for item in queue(again, 1000)} & set(kept[:2])


def test_every_filter_and_only_the_side_that_is_trained_on_is_shown(tmp_path):
    step = Step("dialogues", DialoguesConfig(), str(tmp_path))
    row = {"environment": "copy", "messages": json.dumps(TURNS), "tools": json.dumps(TOOLS)}
    for split in ("train", "test"):
        kept = row | {"id": split, "verdicts": json.dumps({"rules": "passed", "judge": 0.8})}
        lost = row | {"reason": "too long"}
        for group, record in (("dialogues", kept), ("rejected", lost)):
            step.put(f"{group}/{split}/copy", ".parquet", pl.DataFrame([record]).write_parquet)
    one, other = queue(step.publish({}), 5)
    assert (one.id, one.filters, one.tools) == ("train", [("rules", "passed"), ("judge", "0.8")], TOOLS)
    assert (other.id, other.filters) == ("", [("rules", "refused: too long")])
    assert one.rubric == {"criteria": [], "checkpoints": [], "says": []}, "what an older stage made has none"


def rubric_of(task):
    calls = [(one.tool, one.arguments, one.allowed) for one in task.rubric.checkpoints]
    return shown(task.rubric.criteria, calls, task.rubric.says)


@pytest.mark.parametrize("kind", [Kind(follow_ups=1), Kind(denied=1), Kind(faulty=1)], ids=["two", "denied", "faulty"])
def test_a_right_dialogue_meets_its_whole_rubric_and_a_wrong_one_shows_where_it_does_not(kind):
    missed = 0
    for seed in range(12):
        task = draw_task(f"review/{seed}", "train", kind)
        messages = play(task).messages
        right = marked(rubric_of(task), messages)
        assert right["criteria"]
        assert all(one["met"] for one in right["checkpoints"])
        for one in right["checkpoints"]:
            made = [call["function"] for call in messages[one["turn"]]["tool_calls"]]
            assert (one["tool"], one["arguments"]) in [(call["name"], json.loads(call["arguments"])) for call in made]
        assert all(one["turn"] is not None for one in right["says"])
        for policy in ("missing step", "wrong argument", "giving up"):
            assert policy in WRONG
            if played := play(task, policy, seed):
                wrong = marked(rubric_of(task), played.messages)
                missed += not all(one["met"] for one in wrong["checkpoints"])
    assert missed > 12


def test_of_two_checkpoints_of_one_call_each_has_its_own():
    def turn(number: int, result: str) -> list[dict]:
        call = {"id": f"f:{number}", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}
        answer = {"role": "tool", "name": "f", "content": result, "tool_call_id": f"f:{number}"}
        return [{"role": "assistant", "content": "", "tool_calls": [call]}, answer]

    rubric = shown([], [("f", {"a": 1}, True)] * 2, [["x"]])
    lost, odd, done = turn(0, '{"error": "timeout"}'), turn(1, "[" * 9999), turn(2, "{}")
    found = marked(rubric, [*lost, *odd, *done])
    assert [(one["met"], one["turn"]) for one in found["checkpoints"]] == [(True, 2), (True, 4)]
    assert found["says"] == [{"forms": ["x"], "turn": None}]
    (one, _) = marked(rubric, lost)["checkpoints"]
    assert (one["met"], one["turn"], one["error"]) == (False, 0, "timeout")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_the_rubric_stands_beside_the_dialogue_in_a_browser(tmp_path):
    """Every dialogue of the stage with its rubric; a button leads to the turn; text stays text; a verdict by keys."""
    task = TaskConfig(family="copy", size=3, train=4, development=2, test=2)
    config = DialoguesConfig(
        tasks=(task,),
        calls=CallsConfig(train=2, development=1, test=1),
        worlds=WorldsConfig(train=4, development=1, test=1, wrong=0.5),
        max_tokens=20_000,
    )
    items = queue(dialogues_artifact(tmp_path, tokenizer_artifact(tmp_path), config), 100)
    assert all(item.rubric["criteria"] for item in items)
    for item in items:
        if item.id:
            assert all(one["met"] for one in item.rubric["checkpoints"]), item
            assert all(one["turn"] is not None for one in item.rubric["says"]), item
    place = next(place for place, item in enumerate(items) if item.id and item.environment == "world")
    hostile = Item(
        "bad",
        "world",
        TURNS,
        TOOLS,
        [],
        marked(shown([HOSTILE], [(HOSTILE, {HOSTILE: HOSTILE}, True)], [[HOSTILE]]), TURNS),
    )
    found = Review([items[place], hostile], verdicts_file(str(tmp_path)), "mine")
    with (
        in_background(found.app()) as address,
        browser(shutil.which("chromium"), f"{address}/#{found.key}", tmp_path / "profile") as page,
    ):
        page.wait("document.querySelectorAll('.turn').length > 0")
        lines = "[...document.querySelectorAll('#checkpoints code, #criteria li')].map(one => one.textContent)"
        wanted = [*items[place].rubric["criteria"], *(one["tool"] for one in items[place].rubric["checkpoints"])]
        assert page.value(lines) == wanted
        page.value("document.querySelector('#checkpoints button').click()")
        assert (
            page.value("document.querySelector('.looked').id")
            == f"turn-{items[place].rubric['checkpoints'][0]['turn']}"
        )
        page.press("a", 65)
        page.wait("document.getElementById('place').textContent === '2 of 2'")
        assert page.value("document.querySelectorAll('img').length") == 0
        assert page.value("document.querySelector('#criteria li').textContent") == HOSTILE
        assert page.value("document.querySelectorAll('.unmet').length") == 2
        assert not page.said
    assert read_verdicts(found.file) == {items[place].id: "accept"}
