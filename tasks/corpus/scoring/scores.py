"""The scores step: a judge's grades for a sample, a classifier trained and measured, the quality of every document.

Parts: `scores/{part}` beside every part of documents (id, quality, bucket, row by row), `classifier/weights` and
`classifier/card` (the model), `judged` (the grades). An interrupted run goes on from what has a record.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from model.engines.engine import RequestLimits
from tasks.accounts import Balance, rows_of
from tasks.artifact import Artifact, Part, Step
from tasks.corpus import records
from tasks.corpus.executor import Executor, Serial
from tasks.corpus.scoring import judge
from tasks.corpus.scoring.calibration import area, average_precision, reliability
from tasks.corpus.scoring.classifier import Classifier, balanced, calibrate, raw_scores, score, train
from tasks.corpus.scoring.config import UNSCORED, ScoresConfig
from tasks.corpus.scoring.examples import PARTS, TooFewExamples, document_of, file_of, gather
from tasks.corpus.scoring.telling import telling
from tasks.corpus.workers import workers_of
from tasks.launch import Execution
from tasks.progress import Progress

VERSION = 2  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

SCORES = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("quality", pa.float32()),  # calibrated probability; null where nothing scores
        pa.field("bucket", pa.string(), nullable=False),
    ]
)
HISTOGRAM = 20
"""Bins of the scale from 0 to 1."""
ROWS = 4096
CARD, WEIGHTS, LACK = "classifier/card", "classifier/weights", "classifier/lack"
"""The classifier's figures and itself; or why there is none."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: train the classifier, ask the judge, score every document."""
    assert isinstance(step.config, ScoresConfig)
    slots = execution.slots(step.config.judge.engine) if step.config.judge else 1
    with workers_of(execution) as workers:
        return build(step, step.input("corpus"), workers, execution.judge_url, slots, execution.engine_requests)


def build(
    step: Step,
    corpus: Artifact,
    executor: Executor | None = None,
    judge_url: str | None = None,
    slots: int = 1,
    limits: RequestLimits | None = None,
) -> Artifact:
    """Score every document of `corpus` and publish; the bytes do not depend on the executor.

    `judge_url`: the endpoint where the judge is one; `slots`: questions in flight; `limits`: how long they are waited
    for. Raises ScoresError for examples that no classifier can be made of, EngineError where the judge cannot be had.
    """
    config = step.config
    assert isinstance(config, ScoresConfig)
    executor = executor or Serial()
    judged = _judge(step, config, corpus, executor, judge_url, slots, limits)
    if config.classifier and step.missing((CARD, WEIGHTS)) and step.part(LACK) is None:
        try:
            _learn(step, config, corpus, executor, judged if config.classifier.judged is not None else [])
        except TooFewExamples as lack:
            log.warning("%s; until then no document is scored and none counts more than another", lack)
            step.put(LACK, ".txt", lambda path, why=str(lack): path.write_text(why + "\n"))  # type: ignore[misc]
    _score(step, config, corpus, executor)
    documents = corpus.parts("documents")
    keys = [part.key.replace("documents", "scores", 1) for part in documents]
    statistics = _statistics(step, config, judged, step.parts(keys))
    keys += (LACK,) if step.part(LACK) else (CARD, WEIGHTS) if config.classifier else ()
    keys += ("judged",) if config.judge else ()
    return step.publish(statistics, keys, Balance("documents", taken=rows_of(documents), out="scores"))


def _judge(
    step: Step,
    config: ScoresConfig,
    corpus: Artifact,
    executor: Executor,
    url: str | None,
    slots: int,
    limits: RequestLimits | None,
) -> list[dict[str, Any]]:
    """The judge's rows: those of an earlier attempt, or asked for now."""
    if config.judge is None:
        return []
    part = step.part("judged")
    if part is None:
        documents = judge.choose(config.judge, corpus, executor)
        rows = judge.grade(config.judge, documents, url, slots, limits) if documents else []
        table = records.table(rows, judge.JUDGED)
        part = step.put("judged", ".parquet", lambda path: records.write(path, table), len(rows))
    return pq.read_table(step.path(part)).to_pylist()


def _learn(
    step: Step, config: ScoresConfig, corpus: Artifact, executor: Executor, judged: list[dict[str, Any]]
) -> None:
    """Train, calibrate and measure the classifier; write it. `judged`: the grades that it is to learn from, too."""
    assert config.classifier is not None
    grades = {row["id"]: judge.mean_grade(row) for row in judged if row["outcome"] == "graded"}
    parts = gather(step, corpus, executor, grades)
    learned, curve, heldout = (parts[name] for name in PARTS)
    model = train(learned.texts, learned.labels, config.classifier)
    model = calibrate(model, curve.texts, curve.labels)
    said = score(model, heldout.texts)
    weights = balanced(heldout.labels)
    rows, error = reliability(said, heldout.labels, weights)
    ranking = raw_scores(model, heldout.texts)
    auc = area(ranking, heldout.labels)
    precision = average_precision(ranking, heldout.labels, weights)
    assert auc is not None  # `gather` leaves no part without a side
    assert precision is not None
    found = {
        "auc": round(auc, 4),
        "average_precision": round(precision, 4),
        "calibration_error": round(error, 4),
        "reliability": rows,
        "examples": {name: part.sides() for name, part in parts.items()},
        "judged_in_training": sorted(
            row["id"] for row in judged if {file_of(row["url"]), document_of(row["url"])} & learned.units
        ),
        "telling": telling(model, learned.texts, learned.labels),
    }
    log.info("the classifier's area under the ROC curve is %.3f on %d held-out examples", auc, len(said))
    step.put(WEIGHTS, ".safetensors", model.save_weights, len(model.weights))
    # Last: a classifier without a card is trained again.
    step.put(CARD, ".json", model.save_card, statistics=found)


def _score(step: Step, config: ScoresConfig, corpus: Artifact, executor: Executor) -> None:
    """Write `scores/...` for every part of documents that has none yet, the largest first."""
    model: tuple[Path, ...] = ()
    if config.classifier and step.part(LACK) is None:
        model = tuple(map(step.path, step.parts((WEIGHTS, CARD))))
    parts = {part.key.removeprefix("documents/"): part for part in corpus.parts("documents")}
    left = [key.removeprefix("scores/") for key in step.missing(f"scores/{key}" for key in parts)]
    left.sort(key=lambda key: (-parts[key].bytes, key))
    total = sum(part.bytes for part in parts.values())
    first = total - sum(parts[key].bytes for key in left)
    jobs = {key: (step, key, corpus.file(parts[key]), *model) for key in left}
    with Progress("scores", total / 1e6, "MB", first / 1e6) as progress:
        for key, _ in executor.map(write_scores, jobs):
            progress.advance(parts[key].bytes / 1e6, note=key)


def write_scores(step: Step, key: str, documents: Path, weights: Path | None = None, card: Path | None = None) -> None:
    """Write `scores/<key>`: the quality and bucket of every row of a file of documents, by the classifier where there
    is one. Its statistics have the groups that a mix may weigh, and the distribution by source."""
    config = step.config
    assert isinstance(config, ScoresConfig)
    model = Classifier.load(weights, card) if weights and card else None
    names: list[str] = []
    qualities: list[float | None] = []
    buckets: list[str] = []
    groups: dict[tuple[str, ...], list[int]] = {}
    histograms: dict[str, list[int]] = {}
    columns = ["id", "text", "source", "domain", "language", "licence"]
    for batch in pq.ParquetFile(documents).iter_batches(ROWS, columns=columns):
        held = {name: batch[name].to_pylist() for name in columns if name != "text"}
        said = score(model, batch["text"].to_pylist()) if model else None
        found = [UNSCORED] * batch.num_rows if said is None else bucket_of(said, config)
        sizes = pc.binary_length(batch["text"]).to_pylist()
        keys = zip(held["domain"], held["source"], held["language"], held["licence"], found, strict=True)
        for group, size in zip(keys, sizes, strict=True):
            count = groups.setdefault(group, [0, 0])
            count[0] += 1
            count[1] += size
        for source, value in zip(held["source"], said.tolist(), strict=True) if said is not None else ():
            bins = histograms.setdefault(source, [0] * HISTOGRAM)
            bins[min(int(value * HISTOGRAM), HISTOGRAM - 1)] += 1
        names += held["id"]
        qualities += [None] * batch.num_rows if said is None else said.tolist()
        buckets += found
    table = pa.Table.from_arrays(
        [pa.array(names, pa.string()), pa.array(qualities, pa.float32()), pa.array(buckets, pa.string())],
        schema=SCORES,
    )
    step.put(
        f"scores/{key}",
        ".parquet",
        lambda path: records.write(path, table),
        table.num_rows,
        {
            "groups": [[*group, *count] for group, count in sorted(groups.items())],
            "histograms": dict(sorted(histograms.items())),
        },
    )


def bucket_of(said: np.ndarray, config: ScoresConfig) -> list[str]:
    """The bucket of each probability."""
    ordered = sorted(config.buckets, key=config.buckets.__getitem__)
    edges = np.array([config.buckets[name] for name in ordered])
    # by the number as it is stored, so that who reads the table finds the same bucket
    return [ordered[at] for at in np.searchsorted(edges, said.astype(np.float32), "right") - 1]


def _statistics(step: Step, config: ScoresConfig, judged: list[dict[str, Any]], scored: list[Part]) -> dict[str, Any]:
    card, lack = step.part(CARD), step.part(LACK)
    learned: dict[str, Any] = card.statistics if card else {"auc": None}
    if lack:
        learned["unscored"] = step.path(lack).read_text().strip()
    by_bucket = {name: {"documents": 0, "bytes": 0} for name in (config.buckets if card else (UNSCORED,))}
    by_source: dict[str, list[int]] = {}
    for part in scored:
        for *_, bucket, documents, size in part.statistics["groups"]:
            by_bucket[bucket]["documents"] += documents
            by_bucket[bucket]["bytes"] += size
        for source, bins in part.statistics["histograms"].items():
            total = by_source.setdefault(source, [0] * HISTOGRAM)
            by_source[source] = [one + other for one, other in zip(total, bins, strict=True)]
    statistics = {
        "documents": sum(entry["documents"] for entry in by_bucket.values()),
        **learned,
        "by_bucket": by_bucket,
        "histograms": dict(sorted(by_source.items())),
    }
    if config.judge:
        learned_from = set(learned.get("judged_in_training", ()))
        others = [row["id"] for row in judged if row["id"] not in learned_from]
        statistics["judge"] = judge.figures(judged, _qualities(step, others) if card else {})
    return statistics


def _qualities(step: Step, names: list[str]) -> dict[str, float]:
    """What the classifier says of some documents."""
    found: dict[str, float] = {}
    for part in step.recorded("scores") if names else ():
        table = pq.read_table(step.path(part), columns=["id", "quality"], filters=[("id", "in", names)])
        found.update(zip(table["id"].to_pylist(), table["quality"].to_pylist(), strict=True))
    return found
