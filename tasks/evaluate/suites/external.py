"""A harness of the user's (SWE-bench, tau2): a command that asks the model at an address of ours and writes its scores
to a file.

It is told in environment variables:

    OPENAI_BASE_URL, OPENAI_API_KEY    the address, ending in /v1, and its key
    OPENK2_MODEL                       the model's name there
    OPENK2_SCORES                      the path that the scores are to be written to
    OPENK2_SEED                        the seed of the suites

A harness is trusted as any program that its user starts; the file that it writes is not.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from pydantic import Field, ValidationError, model_validator

from model.config import Config
from model.dialogue import strict_json
from model.visible import encodable, flat
from tasks.evaluate.suites.config import External
from tasks.evaluate.suites.item import Item, Measured, Scored, SuiteError, Unmeasurable, rate
from tasks.evaluate.suites.subject import Endpoint, Network, Subject
from tasks.process import die_with_parent, marked, stop
from training.intervals import mean, wilson

log = logging.getLogger(__name__)

NAME = "openk2"
"""What a checkpoint is called where we serve it."""
ROWS, WAITING = 32, 512
"""Answers that are generated at once, and that may wait: as `openk2 serve` has them."""
PASSED_ON = ("PATH", "HOME", "LANG", "USER")
MARK = "OPENK2_HARNESS"
"""An environment variable by which a harness's descendants are known, also those that left its process group."""
PATIENCE = 10.0
"""Seconds that a harness has to tidy up after SIGTERM, such as to remove its containers."""
MOST_BYTES, MOST_ITEMS = 64 << 20, 10_000_000
LAST_WORDS, QUOTED = 8000, 400
"""Bytes of its output that are read where it fails, and how many characters of them are quoted."""
SHORTEST_SECRET = 8
"""A shorter value of a variable (`EMPTY`, `1`) is no secret, and would be found in any text."""


class FailedError(ValueError):
    """What was wrong with a harness or its scores, without the suite's name."""


@dataclass(frozen=True)
class Address:
    """Where a harness finds the model."""

    url: str
    name: str
    key: str


class Problem(Config):
    """One problem of a harness."""

    id: str = Field(min_length=1, max_length=500)
    score: float = Field(ge=0, le=1)
    reply: str = ""
    why: str = ""


class Scores(Config):
    """What a harness writes: either `rows`, or `correct` and `count`."""

    measure: str = Field(default="right", min_length=1, max_length=80)
    rows: tuple[Problem, ...] = Field(default=(), max_length=MOST_ITEMS)
    correct: int | None = Field(default=None, ge=0)
    count: int | None = Field(default=None, ge=1, le=MOST_ITEMS)

    @model_validator(mode="after")
    def _one_of_two_forms(self) -> Self:
        both = self.correct is not None and self.count is not None
        if both == bool(self.rows) or both != (self.correct is not None or self.count is not None):
            raise ValueError("it gives either `rows`, or both `correct` and `count`")
        if self.correct is not None and self.count is not None and self.correct > self.count:
            raise ValueError("more are correct than there are")
        if len({row.id for row in self.rows}) < len(self.rows):
            raise ValueError("several rows have one id")
        return self


def measure(suite: External, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """Run the suite's command against the model and read what it wrote. Raises SuiteError where that fails, or
    Unmeasurable where the suite is optional."""
    hidden: list[str] = []
    try:
        variables = _variables(suite)
        with served(subject) as address, _folder() as folder:
            hidden += [value for value in (address.key, *variables.values()) if len(value) >= SHORTEST_SECRET]
            scores = folder / "scores.json"
            variables |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            variables |= {
                "OPENAI_BASE_URL": address.url,
                "OPENAI_API_KEY": address.key,
                "OPENK2_MODEL": address.name,
                "OPENK2_SCORES": str(scores),
                "OPENK2_SEED": str(seed),
            }
            log.info("suite '%s': %s asks %s at %s", suite.name, suite.command[0], address.name, address.url)
            _run(suite, variables, folder, hidden)
            return _measured(read(scores), hidden)
    except FailedError as error:
        told = f"suite '{suite.name}': {error}"
        raise Unmeasurable(told) if suite.optional else SuiteError(told) from None


@contextmanager
def served(subject: Subject) -> Iterator[Address]:
    """The subject's address: its own, or that of a server of ours while the block runs."""
    if isinstance(subject, Endpoint):
        if len(subject.engine.urls) > 1:
            raise FailedError("a harness asks one address: name one replica, or put a proxy before them")
        # clients such as `openai` do not begin without a key
        yield Address(subject.engine.urls[0], subject.engine.model, subject.engine.key or "none")
        return
    if not isinstance(subject, Network):
        raise FailedError("it asks a model that can be served")
    from model.serve.app import application
    from model.serve.server import in_background

    key = secrets.token_urlsafe(32)
    with in_background(application(subject.model, subject.chat, NAME, key, ["127.0.0.1"], ROWS, WAITING)) as url:
        yield Address(f"{url}/v1", NAME, key)


def read(path: Path) -> Scores:
    """The scores in a file of which nothing is known. Raises FailedError."""
    if not path.is_file():
        raise FailedError("it ended well but wrote no file to $OPENK2_SCORES")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise FailedError(f"its scores have over {MOST_BYTES >> 20} MiB: leave the replies out")
    try:
        return Scores.model_validate(strict_json(content.decode("utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in [".".join(map(str, first["loc"]))] if part)
        raise FailedError(f"its scores are not of the form expected: {place}{flat(first['msg'], QUOTED)}") from None
    except (ValueError, RecursionError) as error:
        raise FailedError(f"its scores are no JSON: {flat(str(error), QUOTED)}") from None


def _measured(scores: Scores, hidden: Sequence[str]) -> Measured:
    name = _hiding(scores.measure, hidden)
    if scores.correct is not None and scores.count is not None:
        return Measured(name, [], wilson(scores.correct, scores.count), counted=scores.count)
    rows = [
        Scored(_hiding(row.id, hidden), row.score, _hiding(row.reply, hidden), _hiding(row.why, hidden))
        for row in scores.rows
    ]
    whole = all(row.score in (0.0, 1.0) for row in rows)
    return Measured(name, rows, rate(rows) if whole else mean([row.score for row in rows]))


def _variables(suite: External) -> dict[str, str]:
    if missing := [name for name in suite.environment if name not in os.environ]:
        raise FailedError(f"it needs the environment variable {missing[0]}, which is not set")
    return {name: os.environ[name] for name in suite.environment}


@contextmanager
def _folder() -> Iterator[Path]:
    # files of containers may belong to somebody else
    with tempfile.TemporaryDirectory(prefix="openk2-harness-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _run(suite: External, variables: dict[str, str], folder: Path, hidden: Sequence[str]) -> None:
    """Run the command in an empty folder; at the end nothing of it is left. FailedError where it does not end well."""
    program = shutil.which(suite.command[0])
    if program is None:
        raise FailedError(f"there is no program {suite.command[0]}: install it, or correct `command`")
    work, output, mark = folder / "work", folder / "output", uuid.uuid4().hex
    work.mkdir()
    with output.open("wb") as log_file:
        try:
            process = subprocess.Popen(
                [str(Path(program).absolute()), *suite.command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                cwd=work,
                env={**variables, "TMPDIR": str(folder), MARK: mark},
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        except (OSError, ValueError) as error:  # a script that names no interpreter, an argument with a null character
            raise FailedError(f"{suite.command[0]} cannot be started: {error}") from None
    try:
        code = process.wait(timeout=suite.seconds)
    except subprocess.TimeoutExpired:
        raise FailedError(f"it did not end within {suite.seconds:g} s{_last_words(output, hidden)}") from None
    finally:
        _end(process, mark)
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise FailedError(f"it {how}{_last_words(output, hidden)}")


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End the command and all that it started, also what has left its process group."""
    stop(process, PATIENCE)
    for _ in range(100):  # what forks while it is being killed is found the next time
        left = marked(MARK, mark)
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        if not left:
            return
        time.sleep(0.05)


def _last_words(output: Path, hidden: Sequence[str]) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - LAST_WORDS))
        words = _hiding(file.read().decode("utf-8", "replace"), hidden)  # before it is cut: half a key is one, too
    return f"; its last words: {flat(words)[-QUOTED:]}" if words.strip() else ""


def _hiding(text: str, hidden: Sequence[str]) -> str:
    """A text that a harness wrote, without the secrets that it was given."""
    for secret in hidden:
        text = text.replace(secret, "***")
    return encodable(text)
