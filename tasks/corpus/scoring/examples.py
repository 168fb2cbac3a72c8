"""Examples for the classifier: chosen by seed from the corpus, from what it rejected, and from labels of one's own."""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from model.storage import local_path
from tasks.artifact import Artifact, Part, Step, sha256_file
from tasks.corpus import records
from tasks.corpus.executor import Executor
from tasks.corpus.scoring.config import ClassifierConfig, ScoresConfig
from training.draw import draw

EXAMPLES = pa.schema(
    [
        pa.field("value", pa.float64(), nullable=False),  # the draw that chose it
        pa.field("document", pa.string(), nullable=False),  # `document_of` its url: decides the part
        pa.field("label", pa.bool_(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
PARTS = ("train", "calibration", "heldout")
ROWS = 1024
# value, document, label, text: sorted by the draw
Example = tuple[float, str, bool, str]


class ScoresError(ValueError):
    """Examples that no classifier can be made of."""


class TooFewExamples(ScoresError):
    """A corpus that has no examples of one side: a small one, or one of which the rules dropped nothing."""


@dataclass(frozen=True)
class Labelled:
    """One part of the examples."""

    texts: list[str]
    labels: np.ndarray
    """bool, one a text."""
    units: frozenset[str]
    """The source files they come from; of a file of many records the documents."""

    def sides(self) -> dict[str, int]:
        positives = int(self.labels.sum())
        return {"positives": positives, "negatives": len(self.texts) - positives}


def gather(step: Step, corpus: Artifact, executor: Executor, grades: Mapping[str, float]) -> dict[str, Labelled]:
    """The examples by part: `train`, `calibration` and `heldout`. No file of a source is in two of them, but for one
    that has more examples than a part should have: of that no document is.

    `grades`: the judge's mean grades by document, where its sample gives labels. Raises ScoresError where a part would
    lack a side.
    """
    config = _classifier(step)
    known = corpus.statistics["by_source"]
    for side in (config.positives, config.negatives):
        if unknown := sorted(set(side.sources) - set(known)):
            raise ScoresError(f"`scores.classifier` names the source '{unknown[0]}', and there are: {', '.join(known)}")
    jobs = {
        part.key: (step, part.key, corpus.file(part), grades)
        for group in ("documents", "rejected")
        for part in corpus.parts(group)
        if step.part(f"examples/{part.key}") is None
    }
    for _ in executor.map(collect, jobs):
        pass
    found = {False: _own(config, False), True: _own(config, True)}
    for part in step.recorded("examples"):
        rows = _read(step, part)
        for label, kept in found.items():
            kept += [row for row in rows if row[2] is label]
            found[label] = heapq.nsmallest(config.examples, kept)
    parts: dict[str, list[Example]] = {name: [] for name in PARTS}
    # JSON lines and crawls are files of many documents, and often all that there is.
    crowded = _crowded(config, found, file_of)

    def unit(document: str) -> str:
        file = file_of(document)
        return document if file in crowded else file

    large = _crowded(config, found, unit)
    for row in sorted(found[True] + found[False]):
        name = unit(row[1])
        parts["train" if name in large else part_of(config, name)].append(row)
    made = {
        name: Labelled(
            [text for *_, text in rows],
            np.array([label for _, _, label, _ in rows], bool),
            frozenset(unit(document) for _, document, _, _ in rows),
        )
        for name, rows in parts.items()
    }
    for name, labelled in made.items():
        for missing, count in labelled.sides().items():
            if not count:
                raise TooFewExamples(
                    f"the classifier's {name} part has no {missing} (of {len(found[True])} positives and "
                    f"{len(found[False])} negatives in all, parted by file or document): give "
                    f"`scores.classifier.{missing}` more to choose from"
                )
    return made


def part_of(config: ClassifierConfig, unit: str) -> str:
    """The part that the examples of a source file or document belong to."""
    value = draw("examples", config.seed, unit)
    if value < config.heldout_fraction:
        return "heldout"
    return "calibration" if value < config.heldout_fraction + config.calibration_fraction else "train"


def _crowded(config: ClassifierConfig, found: Mapping[bool, list[Example]], unit: Callable[[str], str]) -> set[str]:
    """Units with more examples of a side than a measuring part should have of all: one of those would be the part."""
    most = min(config.calibration_fraction, config.heldout_fraction)
    return {
        name
        for rows in found.values()
        for name, count in Counter(unit(row[1]) for row in rows).items()
        if count > most * len(rows)
    }


def file_of(url: str) -> str:
    """The source file of a document's url, `source:path#place`."""
    return url.partition("#")[0]


def document_of(url: str) -> str:
    """The url of the whole document that one was cut from: without `~2` at its end."""
    return re.sub(r"#?~[0-9]+$", "", url) if "#" in url else url


def collect(step: Step, key: str, path: Path, grades: Mapping[str, float]) -> None:
    """Write `examples/<key>`: those that one file of documents or of rejects can give, at most as many of each side as
    the whole takes."""
    config = _classifier(step)
    rows = _kept(path, config, grades) if key.startswith("documents") else _rejected(path, config)
    sides: dict[bool, list[Example]] = {False: [], True: []}
    for name, url, label, text in rows:
        if len(text) >= config.characters_min:
            side = sides[label]
            side.append((draw("example", config.seed, name), document_of(url), label, text[: config.characters]))
            if len(side) >= 2 * config.examples:
                sides[label] = heapq.nsmallest(config.examples, side)
    best = sorted(row for side in sides.values() for row in heapq.nsmallest(config.examples, side))
    columns = [list(column) for column in zip(*best, strict=True)] or [[] for _ in EXAMPLES]
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, EXAMPLES, strict=True)], schema=EXAMPLES
    )
    step.put(f"examples/{key}", ".parquet", lambda out: records.write(out, table), table.num_rows)


def _kept(path: Path, config: ClassifierConfig, grades: Mapping[str, float]) -> Iterator[tuple[str, str, bool, str]]:
    for batch in pq.ParquetFile(path).iter_batches(ROWS, columns=["id", "url", "source", "domain", "text"]):
        for row in batch.to_pylist():
            label = _label(row["source"], row["domain"], row["id"], config, grades)
            if label is not None:
                yield row["id"], row["url"], label, row["text"]


def _label(source: str, domain: str, name: str, config: ClassifierConfig, grades: Mapping[str, float]) -> bool | None:
    """A document's label: by the judge before its source, by its source before its domain."""
    if config.judged is not None and name in grades:
        return grades[name] >= config.judged
    for field, value in (("sources", source), ("domains", domain)):
        for label, side in ((True, config.positives), (False, config.negatives)):
            if value in getattr(side, field):
                return label
    return None


def _rejected(path: Path, config: ClassifierConfig) -> Iterator[tuple[str, str, bool, str]]:
    for batch in pq.ParquetFile(path).iter_batches(ROWS, columns=["id", "url", "stage", "reason", "text_head"]):
        for row in batch.to_pylist():
            for label, side in ((True, config.positives), (False, config.negatives)):
                if row["reason"] in side.rejected or row["stage"] in side.rejected:
                    yield row["id"], row["url"], label, row["text_head"]
                    break


def _own(config: ClassifierConfig, label: bool) -> list[Example]:
    """The examples of one side in the user's own file."""
    if config.labelled is None:
        return []
    path = local_path(config.labelled)
    if not path.is_file():
        raise ScoresError(f"`scores.classifier.labelled` is {path}, and there is no such file")
    if (found := sha256_file(path)) != config.labelled_sha256:
        raise ScoresError(
            f"{path} has sha256 {found}, not the {config.labelled_sha256} of `scores.classifier.labelled_sha256`"
        )
    made = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                text, given = row["text"], row["label"]
                if not isinstance(text, str) or given not in (0, 1):
                    raise TypeError
            except (ValueError, KeyError, TypeError):
                raise ScoresError(
                    f"{path}, line {number}: not of the form {{'text': 'a string', 'label': 0 or 1}}"
                ) from None
            if bool(given) is label:
                name = records.document_id(text)
                made.append((draw("example", config.seed, name), name, label, text[: config.characters]))
    return made


def _read(step: Step, part: Part) -> list[Example]:
    table = pq.read_table(step.path(part))
    return list(zip(*(table[name].to_pylist() for name in EXAMPLES.names), strict=True))


def _classifier(step: Step) -> ClassifierConfig:
    config = step.config
    assert isinstance(config, ScoresConfig)
    assert config.classifier is not None
    return config.classifier
