"""Snapshots: what the sources hold now and did not hold before, as steps that follow one another.

    sources@0           corpus@0(sources@0)
    sources@1(@0)       corpus@1(sources@1, corpus@0)
    ...

`sources@k` holds what is new or has changed since the snapshots before it; `corpus@k` reads that alone, gives way to
every document of corpus@k-1, and lists the parts of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from model.cache import cache_folder
from tasks.artifact import Artifact, Step
from tasks.corpus.acquire import Known, acquire, first_snapshot, listing, resolve
from tasks.corpus.archives import Unreadable
from tasks.corpus.sources import SourcesConfig


def acquire_new(step: Step, cache: Path | None = None) -> Artifact | None:
    """Publish as `step` what the sources hold and no snapshot before it; None, and nothing is written, where that is
    nothing. What could not be read is news only beside something that could. Raises as `acquire`: a source that served
    in the first snapshot has to be there.

    A run that was killed goes on: sources that it had listed are not listed again.
    """
    config = step.config
    assert isinstance(config, SourcesConfig)
    cache = cache or cache_folder()
    known = frozenset(entry for earlier in step.versions()[:-1] for entry in _listed(earlier.require()))
    if not step.recorded() and not _anything(config, cache, known, first_snapshot(step)):
        return None
    return acquire(step, cache, known=known)


def _listed(sources: Artifact) -> Iterator[tuple[str, str, str]]:
    """(source, path, checksum or why it could not be read) of everything that a snapshot lists."""
    for part in sources.parts("listing"):
        with sources.file(part).open(encoding="utf-8") as lines:
            for entry in map(json.loads, lines):
                yield part.key.removeprefix("listing/"), entry["path"], entry.get("checksum") or entry["unreadable"]


def _anything(config: SourcesConfig, cache: Path, known: Known, first: Artifact | None) -> bool:
    return any(
        not isinstance(item, Unreadable)
        for one in resolve(config, cache, offline=False, first=first)
        for item in listing(one, config, cache, known)
    )
