"""One partition, from raw files to candidate documents and rejects: what a worker does, a batch of documents at a time.

Memory holds one raw record, one batch of rows and the partition's index, whatever the partition's size.
"""

from __future__ import annotations

import json
import logging
import mmap
import re
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from tasks.artifact import Artifact, Part, Step
from tasks.corpus import licence, records
from tasks.corpus.archives import PACKED, Unreadable
from tasks.corpus.config import HEAD_CHARS, CorpusConfig
from tasks.corpus.dedup.index import IndexWriter
from tasks.corpus.executor import Death
from tasks.corpus.extract.passage import Passage
from tasks.corpus.language import identify
from tasks.corpus.quality.judge import judge
from tasks.corpus.quality.measures import BadWordsError
from tasks.corpus.quality.tally import Tally
from tasks.corpus.reading import passages
from tasks.corpus.repair import repair
from tasks.corpus.safety.blocklist import Blocklist
from tasks.corpus.safety.config import SafetyConfig
from tasks.corpus.safety.decontamination import HITS, Decontamination, read_items
from tasks.corpus.safety.pii import Scrubber
from tasks.corpus.sources import PLACE, Source
from tasks.corpus.split import split
from tasks.corpus.storage import label
from tasks.corpus.watch import Loss, Watch

log = logging.getLogger(__name__)

CONTAMINATION = pa.schema(
    [pa.field("url", pa.string(), nullable=False), pa.field("source", pa.string(), nullable=False), *HITS]
)
_ARCHIVE = re.compile(rf".*?(?:{'|'.join(map(re.escape, PACKED))})(?=/|$)", re.IGNORECASE | re.DOTALL)
SOURCE: TypeAdapter[Source] = TypeAdapter(Source)


def refine(
    step: Step,
    key: str,
    sources: Artifact,
    raw: Part,
    served: dict[str, Any],
    lost: tuple[Loss, ...] = (),
    slot: mmap.mmap | None = None,
) -> Part:
    """Write `rejected/<key>`, `index/<key>`, `contamination/<key>` where there was any, and, last, `candidates/<key>`
    for one part of `sources`; returns the last.

    served: the record of the source that the part belongs to (`sources_of`). lost: what ended a worker before. The
    candidates' statistics say how many documents were `read`, as many as there are candidates and rejected rows, and
    how the `rules` judged them.
    """
    config = step.config
    assert isinstance(config, CorpusConfig)
    began = time.process_time()
    screen = _screen(config.safety, sources)
    stages = Stages(SOURCE.validate_python(served["source"]), config, screen)
    index, rejects = IndexWriter(config.dedup), records.Rejects()
    watch = Watch(slot, config.document_seconds_max, config.document_memory_max, lost)

    def everything(path: Path) -> None:
        with records.Writer(path, records.DOCUMENT, index.add) as kept:
            step.put(
                f"rejected/{key}",
                ".parquet",
                lambda path: stream(kept, path),
                rows=lambda: rejects.rows,
                statistics=lambda: {
                    **rejects.record(),
                    **stages.lost(file_sizes(sources.file(raw))),
                    "masked": dict(sorted(stages.masked.items())),
                },
            )
        step.put(f"index/{key}", ".index", index.write, rows=kept.rows)
        if stages.hits:
            found = records.table(stages.hits, CONTAMINATION)
            step.put(f"contamination/{key}", ".parquet", lambda path: records.write(path, found), rows=len(stages.hits))

    def stream(kept: records.Writer, path: Path) -> None:
        with records.Writer(path, records.REJECTED, rejects.add) as rejected:
            for row in stages.rows(
                passages(sources.file(raw), stages.source, served["record_bytes_max"], watch), watch
            ):
                (rejected if "stage" in row else kept).add(row)
            watch.end()

    # Recorded last: a partition without candidates is done again.
    return step.put(
        f"candidates/{key}",
        ".parquet",
        everything,
        rows=lambda: stages.read - rejects.rows,
        statistics=lambda: {
            "read": stages.read,
            "contaminations": len(stages.hits),
            "cpu_seconds": round(time.process_time() - began, 3),
            "rules": stages.tally.record(),
        },
    )


def without(arguments: tuple[Any, ...], death: Death) -> tuple[Any, ...] | None:
    """The arguments of `refine` to go on with after a worker died at a document: without that document. One that died
    of neither time nor memory is tried once more: somebody else may have ended its worker."""
    config, lost = arguments[0].config, arguments[5]
    before = [loss.kind for loss in lost if loss.place == death.place]
    if not death.place or set(before) - {"suspected"}:
        return None
    reasons = {
        "over_time": f"took over {config.document_seconds_max:g} seconds of CPU time (corpus.document_seconds_max)",
        "over_memory": f"took over {config.document_memory_max:,} bytes of memory (corpus.document_memory_max)",
        "crashed": f"ended its reader twice, the last time with code {death.code}",
    }
    kind = "suspected" if death.kind == "crashed" and not before else death.kind
    log.warning("%s: place %d of the partition: %s", arguments[1], death.place, reasons[death.kind])
    return (*arguments[:5], (*lost, Loss(death.place, kind, reasons[death.kind])))


@dataclass(frozen=True)
class Screen:
    """What a document's safety is asked of."""

    blocklist: Blocklist
    decontamination: Decontamination
    scrubber: Scrubber


@lru_cache(maxsize=1)
def _screen(config: SafetyConfig, sources: Artifact) -> Screen:
    """One for all partitions that a worker refines, and one look into the manifest of the sources."""
    return Screen(
        Blocklist(config.blocks, sources.files("blocklists")),
        Decontamination(config.decontamination, read_items(sources.files("evaluations"))),
        Scrubber(config.pii),
    )


@dataclass
class Draft:
    """One document on its way through the stages, which may change its text."""

    path: str
    """Its file's path within the source."""
    text: str
    url: str
    passage: Passage
    licence: str
    language: str


@dataclass(frozen=True)
class Refusal:
    """Why a document goes no further."""

    stage: str
    reason: str
    value: object
    limit: float | None = None
    others: tuple[str, ...] = ()


Stage = Callable[[Draft], Refusal | None]


class Stages:
    """The stages that a source's documents pass, in order, and what they noted."""

    def __init__(self, source: Source, config: CorpusConfig, screen: Screen) -> None:
        self.source, self.config, self.screen = source, config, screen
        # The length twice: rules, cuts and placeholders shorten a text.
        self.stages: Sequence[Stage] = (
            self._licence, self._address, self._length, self._language, self._rules, self._contamination,
            self._personal_data, self._length,
        )  # fmt: skip
        self.read = 0
        self.tally = Tally()
        self.masked: Counter[str] = Counter()
        self.hits: list[dict[str, Any]] = []
        self.unread: dict[str, list[int]] = {}
        """Of each file with something unreadable: rows that could not be read, and all of its rows."""
        self.archives: dict[str, list[int]] = {}
        """The same of each archive, over the rows of its members."""
        self._file, self._rows = "", 0

    def rows(
        self, passages: Iterator[tuple[str, Passage | Unreadable]], watch: Watch | None = None
    ) -> Iterator[dict[str, Any]]:
        """One row, candidate or rejected, for every document of `passages` and for everything that held none."""
        watch = watch or Watch()
        for path, found in passages:
            if isinstance(found, Unreadable):
                rows = self._unreadable(found)
            elif loss := watch.come():
                refusal = Refusal("extract", loss.kind, loss.reason)
                rows = iter([self._refused(self._url(path, found), found, refusal, found.text)])
            else:
                rows = self._judged(path, found)
            for row in rows:
                self.read += 1
                self._count(path, row)
                yield row

    def _unreadable(self, found: Unreadable) -> Iterator[dict[str, Any]]:
        yield records.unread(self.source.name, found.path, found.kind, found.reason)

    def _judged(self, path: str, passage: Passage) -> Iterator[dict[str, Any]]:
        """The rows of a document; a rejected one where a stage fails on it, which stops nobody else's document."""
        try:
            yield from self._documents(path, passage)
        except (OSError, MemoryError, BadWordsError):
            raise  # of the machine or the configuration, not of a document
        except Exception as error:
            log.warning("a rule failed on %s: please report it", self._url(path, passage), exc_info=error)
            value = f"{type(error).__name__}: {str(error)[:200]}"
            url = self._url(path, passage)  # no text: it cannot be masked where the masking is what failed
            yield records.rejected(self.source.name, url, "extract", "failed", value)

    def _count(self, path: str, row: dict[str, Any]) -> None:
        # Files come one after the other: only those with something unreadable are remembered, and the present one.
        if path != self._file:
            self._file, self._rows = path, 0
        self._rows += 1
        if row.get("stage") == records.READ:
            self.unread.setdefault(path, [0, 0])[0] += 1
        if path in self.unread:
            self.unread[path][1] = self._rows
        if archive := _ARCHIVE.match(path):
            held = self.archives.setdefault(archive[0], [0, 0])
            held[0] += row.get("stage") == records.READ
            held[1] += 1

    def lost(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`raw_bytes` of the files, and `unreadable_bytes`: of each file the share of its rows that could not be read.
        A file that is lost as a whole is one row, and counts whole."""
        # The members of an archive that is read where it lies have no size of their own: it has one.
        files = (self.unread | self.archives).items()
        gone = sum(sizes.get(path, 0) * unread / rows for path, (unread, rows) in files)
        return {"raw_bytes": sum(sizes.values()), "unreadable_bytes": round(gone)}

    def _refused(self, url: str, passage: Passage, refusal: Refusal, text: str) -> dict[str, Any]:
        """The rejected row of a document, with personal data masked in what is kept of its text."""
        row = records.rejected(
            self.source.name, url, refusal.stage, refusal.reason, refusal.value, text, refusal.limit, refusal.others
        )
        # People read the head, and the classifier learns from it: were personal data masked in what is kept alone, a
        # placeholder would be the mark of a good text.
        head, _ = self.screen.scrubber.scrub(text[: 2 * HEAD_CHARS], passage.code)
        return row | {"text_head": head[:HEAD_CHARS]}

    def _documents(self, path: str, passage: Passage) -> Iterator[dict[str, Any]]:
        """Repaired, cut, and each piece through the stages."""
        url = self._url(path, passage)
        pieces = split(repair(passage.text, passage.code), self.config.document_chars_max, passage.code)
        if not pieces:
            yield records.rejected(self.source.name, url, "extract", "empty", 0)
        for number, text in enumerate(pieces, start=1):
            place = url if len(pieces) == 1 else f"{url}{'' if '#' in url else '#'}~{number}"
            cut = {"part": number, "parts": len(pieces)} if len(pieces) > 1 else {}
            licence = passage.licence or self.source.licence
            yield self._passed(Draft(path, text, place, passage, licence, self.source.language), cut)

    def _url(self, path: str, passage: Passage) -> str:
        return f"{self.source.name}:{path}" + (f"#{passage.anchor}" if passage.anchor else "")

    def _passed(self, draft: Draft, cut: dict[str, int]) -> dict[str, Any]:
        """The candidate row of a document, or the rejected row of the first stage that refuses it."""
        source = self.source
        for stage in self.stages:
            if refusal := stage(draft):
                return self._refused(draft.url, draft.passage, refusal, draft.text)
        title, _ = self.screen.scrubber.scrub(draft.passage.title)
        return {
            "id": records.document_id(draft.text),
            "text": draft.text,
            "source": source.name,
            "url": draft.url,
            "domain": source.domain,
            "language": draft.language,
            "licence": draft.licence,
            "meta": records.meta(title=title, url=draft.passage.url, code=draft.passage.code, **cut),
        }

    def _licence(self, draft: Draft) -> Refusal | None:
        if draft.passage.code:
            draft.licence = licence.effective(draft.licence, draft.text)
        reason = licence.refusal(draft.licence, self.config.licences)
        if reason is not None:
            return Refusal("licence", reason, draft.licence)
        draft.licence = licence.normalised(draft.licence)
        return None

    def _address(self, draft: Draft) -> Refusal | None:
        found = self.screen.blocklist.blocked(draft.url, draft.passage.url)
        return Refusal("safety", *found) if found else None

    def _length(self, draft: Draft) -> Refusal | None:
        length, limit = len(draft.text), self.config.document_chars_min
        return Refusal("quality", "too_short", length, limit) if length < limit else None

    def _language(self, draft: Draft) -> Refusal | None:
        # The words of a program are too few and too odd to tell a language by.
        if not draft.passage.code:
            draft.language = identify(draft.text, self.source.language)
        if draft.language in self.config.languages:
            return None
        return Refusal("language", "language_not_kept", draft.language)

    def _rules(self, draft: Draft) -> Refusal | None:
        found = judge(draft.text, self.source.domain, draft.language, draft.passage.code, self.config, draft.path)
        self.tally.add(found)
        if found.reason is not None:
            return Refusal("quality", found.reason, found.number, found.limit, found.others)
        draft.text = found.text
        return None

    def _contamination(self, draft: Draft) -> Refusal | None:
        text, hits = self.screen.decontamination.cleaned(draft.text)
        self.hits += [{"url": draft.url, "source": self.source.name, **hit.row()} for hit in hits]
        if text is None:
            return Refusal("decontamination", "contaminated", hits[0].sentence())
        draft.text = text
        return None

    def _personal_data(self, draft: Draft) -> Refusal | None:
        draft.text, counts = self.screen.scrubber.scrub(draft.text, draft.passage.code)
        self.masked.update(counts)
        return None


def partition_name(raw: str, snapshot: int) -> str:
    """The partition of the part `raw/<source>/<nnn>` of a snapshot: `<source>/<nnn>`, from the second snapshot on
    `<source>/s<snapshot>-<nnn>`."""
    source, _, number = raw.removeprefix("raw/").rpartition("/")
    return f"{source}/s{snapshot:03}-{number}" if snapshot else f"{source}/{number}"


def file_sizes(raw: Path) -> dict[str, int]:
    """Raw bytes of every file of one part `raw/<source>/<nnn>`, by path."""
    if raw.suffix == ".json":
        return {label(record["path"]): record["bytes"] for record in json.loads(raw.read_text(encoding="utf-8"))}
    with zipfile.ZipFile(raw) as shard:
        return {info.filename: info.file_size for info in shard.infolist()}


def sources_of(sources: Artifact) -> dict[str, dict[str, Any]]:
    """The part `sources`, by name, with where each folder lies, as the artifact's configuration says."""
    config = sources.manifest["config"]
    places = {
        given["name"]: {field: given[field] for field in PLACE if field in given}
        for given in (*config["sources"], *config["fallbacks"])
    }
    records = json.loads(sources.file("sources").read_text(encoding="utf-8"))
    names = [record["source"]["name"] for record in records]
    return {
        name: record | {"source": record["source"] | places[name]} for name, record in zip(names, records, strict=True)
    }
