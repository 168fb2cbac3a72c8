"""How much a server may still write until it is asked again: one count for everything that comes from it."""

from __future__ import annotations

from tasks.agentic.mcp.config import ServerError

LEAST = 1 << 10
"""Bytes as which a message counts at least: a question of 75 takes 10,000 of memory here, and 0.3 ms."""


class Allowance:
    """Bytes left. Giant messages, endless notifications and floods of errors all end at the same place."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most

    def renew(self) -> None:
        """We are about to ask something."""
        self.left = self.most

    def take(self, count: int, messages: int = 0) -> None:
        """Count bytes that came, and messages among them; ServerError where they are too many."""
        self.left -= max(count, LEAST * messages)
        if self.left < 0:
            raise ServerError(f"it wrote more than limits.answer_bytes ({self.most:,}) between two of our requests")
