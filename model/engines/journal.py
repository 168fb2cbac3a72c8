"""The journal of answered requests: what a killed run need not ask again.

One JSON line per answer, keyed by everything that decided it (`Prompt.key`). Appended as answers come in; a line that a
kill cut short is not read. It is never part of an artifact: what makes one removes it when the part that used it has
been written, or keeps it where asking again would cost.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path

from model.engines.engine import Completion, Engine, Prompt


class Journal:
    """Answers by request; safe to call from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._answers: dict[str, Completion] = {}
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if not line.endswith(b"\n"):
                break
            key, record = json.loads(line)
            self._answers[key] = Completion(**record)
            whole += len(line)
        self._file = path.open("ab")
        self._file.truncate(whole)
        self._lock = threading.Lock()

    def complete(self, engine: Engine, prompt: Prompt) -> Completion:
        """The answer that was given before, or the engine's, written down before it is returned."""
        key = prompt.key(engine.name, engine.model)
        if key in self._answers:
            return self._answers[key]
        answer = engine.complete([prompt])[0]
        line = json.dumps([key, asdict(answer)], ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
        return answer

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        """Close it for good: its part has been written."""
        self.close()
        self.path.unlink(missing_ok=True)
