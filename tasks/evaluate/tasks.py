"""The release and the evaluation as Prefect tasks. Both compute from verified artifacts alone: what fails once fails
again, so neither is retried but where a disk or a network failed for a moment."""

from __future__ import annotations

from collections.abc import Mapping

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.tasks import exponential_backoff

from tasks.artifact import Artifact, Step
from tasks.corpus.executor import executor
from tasks.evaluate import evaluation, release
from tasks.launch import Execution
from tasks.retry import passing


@task(name="publish", retries=2, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def publish(step: Step, qat: Artifact, tokenizer: Artifact) -> Artifact:
    """Write and verify the bf16 and INT4 checkpoints, and lay them out as folders."""
    artifact = step.begin().artifact() or release.release(step, qat, tokenizer)
    for variant in release.VARIANTS:
        release.checkpoint_folder(artifact, variant)
    return artifact


@task(name="evaluate", retries=2, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def evaluate(step: Step, inputs: Mapping[str, Artifact], execution: Execution) -> Artifact:
    """Measure every checkpoint on the same problems; what an earlier attempt measured is kept."""
    artifact = step.begin().artifact()
    if artifact is None:
        with executor(execution) as workers:
            artifact = evaluation.evaluate_release(step, inputs, workers, execution.threads)
    create_markdown_artifact(evaluation.table(artifact.statistics), key="evaluation")
    return artifact
