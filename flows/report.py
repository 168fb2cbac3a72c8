"""The report: manifests in, one page out."""

from __future__ import annotations

from flows.dag import dag
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.report.tasks import write


@stage("report")
def report(request: Request) -> Artifact:
    """One self-contained page at `{root}/report.html`, and the same as a markdown artifact."""
    return write(dag(request).steps(), request.root)
