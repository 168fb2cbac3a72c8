"""The answers that were given before: found again whatever happened to the process, the file or the disk's room."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.engines.answers import FILE, Answers
from model.engines.engine import Completion, EngineError, Message, Prompt, Sampling

KILLED = """
import os, signal, sys
from pathlib import Path
from model.engines.answers import Answers
from tests.model.engines.test_answers import Counting, prompt
answers = Answers(Path(sys.argv[1]), "killed")
for number in range(50):
    answers.complete(Counting(), prompt(number))
os.kill(os.getpid(), signal.SIGKILL)
"""


class Counting:
    """An engine that counts what it is asked."""

    name, model, slots = "counting", "none", 8

    def __init__(self) -> None:
        self.asked: list[Prompt] = []

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.asked += prompts
        return [Completion(one.messages[0].content * 20, "stop", 3, 1, 2, 0.5) for one in prompts]


def prompt(number: int) -> Prompt:
    return Prompt((Message("user", f"text {number} é\u2028"),), Sampling(), 9, number)


class Embedded(Counting):
    """Gives as many tokens as its context has room for, as llama.cpp does."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.asked += prompts
        rooms = [min(one.max_tokens, self.context - 3) for one in prompts]
        return [Completion("a" * room, "length", 3, 0, room, 0.5) for room in rooms]


def test_an_answer_that_the_context_cut_is_not_that_of_a_larger_one(tmp_path: Path) -> None:
    answers, small, large = Answers(tmp_path), Embedded(8), Embedded(64)
    assert answers.complete(small, prompt(0))[0].text == "a" * 5
    for _ in range(2):
        assert answers.complete(large, prompt(0))[0].text == "a" * prompt(0).max_tokens
    assert len(large.asked) == 1  # what max_tokens ended is whole
    answers.close()


def test_what_was_asked_is_not_asked_again_and_who_paid_is_known(tmp_path: Path) -> None:
    first, engine = Answers(tmp_path, "one"), Counting()
    given = [first.complete(engine, prompt(number)) for number in range(5)]
    assert [first.complete(engine, prompt(number)) for number in range(5)] == given
    assert not any(reused for _, reused in given)
    another = Counting()
    another.model = "other"
    assert first.complete(another, prompt(4)) == (given[4][0], False)  # another model's answer is another
    assert len(another.asked) == 1
    first.close()
    with pytest.raises(EngineError, match="was closed"):
        first.complete(engine, prompt(0))
    other = Answers(tmp_path, "other")
    assert [other.complete(engine, prompt(number)) for number in range(5)] == [(answer, True) for answer, _ in given]
    assert (len(engine.asked), len(other)) == (5, 6)
    other.close()


def test_many_threads_and_two_openings_share_one_file(tmp_path: Path) -> None:
    engine, several = Counting(), [Answers(tmp_path, "a"), Answers(tmp_path, "b")]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: several[number % 2].complete(engine, prompt(number)), range(300)))
    assert all(len(some) == 300 for some in several)
    for some in several:
        some.close()


def test_a_killed_process_loses_no_answer(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, env=os.environ)
    assert run.returncode == -signal.SIGKILL
    again, engine = Answers(tmp_path, "killed"), Counting()
    for number in range(50):
        assert not again.complete(engine, prompt(number))[1]
    assert not engine.asked
    again.close()


def test_an_altered_answer_is_asked_again_and_counted(tmp_path: Path) -> None:
    Answers(tmp_path).close()
    answers, engine = Answers(tmp_path), Counting()
    for number in range(4):
        answers.complete(engine, prompt(number))
    answers.close()
    with sqlite3.connect(tmp_path / FILE) as db:
        keys = [row[0] for row in db.execute("SELECT key FROM answers ORDER BY key")]
        db.execute("UPDATE answers SET answer = CAST('not json' AS BLOB) WHERE key = ?", keys[:1])
        db.execute("UPDATE answers SET answer = CAST(replace(answer, 'text', 'test') AS BLOB) WHERE key = ?", keys[1:2])
        # another's, whole as it is, as a damaged index may give it
        other = "(SELECT digest, answer FROM answers WHERE key = ?)"
        db.execute(f"UPDATE answers SET (digest, answer) = {other} WHERE key = ?", (keys[3], keys[2]))
    again = Answers(tmp_path)
    for number in range(4):
        assert again.complete(engine, prompt(number))[0].text == f"text {number} é\u2028" * 20
    assert again.unreadable == 3
    assert len(engine.asked) == 7
    assert [again.complete(engine, prompt(number))[1] for number in range(4)] == [False] * 4
    again.close()


def test_answers_from_before_their_digest_held_the_key_are_kept(tmp_path: Path) -> None:
    answers, engine = Answers(tmp_path), Counting()
    answers.complete(engine, prompt(0))
    answers.close()
    with sqlite3.connect(tmp_path / FILE) as db:
        (data,) = db.execute("SELECT answer FROM answers").fetchone()
        db.execute("UPDATE answers SET digest = ?", (hashlib.sha256(data).digest()[:8],))
    again = Answers(tmp_path)
    again.complete(engine, prompt(0))
    again.close()
    assert len(engine.asked) == 1


@settings(deadline=None, max_examples=40)
@given(place=st.integers(0, 200_000), junk=st.binary(min_size=1, max_size=5000))
@example(place=3903, junk=b"\x80")  # in the schema, which the error then quotes
def test_no_broken_file_stops_a_run(tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes) -> None:
    folder, engine = tmp_path_factory.mktemp("broken"), Counting()
    answers = Answers(folder)
    for number in range(60):
        answers.complete(engine, prompt(number))
    answers.close()
    data = (folder / FILE).read_bytes()
    place %= len(data)
    (folder / FILE).write_bytes(data[:place] + junk + data[place + len(junk) :])
    again = Answers(folder)
    for _ in range(2):
        for number in range(60):
            assert again.complete(engine, prompt(number))[0].text == f"text {number} é\u2028" * 20
    again.close()


def test_the_file_keeps_to_its_bound_and_forgets_the_longest_unused(tmp_path: Path) -> None:
    bound = 200_000
    answers, engine = Answers(tmp_path, most_bytes=bound), Counting()
    for number in range(600):
        answers._today = number // 100  # six days
        answers.complete(engine, prompt(number))
    answers.complete(engine, prompt(3))  # of the first day, used on the last
    answers.close()
    assert (tmp_path / FILE).stat().st_size <= bound
    left = Answers(tmp_path)
    assert 0 < len(left) < 600
    asked = len(engine.asked)
    left.complete(engine, prompt(3))
    left.complete(engine, prompt(599))
    assert len(engine.asked) == asked
    left.complete(engine, prompt(5))
    assert len(engine.asked) == asked + 1
    left.close()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(EngineError, match=r"name a folder .* in `execution\.answers`"):
        Answers(tmp_path)
