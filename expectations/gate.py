"""The gate: a dataset is judged, and either a record says that it may be read on, or the run stops with the reason.

A gate that passes is an artifact like any other: its statistics hold every expectation with its threshold and what was
observed, its parts the Data Docs. A gate that fails publishes nothing; its Data Docs lie under `docs/` of its own
folder, where the error says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations import corpus, rewrites, suites, tokens, tools, trajectories
from expectations.config import CorpusGate, Gate, RewritesGate, SuitesGate, TokensGate, ToolsGate, TrajectoriesGate
from expectations.docs import index_page, offline
from expectations.rules import Table
from expectations.suite import Judgement, validate
from model import storage

if TYPE_CHECKING:
    from tasks.artifact import Artifact, Step

SUITES: dict[type[Gate], Callable[[Any, Artifact, Mapping[str, Artifact]], list[Table]]] = {
    CorpusGate: corpus.tables,
    RewritesGate: rewrites.tables,
    TokensGate: tokens.tables,
    ToolsGate: tools.tables,
    TrajectoriesGate: trajectories.tables,
    SuitesGate: suites.tables,
}


class GateFailed(RuntimeError):
    """Data that must not be read on: the message says which expectation, what was expected and observed, and what to
    do. Raised again by every run until the data or the thresholds change; never retried."""

    def __init__(self, message: str, statistics: Mapping[str, Any], page: str) -> None:
        super().__init__(message)
        self.statistics = dict(statistics)
        """As a published gate's, with `success` false."""
        self.page = page
        """Where the Data Docs lie."""


def judge(step: Step, subject: Step) -> Artifact:
    """Judge the published artifact of `subject` by the thresholds in `step.config`, with the artifacts `subject` was
    made from at hand. Returns the gate's artifact (the one already published, where there is one); GateFailed with
    the reasons otherwise, NotReady where `subject` is not complete."""
    published = step.artifact()
    if published is not None:
        return published
    suite = SUITES[type(step.config)]  # type: ignore[index]
    artifact = subject.require()
    inputs = {source.name: source.require() for source in subject.inputs}
    tables = suite(step.config, artifact, inputs)
    judgements, pages = validate(tables, run=step.fingerprint)
    statistics = _statistics(artifact, judgements)
    title = f"{artifact.name} {artifact.fingerprint}"
    if not statistics["success"]:
        page = _leave(step, title, judgements, tables, pages)
        raise GateFailed(_reason(step, title, judgements, page), statistics, page)
    storage.remove(f"{step.uri}/docs")  # the pages of an earlier failure of the same data (altered files put right)
    links = {}
    for table in tables:
        text = offline(pages[table.name], table)
        part = step.put(f"docs/{table.name}", ".html", _writer(text))
        links[table.name] = Path(part.path).name
    step.put("docs/index", ".html", _writer(index_page(step.name, title, judgements, tables, links)))
    return step.publish(statistics, [f"docs/{name}" for name in (*links, "index")])


def _writer(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


def _statistics(artifact: Artifact, judgements: Sequence[Judgement]) -> dict[str, Any]:
    failed = [judgement for judgement in judgements if not judgement.success]
    return {
        "success": not failed,
        "subject": {"name": artifact.name, "fingerprint": artifact.fingerprint},
        "evaluated": len(judgements),
        "failed": len(failed),
        "expectations": [judgement.record() for judgement in judgements],
    }


def _reason(step: Step, title: str, judgements: Sequence[Judgement], page: str) -> str:
    failed = [judgement for judgement in judgements if not judgement.success]
    lines = [f"{step.name} stopped the run: {len(failed)} of {len(judgements)} expectations failed for {title}."]
    for number, judgement in enumerate(failed, 1):
        lines.append(
            f"{number}. {judgement.sentence}: expected {judgement.expected}, observed {judgement.observed}. "
            f"What to do: {judgement.remedy}."
        )
        if judgement.examples:
            example = ", ".join(f"{name} {str(value)[:80]}" for name, value in judgement.examples[0].items())
            lines.append(f"   For example: {example}")
    lines.append(f"All of it, readable: {page}")
    return "\n".join(lines)


def _leave(
    step: Step, title: str, judgements: Sequence[Judgement], tables: Sequence[Table], pages: Mapping[str, str]
) -> str:
    """Write the Data Docs of a failed gate where a person finds them; returns the address of the index."""
    links = {table.name: f"{table.name}.html" for table in tables}
    files = {f"{table.name}.html": offline(pages[table.name], table, "index.html") for table in tables}
    files["index.html"] = index_page(step.name, title, judgements, tables, links)
    files["verdict.json"] = json.dumps([judgement.record() for judgement in judgements], indent=1, ensure_ascii=False)
    for name, text in files.items():
        storage.write(f"{step.uri}/docs/{name}", text.encode())
    return f"{step.uri}/docs/index.html"
