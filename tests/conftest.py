"""What tests of any room share."""

from __future__ import annotations

import contextlib
import gc
import os
import uuid
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

# pytest-xdist gives its workers a terminal of 80 columns, which would then be the width of every console of ours
os.environ.pop("COLUMNS", None)
# two workers of two threads each on two cores would wait for each other; before torch is loaded
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# How long an example or its making takes says how busy the machine is, nothing else.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes first, then training's, which start ranks and take up to one: at the end one of two
    workers would wait for the other's last one."""
    long = {item.path for item in items if item.get_closest_marker("e2e")}
    items.sort(key=lambda item: (item.path not in long, "training" not in item.path.parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported here stays: to look through it for garbage takes a fifth of the collection, again at every full
    pass later, and makes every forked process copy it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fetched and checked files are remembered for the tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENK2_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect API of its own, in a database that is thrown away."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing import utilities
    from prefect.testing.utilities import prefect_test_harness

    from flows.server import copy_history, empty_history

    folder = tmp_path_factory.mktemp("server")
    copy_history(empty_history(), folder / "prefect-test.db")  # half of its start, where a server of ours was first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utilities, "mkdtemp", lambda: str(folder))
        with (
            prefect_test_harness(server_startup_timeout=400),
            temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
        ):
            yield


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server of our own."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    server.stop()


@contextlib.contextmanager
def made_bucket(s3: str) -> Iterator[str]:
    """An s3:// address with nothing below it, its server and its keys in the environment."""
    import fsspec
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        name = f"bucket-{uuid.uuid4().hex[:8]}"
        fsspec.filesystem("s3").mkdir(name)
        yield f"s3://{name}"
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(s3: str) -> Iterator[str]:
    """An s3:// address with nothing below it."""
    with made_bucket(s3) as address:
        yield address


@pytest.fixture(scope="module")
def kept_bucket(s3: str) -> Iterator[str]:
    """An s3:// address that all tests of a file share."""
    with made_bucket(s3) as address:
        yield address
