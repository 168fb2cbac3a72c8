"""A web server of a folder, with ranges and tags."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, with ranges and tags; `/fails/...` fails twice and `/broken` always does."""

    failures: dict[str, int] = {}

    def send_head(self):
        if self.path.startswith("/broken") or (
            self.path.startswith("/fails") and self.failures.setdefault(self.path, 0) < 2
        ):
            self.failures[self.path] = self.failures.get(self.path, 0) + 1
            self.send_error(500)
            return
        if self.path.startswith("/secret"):
            self.send_error(403)
            return
        path = Path(self.directory) / self.path.removeprefix("/fails").lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        wanted = self.headers.get("Range", "")
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = (int(first), min(int(last or len(data)), len(data) - 1)) if wanted else (0, len(data) - 1)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[start : end + 1])

    def log_message(self, *_):
        pass


def served(root: Path, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
