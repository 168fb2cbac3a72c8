"""The tokens stage as Prefect tasks: retried where a disk or a network failed, never where the data are wrong."""

from __future__ import annotations

from prefect import task
from prefect.tasks import exponential_backoff

from tasks.artifact import Artifact, Step
from tasks.corpus.executor import executor
from tasks.launch import Execution
from tasks.retry import passing
from tasks.tokens import shards, tokenizer


@task(name="tokenizer", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def train_tokenizer(step: Step, corpus: Artifact) -> Artifact:
    """Learn (or adopt) the tokenizer."""
    return step.begin().artifact() or tokenizer.build(step, corpus)


@task(name="shards", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def write_shards(
    step: Step, corpus: Artifact, rewrites: Artifact, learned: Artifact, mix: Artifact, execution: Execution
) -> Artifact:
    """Tokenise corpus and rewrites into shards as the mix says, where `execution` says; batches that an earlier attempt
    finished are kept."""
    step.begin()
    if done := step.artifact():
        return done
    with executor(execution) as workers:
        return shards.build(step, corpus, rewrites, learned, mix, workers)
