"""What a training job says in its log, said again where its stage is watched."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

log = logging.getLogger(__name__)

LINE = re.compile(r"^\d{4}-\d\d-\d\d \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)")
"""How the jobs' own logging begins a line; what launchers and libraries print is taken as it is."""
WINDOW = 10.0  # seconds
MOST = 100  # lines told in a window: a traceback fits, a flood stays in the file


class JobLog:
    """Follows a growing log file from where it ends at present."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.at = file.stat().st_size if file.exists() else 0
        self._window, self._told, self._kept = -WINDOW, 0, 0

    def relay(self, ended: bool = False) -> None:
        """Log the lines that were completed since the last call, and with `ended` the one that was not."""
        if time.monotonic() - self._window >= WINDOW or ended:
            self._open_window()
        if not self.file.exists():
            return
        with self.file.open("rb") as file:
            file.seek(self.at)
            data = file.read()
        whole = len(data) if ended else data.rfind(b"\n") + 1
        self.at += whole
        for line in data[:whole].decode(errors="replace").splitlines():
            if text := line.rstrip():
                self._tell(text)
        if ended:
            self._open_window()

    def _tell(self, text: str) -> None:
        if self._told >= MOST:
            self._kept += 1
            return
        self._told += 1
        found = LINE.match(text)
        level = logging.getLevelNamesMapping()[found[1]] if found else logging.INFO
        log.log(level, "%s", found[2] if found else text)

    def _open_window(self) -> None:
        if self._kept:
            log.warning("%d more lines stand in %s", self._kept, self.file)
        self._window, self._told, self._kept = time.monotonic(), 0, 0
