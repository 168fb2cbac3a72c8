"""The workers that a preset asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.corpus.cluster import cluster
from tasks.corpus.executor import Executor, Processes
from tasks.launch import Execution


@contextmanager
def workers_of(execution: Execution) -> Iterator[Executor]:
    """Worker processes or a Dask cluster; what was started for it ends with the block."""
    if execution.executor == "processes":
        with Processes(execution.workers) as workers:
            yield workers
        return
    with cluster(execution.dask_address, execution.workers) as dask:
        yield dask
