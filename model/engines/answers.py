"""The answers that engines gave, by everything that decided them (`Prompt.key`): what need not be asked again.

One SQLite file, in a folder that every configuration of every run shares: a run that was killed goes on where it was,
and one that only checks its answers otherwise asks nothing. An answer is in the file before it is used. Answers are
bulk goods: what cannot be read is asked again (and counted), and the oldest go where the file would exceed its bound.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from model.engines.engine import Completion, Engine, EngineError, Prompt

log = logging.getLogger(__name__)

FILE = "answers.sqlite"
DAY = 86_400
KEPT = 0.8
"""Share of the bound that is left after a cleaning."""
BUSY_SECONDS = 60.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    key BLOB NOT NULL UNIQUE, payer BLOB NOT NULL, day INTEGER NOT NULL, digest BLOB NOT NULL, answer BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS days ON answers (day);
"""
OUTSIDE = {
    getattr(sqlite3, f"SQLITE_{name}") for name in ("BUSY", "LOCKED", "READONLY", "IOERR", "CANTOPEN", "PERM", "NOMEM")
}
"""Errors that are no fault of the file's bytes."""
BROKEN = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What a damaged file raises: an error that quotes bytes of it is decoded as UTF-8."""
T = TypeVar("T")


class Answers:
    """Answers by request. Safe to call from several threads, and to open from several processes of one machine.

    An answer that was given is in the file when `complete` returns: it outlives SIGKILL (not always a power cut).
    """

    def __init__(self, folder: Path, payer: str = "", most_bytes: int = 0) -> None:
        """`payer`: who is asking, such as a step's fingerprint; written beside what it pays for. `most_bytes`: size
        above which the answers longest unused are forgotten, when opened and when closed; 0 has no bound."""
        self.path, self.payer, self.most_bytes = folder / FILE, payer, most_bytes
        self.unreadable = 0
        """Answers that could not be read and were asked again."""
        self._lock = threading.Lock()
        self._today = int(time.time()) // DAY
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._open()
        except BROKEN as error:
            self._begin_anew(error)
        self._clean()

    def complete(self, engine: Engine, prompt: Prompt) -> tuple[Completion, bool]:
        """The answer that was given before, or the engine's; and whether another payer has paid for it."""
        key = bytes.fromhex(prompt.key(engine.name, engine.model))
        if (found := self._get(key)) is not None and not _cut_by_context(engine, prompt, found[0]):
            return found
        answer = engine.complete([prompt])[0]
        if not _cut_by_context(engine, prompt, answer):
            self._put(key, answer)
        return answer, False

    def __len__(self) -> int:
        return self._do(lambda db: int(db.execute("SELECT count(*) FROM answers").fetchone()[0]))

    def close(self) -> None:
        """Forget what is too much, and close."""
        self._clean()
        with self._lock:
            self._db.close()

    def _get(self, key: bytes) -> tuple[Completion, bool] | None:
        row = self._do(
            lambda db: db.execute("SELECT payer, day, digest, answer FROM answers WHERE key = ?", (key,)).fetchone()
        )
        if row is None:
            return None
        payer, day, digest, data = row
        try:
            if not _intact(key, digest, data):
                raise ValueError("it was altered")
            answer, stale = Completion(**json.loads(data)), int(day) < self._today
        except (TypeError, ValueError) as error:
            self.unreadable += 1
            log.warning("%s: an answer cannot be read (%s) and is asked for again", self.path, error)
            return None
        if stale:  # used: not the next to be forgotten
            self._do(lambda db: db.execute("UPDATE answers SET day = ? WHERE key = ?", (self._today, key)))
        return answer, payer != self.payer.encode()

    def _put(self, key: bytes, answer: Completion) -> None:
        data = json.dumps(asdict(answer), ensure_ascii=False).encode()
        row = (key, self.payer.encode(), self._today, _digest(key + data), data)
        self._do(
            lambda db: db.execute(
                "INSERT OR REPLACE INTO answers (key, payer, day, digest, answer) VALUES (?, ?, ?, ?, ?)", row
            )
        )

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """`work` on the database; one that turns out broken is put aside and begun anew."""
        with self._lock:
            try:
                return work(self._db)
            except sqlite3.ProgrammingError:
                raise EngineError(f"{self.path} was closed while it was asked") from None
            except BROKEN as error:
                self._begin_anew(error)
                return work(self._db)

    def _open(self) -> None:
        # Autocommit; the write-ahead log is with the operating system before an answer is used.
        self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(SCHEMA)

    def _begin_anew(self, error: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
        """Put a broken file aside, keep what can still be read of it, and go on with a new one. Raises OSError for a
        full disk, EngineError where the file can be neither read nor written."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path)) from error
        if code in OUTSIDE:
            raise EngineError(
                f"{self.path}: {error}: name a folder on a disk of this machine in `execution.answers`"
            ) from error
        aside = self.path.with_name(f"{FILE}.broken-{time.time_ns()}")
        log.warning("%s is no sound database (%s): it is put aside as %s", self.path, error, aside.name)
        if hasattr(self, "_db"):
            self._db.close()
        for suffix in ("-wal", "-shm"):
            self.path.with_name(FILE + suffix).unlink(missing_ok=True)
        self.path.rename(aside)
        self._open()
        self.unreadable += 1
        log.warning("%s: %d answers were saved", self.path, self._save(aside))

    def _save(self, aside: Path) -> int:
        saved = 0
        try:
            old = sqlite3.connect(f"file:{aside}?mode=ro", uri=True)
            for row in old.execute("SELECT key, payer, day, digest, answer FROM answers"):
                if _intact(row[0], row[3], row[4]):
                    self._db.execute(
                        "INSERT OR REPLACE INTO answers (key, payer, day, digest, answer) VALUES (?, ?, ?, ?, ?)", row
                    )
                    saved += 1
        except (sqlite3.Error, UnicodeDecodeError) as error:
            log.warning("%s: the rest cannot be read (%s)", aside, error)
        return saved

    def _clean(self) -> None:
        """Forget the answers longest unused until the file is within its bound."""

        def work(db: sqlite3.Connection) -> None:
            def size() -> int:
                pages = (
                    db.execute("PRAGMA page_count").fetchone()[0] - db.execute("PRAGMA freelist_count").fetchone()[0]
                )
                return int(pages) * int(db.execute("PRAGMA page_size").fetchone()[0])

            if not self.most_bytes or size() <= self.most_bytes:
                return
            before = db.execute("SELECT count(*) FROM answers").fetchone()[0]
            while size() > KEPT * self.most_bytes:
                some = max(1, db.execute("SELECT count(*) FROM answers").fetchone()[0] // 20)
                gone = db.execute(
                    "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY day, rowid LIMIT ?)", (some,)
                )
                if not gone.rowcount:
                    break
            db.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            after = db.execute("SELECT count(*) FROM answers").fetchone()[0]
            log.info("%s: %d answers longest unused were forgotten", self.path, before - after)

        self._do(work)


def _cut_by_context(engine: Engine, prompt: Prompt, answer: Completion) -> bool:
    """Whether an embedded engine's context ended the answer, of which the key does not know: it is not kept, for a
    larger context goes on."""
    embedded = bool(getattr(engine, "context", 0))  # an endpoint's is not ours to choose
    return embedded and answer.finish == "length" and answer.generated_tokens < prompt.max_tokens


def _intact(key: Any, digest: Any, data: Any) -> bool:
    """Whether an answer is what was given, and given to this request: a damaged index leads to another's. Files made
    before the key was in it have the digest of the answer alone."""
    found = isinstance(key, bytes) and isinstance(data, bytes)
    return found and digest in (_digest(key + data), _digest(data))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:8]
