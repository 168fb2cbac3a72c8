"""Log lines that are safe to show: they quote documents, addresses and other people's libraries."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from model.visible import visible
from tasks.address import redacted


def plain(text: str) -> str:
    """`text` without control characters and without the secrets of addresses."""
    return visible(redacted(text))


def plain_logs() -> None:
    """Let this process log `plain` lines. For a command, for the run of a deployment and for the worker processes that
    these start."""
    logging.setLogRecordFactory(_PlainRecord)


class _PlainRecord(logging.LogRecord):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.exc_info and self.exc_info[0] is not None:
            # what a formatter would write; it takes this text where there is one
            told = "".join(traceback.format_exception(*self.exc_info)).rstrip()
            self.exc_text = plain(told)

    def getMessage(self) -> str:
        return plain(super().getMessage())
