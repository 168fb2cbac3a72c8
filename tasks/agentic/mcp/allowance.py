"""How much a server may still write until it is asked again: one count for everything that comes from it."""

from __future__ import annotations

from tasks.agentic.mcp.config import ServerError


class Allowance:
    """Bytes left. Giant messages, endless notifications and floods of errors all end at the same place."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most

    def renew(self) -> None:
        """We are about to ask something."""
        self.left = self.most

    def take(self, count: int) -> None:
        """Count bytes that came; ServerError where they are too many."""
        self.left -= count
        if self.left < 0:
            raise ServerError(f"it wrote more than limits.answer_bytes ({self.most:,}) between two of our requests")
