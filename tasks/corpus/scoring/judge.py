"""A language model as judge: a sample of documents graded on three axes, through any engine, each question asked once.

Answers are kept in the cache, by everything that decided them, so that asking again costs nothing.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from model.cache import cache_folder
from model.engines.answers import Answers
from model.engines.choice import open_engine
from model.engines.engine import Completion, Message, Prompt, PromptRefused, RequestLimits
from tasks.artifact import Artifact
from tasks.corpus.executor import Executor
from tasks.corpus.scoring.calibration import spearman
from tasks.corpus.scoring.config import AXES, JudgeConfig
from tasks.progress import Progress
from training.draw import draw

RUBRIC = Path(__file__).with_name("rubric.yaml")
JUDGED = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("id", "source", "url", "domain", "language")]
    + [pa.field("outcome", pa.string(), nullable=False)]  # graded, refused or unparsable
    + [pa.field(axis, pa.int8()) for axis in AXES]
    + [pa.field(f"{axis}_again", pa.int8()) for axis in AXES]
    + [pa.field(name, pa.int64(), nullable=False) for name in ("prompt_tokens", "generated_tokens")]
)
Grades = dict[str, int]


def choose(config: JudgeConfig, corpus: Artifact, executor: Executor) -> list[dict[str, Any]]:
    """The documents to grade, in the order of their draws: the same however the corpus is cut into parts."""
    parts = {part.key: part for part in corpus.parts("documents")}
    jobs = {key: (config, corpus.file(part)) for key, part in parts.items()}
    drawn = [(value, name, key) for key, rows in executor.map(candidates, jobs) for value, name in rows]
    wanted: dict[str, list[str]] = {}
    best = heapq.nsmallest(config.documents, drawn)
    for _, name, key in best:
        wanted.setdefault(key, []).append(name)
    columns = ["id", "source", "url", "domain", "language", "text"]
    rows = {
        row["id"]: row
        for key, names in sorted(wanted.items())
        for row in pq.read_table(corpus.file(parts[key]), columns=columns, filters=[("id", "in", names)]).to_pylist()
    }
    return [rows[name] for _, name, _ in best]


def candidates(config: JudgeConfig, path: Path) -> list[tuple[float, str]]:
    """(draw, id) of the documents of one file that may be among the chosen."""
    table = pq.read_table(path, columns=["id"], filters=[("language", "in", list(config.languages))])
    drawn = ((draw("judge", config.seed, name), name) for name in table["id"].to_pylist())
    return heapq.nsmallest(config.documents, drawn)


def grade(
    config: JudgeConfig,
    documents: Sequence[dict[str, Any]],
    url: str | None,
    slots: int,
    limits: RequestLimits | None = None,
) -> list[dict[str, Any]]:
    """One row of `JUDGED` for every document. `url`: the endpoint, where the configuration asks for one."""
    twice = {row["id"] for row in documents if draw("again", config.seed, row["id"]) < config.again}
    with (
        closing(Answers(cache_folder() / "judged")) as answers,
        open_engine(config, url, slots, "scores.judge", "judge_url", limits) as engine,
    ):

        def ask(row: dict[str, Any], axes: Sequence[str]) -> tuple[str, Grades | None, Completion | None]:
            try:
                answer, _ = answers.complete(engine, prompt(config, row["text"], axes))
            except PromptRefused:
                return "refused", None, None
            grades = parse(answer.text)
            return ("graded" if grades else "unparsable"), grades, answer

        def judge(row: dict[str, Any]) -> dict[str, Any]:
            outcome, grades, answer = ask(row, AXES)
            again, other = (ask(row, AXES[::-1])[1:]) if row["id"] in twice else (None, None)
            progress.advance(1)
            spent = [some for some in (answer, other) if some is not None]
            return {
                **{name: row[name] for name in ("id", "source", "url", "domain", "language")},
                "outcome": outcome,
                **{axis: grades[axis] if grades else None for axis in AXES},
                **{f"{axis}_again": again[axis] if again else None for axis in AXES},
                "prompt_tokens": sum(some.prompt_tokens for some in spent),
                "generated_tokens": sum(some.generated_tokens for some in spent),
            }

        with Progress("judge", len(documents), "documents") as progress, ThreadPoolExecutor(engine.slots) as pool:
            return list(pool.map(judge, documents))


def prompt(config: JudgeConfig, text: str, axes: Sequence[str]) -> Prompt:
    """The question about one text, the axes in the order given, the answer held to a schema."""
    rubric = _rubric()
    # Text is data: what would end the quotation, or a turn of the chat, is spelled so that it does not.
    shown = text[: config.characters].replace("</text", "< /text").replace("<|", "< |")
    asked = rubric["user"].format(
        axes="\n".join(f"- {axis}: {rubric['axes'][axis]}" for axis in axes), keys=", ".join(axes), text=shown
    )
    schema = {
        "type": "object",
        "properties": {axis: {"type": "integer", "enum": [0, 1, 2, 3, 4, 5]} for axis in axes},
        "required": list(axes),
        "additionalProperties": False,
    }
    chat = (Message("system", rubric["system"]), Message("user", asked))
    return Prompt(chat, config.sampling, config.max_tokens, config.seed, schema=json.dumps(schema))


def parse(text: str) -> Grades | None:
    """The grades of an answer; None for one that is no object of a whole number from 0 to 5 for each axis."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    grades = {axis: answer.get(axis) for axis in AXES}
    fit = all(type(value) is int and 0 <= value <= 5 for value in grades.values())
    return grades if fit else None  # type: ignore[return-value]


def figures(rows: Sequence[dict[str, Any]], quality: dict[str, float]) -> dict[str, Any]:
    """Counts, mean grades, and how far the judge agrees with itself and with the classifier's `quality` by document
    (Spearman's rank correlation of the mean grade; None where it is undefined)."""
    graded = [row for row in rows if row["outcome"] == "graded"]
    twice = [row for row in graded if row[f"{AXES[0]}_again"] is not None]
    scored = [row for row in graded if row["id"] in quality]
    first = np.array([[row[axis] for axis in AXES] for row in twice], np.float64).reshape(-1, len(AXES))
    second = np.array([[row[f"{axis}_again"] for axis in AXES] for row in twice], np.float64).reshape(-1, len(AXES))
    probabilities = np.array([quality[row["id"]] for row in scored])
    return {
        "asked": len(rows),
        "graded": len(graded),
        "refused": sum(row["outcome"] == "refused" for row in rows),
        "unparsable": sum(row["outcome"] == "unparsable" for row in rows),
        "tokens_prompt": sum(row["prompt_tokens"] for row in rows),
        "tokens_generated": sum(row["generated_tokens"] for row in rows),
        "means": {axis: round(float(np.mean([row[axis] for row in graded])), 3) for axis in AXES} if graded else {},
        "itself": {
            "documents": len(twice),
            "same": round(float(np.mean(first == second)), 4) if twice else None,
            "distance": round(float(np.mean(np.abs(first - second))), 4) if twice else None,
            "spearman": _rounded(spearman(first.mean(axis=1), second.mean(axis=1))),
        },
        "classifier": {
            "documents": len(scored),
            "spearman": _rounded(spearman(probabilities, np.array([mean_grade(row) for row in scored]))),
            **{
                axis: _rounded(spearman(probabilities, np.array([row[axis] for row in scored], np.float64)))
                for axis in AXES
            },
        },
    }


def mean_grade(row: dict[str, Any]) -> float:
    """The mean of a graded row's axes."""
    return sum(row[axis] for axis in AXES) / len(AXES)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


@cache
def _rubric() -> dict[str, Any]:
    return yaml.safe_load(RUBRIC.read_text(encoding="utf-8"))
