"""The one object that curation asks about a document's safety: may it enter, does an evaluation set have it, what must
be masked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.corpus.safety.blocklist import Blocklist
from tasks.corpus.safety.config import SafetyConfig
from tasks.corpus.safety.decontamination import Decontamination, read_items
from tasks.corpus.safety.pii import Scrubber

CONTAMINATED = "contaminated"


class Screen:
    """Everything under `corpus.safety`, made ready once per worker process."""

    def __init__(self, config: SafetyConfig, evaluations: Sequence[Path] = (), blocklists: Sequence[Path] = ()) -> None:
        """`evaluations` and `blocklists` are the parts of those names of the sources artifact."""
        self._blocklist = Blocklist(config.blocks, blocklists)
        self._scrubber = Scrubber(config.pii)
        self._decontamination = Decontamination(config.decontamination, read_items(evaluations))
        self._cuts = config.decontamination.action == "remove"

    def blocked(self, url: str, web_url: str = "") -> tuple[str, str] | None:
        """(reason, what matched) where the web address, or the path in `source:path`, is blocked; else None."""
        return self._blocklist.blocked(url, web_url)

    def contaminated(self, text: str) -> tuple[str, str, list[dict[str, Any]]] | None:
        """(reason, a sentence about the item most covered, rows for a table of HITS) where `text` must be dropped for
        what it shares with an evaluation set. None for a clean document, and for one that `cleaned` will do."""
        hits = self._decontamination.hits(text)
        if not hits or (self._cuts and self._decontamination.cut(text, hits) is not None):
            return None
        return CONTAMINATED, hits[0].sentence(), [hit.row() for hit in hits]

    def cleaned(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """(`text` without the passages that it shares with an evaluation set, rows for a table of HITS), for a document
        that `contaminated` let through. Does nothing unless `decontamination.action` is `remove`."""
        hits = self._decontamination.hits(text) if self._cuts else []
        cut = self._decontamination.cut(text, hits) if hits else text
        return (text, []) if cut is None or not hits else (cut, [hit.row() for hit in hits])

    def scrub(self, text: str, code: bool) -> tuple[str, dict[str, int]]:
        """`text` with typed placeholders for personal data and secrets, and how many there are of each kind."""
        return self._scrubber.scrub(text, code)
