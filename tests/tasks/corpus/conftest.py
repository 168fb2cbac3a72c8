"""What several tests of the corpus read from."""

import pytest

from tests.web import Handler, served


@pytest.fixture
def web(tmp_path):
    """(folder, its address) of a web server."""
    (tmp_path / "web").mkdir()
    server = served(tmp_path / "web", Handler)
    yield tmp_path / "web", f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
