"""The page of `openk2 review` over real HTTP: who gets in, what is kept of a verdict, and what hostile text can do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import polars as pl
import pytest

from flows.preset import load_preset
from flows.request import PresetName, Request
from flows.review.queue import Item, queue, reviewable
from flows.review.server import HERE, Review
from flows.steps import graph, reviewed
from model.serve.server import ServeError, in_background, listen
from tasks.agentic.config import CallsConfig, DialoguesConfig, TaskConfig
from tasks.agentic.verdicts import VerdictsError, append_verdict, read_verdicts, verdicts_file
from tasks.artifact import NotReady, Step
from tests.posttraining import dialogues_artifact, tokenizer_artifact

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
        [*items, Item("", "copy", TURNS, [], [("rules", "refused: too long")])], verdicts_file(str(tmp_path))
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
    assert Review(review[0].items, review[0].file).verdicts == {"one": "reject"}  # whoever comes back goes on


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


def test_what_people_refuse_is_another_recipe_from_the_dialogues_on(tmp_path):
    request = Request(preset=PresetName.test, root=str(tmp_path), overrides=["execution.precision=float32"])
    preset, file = load_preset(request), verdicts_file(str(tmp_path))
    append_verdict(file, "b", "accept", "copy")
    assert reviewed(preset, request.root) == preset
    for name, verdict in (("b", "reject"), ("a", "reject"), ("c", "reject"), ("c", "undo")):
        append_verdict(file, name, verdict, "copy")
    found = graph(request, preset)
    assert found["dialogues"].config.refused == ("a", "b")
    assert found["tools"].config == preset.tools
    file.write_text(file.read_text() + '{"id": "d"}\n')
    with pytest.raises(VerdictsError, match=r"line 6 of .*dialogues\.jsonl is no verdict"):
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
