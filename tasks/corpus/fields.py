"""Which keys or columns of a record are what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.corpus.extract.passage import Passage
from tasks.corpus.sources import FolderSource, Source


@dataclass(frozen=True)
class Fields:
    """The names under which records of a source keep what a document needs."""

    text: str = "text"
    licence: str | None = None
    url: str | None = None

    @classmethod
    def of(cls, source: Source) -> Fields:
        if isinstance(source, FolderSource):
            return cls(source.text_field, source.licence_field, source.url_field)
        return cls()

    def passage(self, record: Mapping[str, Any], anchor: str) -> Passage:
        """The record as a passage. A licence that is no text (a list of several, a number) comes as JSON, which no
        policy takes: without one of its own the record would be under the source's."""
        text, url = (_string(record, name) for name in (self.text, self.url))
        licence = record.get(self.licence) if self.licence else None
        said = licence if isinstance(licence, str) else json.dumps(licence, default=str) if licence else ""
        return Passage(text, anchor=anchor, licence=said, url=url)


def _string(record: Mapping[str, Any], key: str | None) -> str:
    value = record.get(key) if key else None
    return value if isinstance(value, str) else ""
