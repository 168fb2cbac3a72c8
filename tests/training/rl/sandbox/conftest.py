"""A sandbox that the tests share; where it cannot be had, a sentence, and in CI a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from training.rl.sandbox.config import SandboxConfig
from training.rl.sandbox.sandbox import Sandbox

SECRET = "a-secret-of-the-trainer"


@pytest.fixture(scope="session")
def bubblewrap() -> str:
    found = shutil.which("bwrap")
    if not found:
        text = "the tests of the sandbox need bubblewrap: `apt-get install bubblewrap`"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(text)
    return str(found)


@pytest.fixture(scope="module")
def sandbox(bubblewrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One worker, so that every program follows another in the same fork server. Slow machines have time."""
    secret = tmp_path_factory.mktemp("trainer") / "secret.txt"
    secret.write_text(SECRET)
    os.environ["OPENK2_SECRET"] = SECRET
    os.environ["OPENK2_SECRET_FILE"] = str(secret)
    try:
        with Sandbox(SandboxConfig(workers=1, wall_seconds=120.0, cpu_seconds=20)) as made:
            yield made
    finally:
        del os.environ["OPENK2_SECRET"], os.environ["OPENK2_SECRET_FILE"]


def cases(name: str) -> list[dict[str, object]]:
    """A table of cases beside the tests."""
    import yaml

    loaded: list[dict[str, object]] = yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text("utf-8"))
    return loaded
