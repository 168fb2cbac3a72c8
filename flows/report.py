"""The report: manifests in, one page out."""

from __future__ import annotations

from flows.dag import dag
from flows.form import Form
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.report.tasks import write


@stage("report")
def report(request: Form) -> Artifact:
    """One self-contained page at `{root}/report.html`, and the same as a markdown artifact."""
    return write(dag(request).steps(), request.root)
