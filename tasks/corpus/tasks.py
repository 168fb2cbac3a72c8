"""Sources and corpus as Prefect tasks: retried where a disk or a network failed, never where the data are wrong."""

from __future__ import annotations

from prefect import task
from prefect.tasks import exponential_backoff

from tasks.artifact import Artifact, Step, cache_folder
from tasks.corpus import acquire, curation, snapshots
from tasks.corpus.executor import executor
from tasks.corpus.mix import mixing
from tasks.corpus.scoring import scores
from tasks.corpus.scoring.config import ScoresConfig
from tasks.launch import Execution
from tasks.retry import passing


@task(name="sources", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def acquire_sources(step: Step) -> Artifact:
    """Fetch what the cache lacks and pack every source; sources that an earlier attempt packed are kept."""
    return step.begin().artifact() or acquire.acquire(step, cache_folder())


@task(name="news", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def acquire_news(step: Step) -> Artifact | None:
    """List the sources again and pack what no snapshot before `step` holds; None where that is nothing."""
    return step.begin().artifact() or snapshots.acquire_new(step)


@task(name="corpus", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def curate_corpus(step: Step, sources: Artifact, execution: Execution) -> Artifact:
    """Curate every partition where `execution` says; partitions that an earlier attempt finished are kept."""
    if done := step.begin().artifact():
        return done
    with executor(execution) as workers:
        return curation.curate(step, sources, workers, execution.memory_bytes, execution.price_per_hour)


@task(name="scores", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def score_documents(step: Step, corpus: Artifact, execution: Execution) -> Artifact:
    """Train the classifier, ask the judge and score every document; what an earlier attempt finished is kept."""
    if done := step.begin().artifact():
        return done
    with executor(execution) as workers:
        assert isinstance(step.config, ScoresConfig)
        slots = execution.slots(step.config.judge.engine) if step.config.judge else 1
        return scores.build(step, corpus, workers, execution.judge_url, slots, execution.engine_requests)


@task(name="mix", retries=3, retry_delay_seconds=exponential_backoff(5), retry_condition_fn=passing)
def mix_corpus(
    step: Step, corpus: Artifact, scored: Artifact, rewrites: Artifact, tokenizer: Artifact, execution: Execution
) -> Artifact:
    """Solve the mix and write how often each document is read."""
    if done := step.begin().artifact():
        return done
    with executor(execution) as workers:
        return mixing.build(step, corpus, scored, rewrites, tokenizer, workers)
