"""`openk2 serve`: who may be served without a key of their own, and from which folder. `openk2 evaluate`: what it
refuses before it measures anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.evaluate_commands import evaluate
from flows.options import RequestError
from flows.request import Request
from flows.serve_commands import KEY_VARIABLE, _folder, _key, generate, load


def test_a_server_that_others_can_reach_wants_a_key_of_its_owners(monkeypatch, tmp_path):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    for host in ("0.0.0.0", "192.168.1.7", "models.example.org"):
        with pytest.raises(RequestError, match="give a key of yours"):
            _key(None, host)
    made, own = _key(None, "127.0.0.1")
    assert (len(made) >= 32, own) == (True, False)
    assert _key(None, "localhost")[0] != made
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(RequestError, match="at least 16"):
        _key(None, "127.0.0.1")
    file = tmp_path / "key"
    file.write_text("from a file, and long enough\n")
    assert _key(file, "0.0.0.0") == ("from a file, and long enough", True)
    file.write_bytes(b"\xff" * 32)
    with pytest.raises(RequestError, match="is no text"):
        _key(file, "0.0.0.0")


@pytest.mark.parametrize("device", ["cdua", "cuda:99"])
def test_a_device_that_is_not_there_is_named_before_anything_is_read(device, tmp_path):
    with pytest.raises(RequestError, match=f"--device {device}: torch has no such device here"):
        load(Request(), tmp_path, False, "auto", device)


def test_a_prompt_that_cannot_be_answered_is_told_in_a_sentence(monkeypatch):
    def generate_(*_):
        raise ValueError("the prompt has 9 tokens and the model's window 8: shorten it")

    released = SimpleNamespace(prompt=lambda *_, **__: [0] * 9, generate=generate_)
    monkeypatch.setattr("tasks.evaluate.generation.Released.load", lambda folder: released)
    with pytest.raises(RequestError, match="the model's window 8: shorten it"):
        generate("x", folder=Path(), root="data")


def test_a_folder_that_is_named_is_the_one_that_is_read(tmp_path):
    request = Request()
    assert _folder(request, tmp_path, int4=False) == tmp_path
    with pytest.raises(RequestError, match="name the INT4 folder"):
        _folder(request, tmp_path, int4=True)
    assert _folder(request, Path("~/release"), int4=False) == Path.home() / "release"
    with pytest.raises(RequestError, match="no release of this preset"):
        _folder(Request(root=str(tmp_path)), None, int4=True)


def test_what_would_be_lost_or_ignored_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("flows.evaluate_commands._measure", lambda *_: pytest.fail("it measures"))
    for options, told in (
        ({"record": str(tmp_path / "nowhere" / "record.json")}, "a folder that is there"),
        ({"record": str(tmp_path)}, "a folder that is there"),
        ({"others": ["other.json"]}, "say --compare"),
        ({"target": None, "compare": True, "record": "record.json"}, "--json is about what is measured now"),
        ({"target": None, "compare": True, "suite": ["sums"]}, "--suite is about what is measured now"),
    ):
        with pytest.raises(RequestError, match=told):
            evaluate(
                **{"target": "base", "root": str(tmp_path), "record": "", "compare": False, "others": None} | options
            )
