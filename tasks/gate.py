"""The gate as a Prefect task: judged once, never retried, its verdict shown where the run is watched."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact

from expectations.gate import GateFailed, judge
from model.visible import markdown as plain
from tasks.artifact import Artifact, Step

log = logging.getLogger(__name__)


@task(name="gate", task_run_name="{gate_step.name}", retries=0)
def gate(gate_step: Step, subject_step: Step) -> Artifact:
    """Judge `subject_step`'s artifact; returns the gate's artifact, or raises GateFailed with the reasons. Judging
    the same data again gives the same verdict, so this is never retried."""
    try:
        artifact = judge(gate_step.begin(), subject_step)
    except GateFailed as failure:
        _show(gate_step.name, failure.statistics, failure.page)
        raise
    _show(gate_step.name, artifact.statistics, f"{artifact.uri}/{artifact.parts('docs/index')[0].path}")
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
    return f"{expectation['sentence']}: expected {expected}, observed {observed}. {expectation['remedy'].capitalize()}."
