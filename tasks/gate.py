"""The gate as a Prefect task: judged once, never retried, its verdict shown where the run is watched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact

from expectations.gate import GateFailed, judge
from model.visible import markdown as plain
from tasks.artifact import Artifact, Step


@task(name="gate", task_run_name="{gate_step.name}", retries=0)
def gate(gate_step: Step, subject_step: Step) -> Artifact:
    """Judge `subject_step`'s artifact; returns the gate's artifact, or raises GateFailed with the reasons. Judging
    the same data again gives the same verdict, so this is never retried."""
    try:
        artifact = judge(gate_step, subject_step)
    except GateFailed as failure:
        _show(gate_step.name, failure.statistics, failure.page)
        raise
    _show(gate_step.name, artifact.statistics, f"{artifact.uri}/{artifact.parts('docs/index')[0].path}")
    return artifact


def _show(name: str, statistics: Mapping[str, Any], page: str) -> None:
    markdown = verdict(name, statistics, page)
    outcome = markdown.partition("\n")[0].removeprefix(f"# {name}: ").replace("*", "")
    create_markdown_artifact(markdown, key=re.sub(r"[^a-z0-9-]", "-", name.lower()), description=outcome)


def verdict(name: str, statistics: Mapping[str, Any], page: str) -> str:
    """The verdict as markdown: what failed first, then every expectation."""
    expectations = statistics["expectations"]
    failed = [expectation for expectation in expectations if not expectation["success"]]
    outcome = f"**{len(failed)} of {len(expectations)} expectations failed**" if failed else "every expectation holds"
    lines = [f"# {name}: {outcome}", "", f"Data Docs: `{page.replace('`', chr(39))}`", ""]
    for expectation in failed:
        lines += [
            f"- **{expectation['sentence']}**: expected {plain(expectation['expected'])}, observed "
            f"{plain(expectation['observed'])}. "
            f"{expectation['remedy'].capitalize()}."
        ]
    lines += ["", "| | Expectation | Expected | Observed |", "|---|---|---|---|"]
    for expectation in expectations:
        # sources, languages and licences are named by the data
        cells = [plain(str(expectation[key])) for key in ("sentence", "expected", "observed")]
        lines.append(f"| {'✓' if expectation['success'] else '✗'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
