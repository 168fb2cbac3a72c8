"""Serving until a signal: the socket, and uvicorn on it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from model.serve.guard import Impatient

MOST_CONNECTIONS = 2000
GRACE_SECONDS = 5
"""In which answers under way may end after a signal."""


class ServeError(RuntimeError):
    """A server that cannot begin; the message says why and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """The socket of a server, which nobody else can take. Raises ServeError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        number = error.errno or 0  # of a name that is none it is one of another kind, below 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ServeError(f"port {port} of {host} can't be opened ({why}): choose another port or address") from None


def server(app: ASGIApp) -> uvicorn.Server:
    """What `run(sockets=[...])` serves with until SIGINT or SIGTERM."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Impatient,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


@contextmanager
def in_background(app: ASGIApp) -> Iterator[str]:
    """The app on a port of this machine's own while the block runs, in a thread; its address."""
    listener = listen("127.0.0.1", 0)
    made = server(app)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]}, name="server", daemon=True)
    thread.start()
    try:
        while not made.started:
            if not thread.is_alive():
                raise ServeError("the server did not start: its log says why")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        made.should_exit = True
        thread.join(timeout=2 * GRACE_SECONDS)
