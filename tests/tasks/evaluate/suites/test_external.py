"""A harness as a command: what it is given, what it may write, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from model.chat import Chat
from model.engines.openai import OpenAI
from tasks.evaluate.suites import external
from tasks.evaluate.suites.config import External, SuitesConfig
from tasks.evaluate.suites.item import SuiteError, Unmeasurable
from tasks.evaluate.suites.subject import Ask, Endpoint, Network
from tasks.evaluate.suites.table import Chosen
from tasks.evaluate.suites.table import measure as measure_all
from tests.tasks.evaluate.conftest import small_model, small_tokenizer
from training.intervals import wilson

ASKING = Path(__file__).with_name("asking.py")
QUESTIONS = ("What is 12 + 30?", "The answer")


@pytest.fixture(scope="module")
def subject() -> Network:
    return Network(small_model(), Chat(small_tokenizer()))


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Endpoint:
    """A model that nobody asks."""
    monkeypatch.setenv("OPENK2_ENGINE_KEY", "the key of an endpoint")
    return Endpoint(OpenAI("http://127.0.0.1:9/v1", "far"))


def suite(*command: str, **more: Any) -> External:
    return External(kind="external", name="mine", command=command, **more)


def python(source: str, **more: Any) -> External:
    return suite(sys.executable, "-c", f"import json, os, sys, time, subprocess\n{source}", **more)


def writing(content: str | bytes) -> External:
    told = content if isinstance(content, bytes) else content.encode()
    return python(f"open(os.environ['OPENK2_SCORES'], 'wb').write({told!r})")


@pytest.mark.parametrize("client", ["httpx", "openai"])
def test_a_harness_asks_the_checkpoint_and_its_rows_are_the_score(subject, client, monkeypatch):
    if client == "openai":
        pytest.importorskip("openai")
    monkeypatch.setenv("A_SECRET_OF_OURS", "never to be seen")
    monkeypatch.setenv("NAMED", "passed on")
    asking = suite(sys.executable, str(ASKING), client, *QUESTIONS, environment=("NAMED",))
    found = external.measure(asking, subject, (), 7)
    *rows, told = found.scored
    own = subject.replies([Ask(text=question, max_new_tokens=8) for question in QUESTIONS])
    assert [row.reply for row in rows] == [replies[0].content for replies in own]
    assert any(row.reply for row in rows)
    assert (found.measure, found.score) == ("resolved", wilson(1, 3))
    given = json.loads(told.reply)
    assert "A_SECRET_OF_OURS" not in given
    assert given["NAMED"] == "***"  # it was passed on, and is kept nowhere
    assert given["OPENAI_API_KEY"] == "***"
    assert (given["OPENK2_MODEL"], given["OPENK2_SEED"], told.why) == ("openk2", "7", "[]")
    assert not Path(given["OPENK2_SCORES"]).parent.exists()
    with pytest.raises(
        SuiteError, match=r"suite 'mine': it ended with exit code 1; its last words: .*Connection (refused|error)"
    ):
        external.measure(asking, _at(given["OPENAI_BASE_URL"]), (), 0)  # the server has gone with the suite


def _at(url: str) -> Endpoint:
    return Endpoint(OpenAI(url, "far"))


def test_an_endpoint_is_asked_where_it_is_with_the_key_of_engines(nowhere):
    source = "print(os.environ['OPENAI_BASE_URL'], os.environ['OPENK2_MODEL'], len(os.environ['OPENAI_API_KEY']))"
    with pytest.raises(SuiteError, match=r"last words: http://127.0.0.1:9/v1 far 22$"):
        external.measure(python(f"{source}\nsys.exit(1)"), nowhere, (), 0)
    two = Endpoint(OpenAI("http://127.0.0.1:9/v1,http://127.0.0.1:8/v1", "far"))
    with pytest.raises(SuiteError, match="suite 'mine': a harness asks one address"):
        external.measure(python(""), two, (), 0)


def test_scores_are_counts_or_shares_with_their_intervals(nowhere):
    counted = external.measure(writing('{"correct": 3, "count": 8}'), nowhere, (), 0)
    assert (counted.score, counted.counted, counted.scored) == (wilson(3, 8), 8, [])
    rows = [{"id": str(place), "score": score} for place, score in enumerate((0.25, 1, 0))]
    shares = external.measure(writing(json.dumps({"rows": rows})), nowhere, (), 0)
    assert shares.score is not None
    assert shares.score.value == pytest.approx(1.25 / 3)
    assert shares.score.low < 0.1 < 0.8 < shares.score.high


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"correct": 1, "count": 1, "count": 2}', "a key is there twice"),
        ('{"correct": NaN, "count": 2}', "NaN is no JSON"),
        ('{"rows": [{"id": "a", "score": Infinity}]}', "Infinity is no JSON"),
        ('{"rows": [{"id": "a", "score": 1e999}]}', r"rows\.0\.score"),
        ('{"rows": [{"id": "a", "score": -0.5}]}', r"rows\.0\.score"),
        ('{"rows": [{"id": "a", "score": 1.5}]}', r"rows\.0\.score"),
        ('{"rows": [{"id": "a", "score": true}]}', r"rows\.0\.score"),
        ('{"rows": [{"id": "a", "score": "1"}]}', r"rows\.0\.score"),
        ('{"rows": [{"id": "", "score": 1}]}', r"rows\.0\.id"),
        ('{"rows": [{"id": "a", "score": 1}, {"id": "a", "score": 0}]}', "several rows have one id"),
        ('{"rows": []}', "either `rows`, or both"),
        ("{}", "either `rows`, or both"),
        ('{"correct": 1}', "either `rows`, or both"),
        ('{"correct": 1, "count": 2, "rows": [{"id": "a", "score": 1}]}', "either `rows`, or both"),
        ('{"correct": 3, "count": 2}', "more are correct"),
        ('{"correct": -1, "count": 2}', "correct"),
        ('{"correct": 0, "count": 0}', "count"),
        ('{"correct": 1, "count": 1000000000000}', "count"),
        ('{"correct": 1, "count": ' + "9" * 5000 + "}", "no JSON"),
        ('{"correct": 1.0, "count": 2}', "correct"),
        ('{"correct": 1, "count": 2, "more": 3}', "more"),
        ("[1]", "form expected"),
    ],
)
def test_a_file_that_holds_no_scores_is_one_error_that_names_the_suite(nowhere, content, told):
    with pytest.raises(SuiteError, match=rf"^suite 'mine': its scores [^\n]*{told}"):
        external.measure(writing(content), nowhere, (), 0)


def test_a_harness_that_fails_is_one_error_or_stands_as_not_measured(nowhere, tmp_path, monkeypatch):
    monkeypatch.setattr(external, "MOST_BYTES", 100)
    script = tmp_path / "harness"
    script.write_text("echo no interpreter is named\n")
    script.chmod(0o755)
    for harness, told in (
        (suite(str(script)), "harness cannot be started: .*Exec format error"),
        (python(""), r"wrote no file to \$OPENK2_SCORES"),
        (python("os.mkfifo(os.environ['OPENK2_SCORES'])"), "wrote no file"),
        (writing(b" " * 101), "its scores have over"),
        (python("print('no\\nluck\\x1b[2J'); sys.exit(3)"), r"exit code 3; its last words: no luck␛\[2J"),
        (python("os.kill(os.getpid(), 9)"), "ended by signal 9"),
        (suite("no-such-program"), "there is no program no-such-program"),
        (python("", environment=("NOT_SET_ANYWHERE",)), "NOT_SET_ANYWHERE, which is not set"),
    ):
        with pytest.raises(SuiteError, match=rf"^suite 'mine': [^\n]*{told}"):
            external.measure(harness, nowhere, (), 0)
        with pytest.raises(Unmeasurable, match="suite 'mine': "):
            external.measure(harness.model_copy(update={"optional": True}), nowhere, (), 0)


def test_no_secret_is_repeated_also_where_a_quotation_would_cut_it(nowhere, monkeypatch):
    monkeypatch.setenv("USERS_KEY", "sk-0123456789")
    source = "print(os.environ['OPENAI_API_KEY'] + os.environ['USERS_KEY'] + '.' * (external - 8)); sys.exit(1)"
    harness = python(source.replace("external", str(external.QUOTED)), environment=("USERS_KEY",))
    with pytest.raises(SuiteError) as error:
        external.measure(harness, nowhere, (), 0)
    assert "***..." in str(error.value)
    assert "endpoint" not in str(error.value)
    assert "6789" not in str(error.value)
    for command in (("run", "--url", "https://me:secret@host/"), ("run", "--url", "https://host/?api_key=abc")):
        with pytest.raises(ValueError, match="must not hold credentials"):
            suite(*command)
    for name in ("OPENAI_API_KEY", "OPENK2_SCORES"):
        with pytest.raises(ValueError, match="is set for the harness"):
            python("", environment=(name,))


TREE = """
child = "import os, sys, time; os.setsid() if sys.argv[2] == 'far' else None; "
child += "open(sys.argv[1], 'a').write(str(os.getpid()) + '\\\\n'); time.sleep(600)"
for kind in ("near", "far"):
    subprocess.Popen([sys.executable, "-c", child, sys.argv[1], kind])
"""


@pytest.mark.parametrize("ends", [True, False])
def test_nothing_of_a_harness_is_left_when_it_ends_or_its_time_is_up(nowhere, tmp_path, ends, monkeypatch):
    monkeypatch.setattr(external, "PATIENCE", 0.2)
    pids = tmp_path / "pids"
    waiting = f"while not os.path.exists({str(pids)!r}) or len(open({str(pids)!r}).readlines()) < 2: time.sleep(0.01)\n"
    last = "sys.exit(5)" if ends else "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    source = TREE + waiting + last
    command = (*python(source).command, str(pids))
    started: list[int] = []
    for seconds in (2.0, 15.0, 90.0):  # a busy machine takes long to start three programs
        with pytest.raises(SuiteError, match=r"exit code 5|did not end within"):
            external.measure(suite(*command, seconds=seconds), nowhere, (), 0)
        started += [int(line) for line in pids.read_text().split()] if pids.exists() else []
        if len(started) >= 2:
            break
    assert len(started) >= 2
    deadline = time.monotonic() + 60  # a killed process is there until it is scheduled once more
    while any(map(lives, started)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(lives, started))


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_harnesses_run_before_what_costs_hours_and_a_count_is_a_record(nowhere):
    rows = [{"kind": "positions"}, writing('{"correct": 3, "count": 8}').model_dump()]
    config = SuitesConfig.model_validate({"rows": rows})
    records, answers = measure_all(config, nowhere, dict.fromkeys(("mine", "positions"), Chosen()), None, "far")
    assert list(records) == ["mine", "positions"]
    assert records["mine"]["items"] == 8
    assert records["mine"]["score"] == wilson(3, 8).rounded()
    assert answers == []
    assert os.environ["OPENK2_ENGINE_KEY"] not in json.dumps(records)
