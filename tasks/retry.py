"""Which failures a task may be tried again after: those that pass by themselves. Wrong data stay wrong."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from model.storage import LASTING
from tasks.launch import JobPreempted


def passing(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Retry condition: a failure of input or output that may pass, or a job ended from outside (it resumes)."""
    try:
        state.result()
    except JobPreempted:
        return True
    except OSError as error:
        return error.errno not in LASTING
    except Exception:
        return False
    return False
