"""What tests of any room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, nothing else.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fetched and checked files are remembered for the tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENK2_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    """A Prefect API of its own, in a database that is thrown away."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield
