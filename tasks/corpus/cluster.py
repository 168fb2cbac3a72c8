"""Jobs of curation on a Dask cluster: worker processes started here, or those of a scheduler that runs elsewhere.

A `distributed` client inside the one Prefect task of the stage, not Prefect's DaskTaskRunner: that makes a Prefect task
of every job (5 to 13 ms and a row in the API's database each; docs/scale.md), and there are as many jobs as partitions.
Jobs and results are small frozen records of ours; data pass through files. Dask's wire carries pickles, so whoever
reaches a scheduler runs code on its workers: the local cluster is closed to others by TLS keys of its own.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from itertools import islice
from typing import Any

from tasks.code import PACKAGES, code_hash
from tasks.corpus.executor import Again, Processes, WorkerError

CONNECT = 30.0  # seconds a scheduler and its first worker get to answer
AHEAD = 4  # jobs per worker thread that the scheduler holds


class SchedulerLost(ConnectionError):
    """A scheduler that went away, or started again, with the jobs that it had. As a failure of the network it may pass:
    the stage is tried again."""


class Dask:
    """The workers of one Dask cluster."""

    spent = 0.0

    def __init__(self, client: Any) -> None:
        """client: a connected `distributed.Client`; `cluster` makes one."""
        self._client = client
        self._address = client.scheduler.address

    def map(
        self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], again: Again | None = None
    ) -> Iterator[tuple[str, Any]]:
        """As `Executor.map`; a job whose worker dies is given to others (`distributed.scheduler.allowed-failures`,
        3 times) before it is an error."""
        from distributed import CancelledError, KilledWorker, as_completed
        from distributed.comm import CommClosedError

        expected = provenance(function)
        left = iter(jobs.items())
        names: dict[Any, str] = {}

        def submit() -> list[Any]:
            """The next few jobs; not all at once, so that neither scheduler nor cancelling grows with the corpus."""
            room = AHEAD * max(sum(self._client.nthreads().values()), 1) - len(names)
            futures = []
            for name, arguments in islice(left, max(room, 1)):
                future = self._client.submit(run, expected, function, arguments, again, pure=False)
                names[future] = name
                futures.append(future)
            return futures

        try:
            ended = as_completed(submit(), loop=self._client.loop)
            for future in ended:
                name = names.pop(future)
                yield name, future.result()
                ended.update(submit())
        except KilledWorker as error:
            raise WorkerError(
                f"{name} ended every worker that took it, the last at {error.last_worker.address} (out of memory?): "
                "run the same command with more memory to a worker; what was finished is kept"
            ) from error
        except (CancelledError, CommClosedError) as error:
            raise SchedulerLost(
                f"the Dask scheduler at {self._address} was lost with the jobs that it had: see that it runs, then run "
                "the same command again; what was finished is kept"
            ) from error
        finally:
            self._client.cancel(list(names), force=True)


@contextmanager
def cluster(address: str | None, workers: int) -> Iterator[Dask]:
    """The cluster of the scheduler at `address`; where that is None, one of `workers` processes on this machine, which
    end with the block. Raises WorkerError where there is none or its libraries are not installed."""
    try:
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security
    except ImportError as error:
        raise WorkerError(
            f"execution.executor is 'dask' but {error.name} is not installed: install openk2[dask], or set "
            "execution.executor=processes"
        ) from error
    if address is not None:
        with ExitStack() as connection:
            # Within the try only what connects: what goes wrong in the block is not the scheduler's silence.
            try:
                client = connection.enter_context(Client(address, timeout=CONNECT, set_as_default=False))
                client.wait_for_workers(1, timeout=CONNECT)
            except (TimeoutError, OSError, ValueError) as error:
                raise WorkerError(
                    f"no Dask scheduler with workers answers at {address} ({str(error) or type(error).__name__}): "
                    "start `dask scheduler` and `dask worker` there, or set execution.dask_address=null for a "
                    "cluster here"
                ) from error
            yield Dask(client)
        return
    # The status pages have no key: their ports answer nothing.
    pages: dict[str, list[str]] = {f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker", "nanny")}
    with (
        _quiet(),
        dask.config.set(pages),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            security=Security.temporary(),
            protocol="tls://",
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield Dask(client)


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings only: a local cluster otherwise logs its every connection."""
    log = logging.getLogger("distributed")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


def provenance(function: Callable[..., Any]) -> dict[str, str]:
    """What must be equal here and on a worker for the same bytes: our code behind `function`, Python and Parquet."""
    ours = function.__module__.split(".")[0] in PACKAGES
    return {
        "code": code_hash(function.__module__)[:16] if ours else "",
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pyarrow": version("pyarrow"),
    }


def run(
    expected: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...], again: Again | None = None
) -> Any:
    """One job, on a worker. Raises WorkerError where the worker would not give the bytes that the caller would."""
    here = provenance(function)
    other = [f"{name} {here[name]} instead of {expected[name]}" for name in expected if here[name] != expected[name]]
    if other:
        raise WorkerError(
            f"the Dask worker on {platform.node()} has {', '.join(other)}: install the same openk2 on all workers"
        )
    if again is None:
        return function(*arguments)
    # In a process of its own: a document may end it, and the scheduler must not take this worker for a lost one.
    ((_, result),) = Processes(1).map(function, {"": arguments}, again)
    return result
