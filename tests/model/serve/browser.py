"""A headless Chromium, driven over its own protocol: no package of a browser is needed beside the browser."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

QUIET = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync", "--no-sandbox")


class Page:
    """One tab."""

    def __init__(self, line: ClientConnection) -> None:
        self._line, self._numbers = line, itertools.count()
        self.said: list[str] = []
        """Errors of the page, those of its policy among them."""
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._line.recv(timeout=60))
            if message.get("method") == "Runtime.exceptionThrown":
                self.said.append(str(message["params"]["exceptionDetails"]))
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.said.append(message["params"]["entry"]["text"])
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def value(self, script: str) -> Any:
        return self.do("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait(self, script: str) -> Any:
        """The script's value once it is true; the test's own timeout ends it."""
        while not (found := self.value(script)):
            time.sleep(0.05)
        return found

    def type(self, text: str) -> None:
        self.do("Input.insertText", text=text)

    def press(self, key: str, code: int, modifiers: int = 0, text: str = "") -> None:
        how = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.do("Input.dispatchKeyEvent", type="keyDown", **how, **({"text": text} if text else {}))
        self.do("Input.dispatchKeyEvent", type="keyUp", **how)

    def enter(self) -> None:
        self.press("Enter", 13, text="\r")

    def picture(self, path: Path, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot")["data"]))


@contextmanager
def browser(chromium: str, url: str, profile: Path) -> Iterator[Page]:
    """A tab at `url`."""
    command = [chromium, "--headless", *QUIET, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        file = profile / "DevToolsActivePort"
        while not file.exists() or not file.read_text().strip():
            assert process.poll() is None
            time.sleep(0.05)
        at = f"http://127.0.0.1:{file.read_text().splitlines()[0]}/json"
        tab = next(one for one in httpx.get(at, trust_env=False).json() if one["type"] == "page")
        with connect(tab["webSocketDebuggerUrl"], max_size=None) as line:
            page = Page(line)
            page.do("Page.navigate", url=url)
            yield page
    finally:
        process.terminate()
        process.wait(timeout=30)
