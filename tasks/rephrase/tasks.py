"""The rephrasing stage as a Prefect task: retried where a disk or a network failed, never where the data are wrong."""

from __future__ import annotations

from prefect import task
from prefect.tasks import exponential_backoff

from tasks.artifact import Artifact, Step
from tasks.launch import Execution
from tasks.rephrase import rewriting
from tasks.rephrase.config import RephraseConfig
from tasks.retry import passing


@task(name="rewrites", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def rewrite(step: Step, corpus: Artifact, execution: Execution) -> Artifact:
    """Rewrite the chosen documents; batches and requests that an earlier attempt finished are kept."""
    done = step.begin().artifact()
    if done:
        return done
    assert isinstance(step.config, RephraseConfig)
    return rewriting.build(
        step,
        corpus,
        execution.engine_url,
        execution.slots(step.config.engine),
        judge_url=execution.judge_url,
        limits=execution.engine_requests,
        price=execution.engine_price,
        answers=execution.answers_folder(step.root),
        answers_bytes=execution.answers_bytes,
    )
