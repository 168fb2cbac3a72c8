"""A Prefect server's API for its owner, asked again where the database was busy, as Prefect's own client does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from flows.server import Server

PATIENCE = 120.0
"""Seconds for which 503 is taken for a busy database: SQLite on a slow machine, which its services write to."""


class Again(httpx.HTTPTransport):
    """Sends a request again while the answer is 503."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        end = time.monotonic() + PATIENCE
        while (answer := super().handle_request(request)).status_code == 503 and time.monotonic() < end:
            answer.close()
            time.sleep(0.5)
        return answer


def owner(address: str, key: str) -> httpx.Client:
    """Somebody with the key (user:password) and a CSRF token."""
    user, _, password = key.strip().partition(":")
    client = httpx.Client(base_url=address, auth=(user, password), trust_env=False, timeout=60, transport=Again())
    token = client.get("/api/csrf-token", params={"client": "test"}).raise_for_status().json()["token"]
    client.headers.update({"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "test"})
    return client


@contextmanager
def started(folder: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    """A server that began with nothing."""
    server = Server(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()
