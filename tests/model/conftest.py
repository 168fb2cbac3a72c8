"""The model's tests run twice where they ask for `forms`: with the faster forms of this machine, and with none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from model.kernels.table import VARIABLE


@pytest.fixture(scope="module", params=["faster", "plain"])
def forms(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which forms the operations take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        if request.param == "plain":
            patch.setenv(VARIABLE, "all")
        yield request.param
