"""The gate: a stage that judges what another published, its verdict shown where the run is watched."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from prefect.artifacts import create_markdown_artifact

from expectations.gate import GateFailed, judge
from model.visible import markdown as plain
from tasks.artifact import Artifact, Step
from tasks.launch import Execution

VERSION = 4  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: judge what its one input published. Raises GateFailed with the reasons."""
    (subject,) = step.inputs
    try:
        artifact = judge(step, subject)
    except GateFailed as failure:
        _show(step.name, failure.statistics, failure.page)
        raise
    _show(step.name, artifact.statistics, f"{artifact.uri}/{artifact.parts('docs/index')[0].path}")
    return artifact


def _show(name: str, statistics: Mapping[str, Any], page: str) -> None:
    failed = _failed(statistics)
    outcome = _outcome(statistics)
    log.log(logging.ERROR if failed else logging.INFO, "%s: %s; Data Docs: %s", name, outcome, page)
    for expectation in failed:
        log.error("%s", _sentence(expectation))
    markdown = verdict(name, statistics, page)
    create_markdown_artifact(markdown, key=re.sub(r"[^a-z0-9-]", "-", name.lower()), description=outcome)


def verdict(name: str, statistics: Mapping[str, Any], page: str) -> str:
    """The verdict as markdown: what failed first, then every expectation."""
    failed = _failed(statistics)
    outcome = _outcome(statistics)
    told = f"**{outcome}**" if failed else outcome
    lines = [f"# {name}: {told}", "", f"Data Docs: `{page.replace('`', chr(39))}`", ""]
    lines += [f"- {_sentence(expectation, plain)}" for expectation in failed]
    lines.append("")
    # A list, for the UI never wraps a table's cells and cuts off what is too wide.
    for expectation in statistics["expectations"]:
        mark = "✓" if expectation["success"] else "✗"
        # sources, languages and licences are named by the data
        sentence, observed, expected = (plain(str(expectation[key])) for key in ("sentence", "observed", "expected"))
        lines.append(f"- {mark} {sentence}: **{observed}** (expected {expected})")
    return "\n".join(lines) + "\n"


def _failed(statistics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [expectation for expectation in statistics["expectations"] if not expectation["success"]]


def _outcome(statistics: Mapping[str, Any]) -> str:
    failed, count = len(_failed(statistics)), len(statistics["expectations"])
    return f"{failed} of {count} expectations failed" if failed else "every expectation holds"


def _sentence(expectation: Mapping[str, Any], shown: Callable[[str], str] = str) -> str:
    """One failed expectation: what it is, what was expected and observed (as `shown` has it), and what to do."""
    expected, observed = (shown(str(expectation[key])) for key in ("expected", "observed"))
    remedy = expectation["remedy"]
    return f"{expectation['sentence']}: expected {expected}, observed {observed}. {remedy[:1].upper()}{remedy[1:]}."
