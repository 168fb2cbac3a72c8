"""The Prefect task of every stage: its artifact, taken as it is where an earlier run published it.

Retried where a disk or a network failed, or a job was ended from outside; never where the data are wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from model.storage import LASTING
from tasks.artifact import Artifact, Step
from tasks.corpus.snapshots import acquire_new
from tasks.corpus.unavailable import OutageError
from tasks.launch import Execution, JobPreempted, run_job


def passing(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Retry condition: a failure of input or output that may pass, or a job ended from outside (it resumes)."""
    try:
        state.result()
    except (JobPreempted, OutageError):
        return True
    except OSError as error:
        return error.errno not in LASTING
    except Exception:
        return False
    return False


@task(
    name="stage",
    task_run_name="{step.name}",
    retries=3,
    retry_delay_seconds=exponential_backoff(5),
    retry_condition_fn=passing,
    cache_policy=NO_CACHE,  # artifacts are the cache; a key of Prefect's takes a tenth of a second for every step
)
def make(step: Step, execution: Execution) -> Artifact:
    """Run a stage to its published artifact; what an earlier attempt finished of it is kept."""
    if artifact := step.begin().artifact():
        return artifact
    step.record_inputs()
    if step.module.startswith("training."):
        return run_job(step, execution)
    module = import_module(step.module)
    artifact = module.run(step, execution)
    if hasattr(module, "run_page"):
        create_markdown_artifact(module.run_page(artifact), key=step.name)
    return artifact


@task(
    name="news",
    retries=3,
    retry_delay_seconds=exponential_backoff(5),
    retry_condition_fn=passing,
    cache_policy=NO_CACHE,
)
def find_news(step: Step) -> Artifact | None:
    """List the sources again and pack what no snapshot before `step` holds; None where that is nothing."""
    return step.begin().artifact() or acquire_new(step)
