"""A server as a child process: messages a line each on its standard input and output.

Not the SDK's own transport, because that one reads lines of any length, hands on the caller's environment, waits for
an answer behind garbage until time runs out, and loses children that left the process group.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import psutil
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from model.visible import flat
from tasks.agentic.mcp.allowance import Allowance
from tasks.agentic.mcp.config import ServerConfig, ServerError
from tasks.agentic.mcp.walls import HOME, control_groups, limited, walled
from tasks.process import marked

MARK = "OPENK2_TOOL_SERVER"
"""An environment variable by which a server's descendants are known, also those that left its process group."""
PATIENCE = 2.0
"""Seconds that a server has to end by itself after its input has ended."""
CHUNK = 1 << 16
CORE = (1, 1)
"""Bytes of a core dump: at 0 a crash would still start the machine's crash handler. A shell counts in blocks."""
LAST_WORDS = 2000
"""Bytes of its standard error that are kept, to be quoted where it fails."""


class ProcessTransport:
    """What `mcp.Client` takes as a transport, with bounds. `failure` says why it ended, where it ended by itself."""

    def __init__(self, server: ServerConfig, allowance: Allowance) -> None:
        self.server = server
        self.allowance = allowance
        self.failure = ""
        self.spent = ""
        """When it was ended: how much processor time it had had. One that got none did not hang."""
        self._last_words = b""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start the server and yield the streams of messages from it and to it; at the end nothing of it is left.

        Raises:
            ServerError: the command cannot be started.
        """
        with ExitStack() as stack:
            mark = uuid.uuid4().hex
            process = await self._start(mark, stack)
            # from here to the block that ends the process nothing waits: a cancelled caller would lose it
            to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
            tasks = anyio.create_task_group()
            try:
                async with tasks:
                    tasks.start_soon(self._read, process, to_us)
                    tasks.start_soon(self._listen, process, to_us)
                    tasks.start_soon(self._write, process, from_us, to_us)
                    try:
                        yield incoming, outgoing
                    finally:
                        tasks.cancel_scope.cancel()
            finally:
                self.spent = f"; it had had {_seconds(mark):.1f} s of processor time"
                with anyio.CancelScope(shield=True):
                    await _end(process, mark)
                for stream in (to_us, incoming, outgoing, from_us):
                    stream.close()

    async def _start(self, mark: str, stack: ExitStack) -> asyncio.subprocess.Process:
        """Start it; what it needs for as long as it runs is left on `stack`."""
        server = self.server
        ours = Path(sys.executable).parent  # programs of our own environment are found although nobody has activated it
        program = shutil.which(server.command) or shutil.which(server.command, path=str(ours))
        if program is None:
            raise ServerError(f"there is no program '{server.command}': install it, or correct `command`")
        for name, folder in (("folder", server.folder), *(("writes", one) for one in server.writes)):
            if folder and not Path(folder).is_dir():
                raise ServerError(f"there is no folder {folder}: make it, or correct `{name}`")
        temporary = tempfile.TemporaryDirectory(prefix="openk2-tools-", ignore_cleanup_errors=True)
        outside = stack.enter_context(temporary)
        home = HOME if server.walls else outside
        path = os.environ.get("PATH", os.defpath) + os.pathsep + str(ours)
        environment = {"PATH": path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        environment |= server.variables(server.environment) | {MARK: mark}
        groups = stack.enter_context(control_groups(server.limits))
        process = await asyncio.create_subprocess_exec(
            *limited(server.limits),
            *(walled(server, program) if server.walls else ()),
            program,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=server.folder or outside,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, or we have no such right
            resource.prlimit(process.pid, resource.RLIMIT_CORE, CORE)
        for group in groups:
            with suppress(OSError):  # it has ended, or may not be moved
                os.write(group.door, str(process.pid).encode())
        process.stdin.write(b"\n")
        return process

    async def _read(
        self, process: asyncio.subprocess.Process, to_us: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        assert process.stdout is not None
        begun: list[bytes] = []
        try:
            while chunk := await process.stdout.read(CHUNK):
                self.allowance.take(len(chunk), messages=chunk.count(b"\n"))
                begun.append(chunk)
                if b"\n" in chunk:
                    *lines, rest = b"".join(begun).split(b"\n")
                    begun = [rest]
                    for line in lines:
                        if line.strip():
                            await to_us.send(_message(line))
            await self._say_how_it_ended(process)
        except ServerError as error:
            self._fail(str(error))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            self._fail(f"its output cannot be read: {type(error).__name__}")
        finally:
            to_us.close()  # who waits for an answer is told that there will be none

    async def _say_how_it_ended(self, process: asyncio.subprocess.Process) -> None:
        with anyio.move_on_after(0.5):
            while process.returncode is None:
                await anyio.sleep(0.01)
        code = process.returncode
        how = "closed its output" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by signal {-code}"
        words = flat(self._last_words.decode("utf-8", "replace"), 400)
        self._fail(how + (f"; its last words: {words}" if words else ""))

    async def _listen(
        self, process: asyncio.subprocess.Process, to_us: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        assert process.stderr is not None
        try:
            while chunk := await process.stderr.read(CHUNK):
                self.allowance.take(len(chunk))
                self._last_words = (self._last_words + chunk)[-LAST_WORDS:]
        except ServerError as error:
            self._fail(str(error))
            to_us.close()
        except OSError:
            return  # the pipe is gone; what its output says counts

    async def _write(
        self,
        process: asyncio.subprocess.Process,
        from_us: MemoryObjectReceiveStream[SessionMessage],
        to_us: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdin is not None
        try:
            async for sent in from_us:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
        except OSError:
            with anyio.move_on_after(1):
                await self._say_how_it_ended(process)
            to_us.close()

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why


def _message(line: bytes) -> SessionMessage:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        shown = flat(line[:200].decode("utf-8", "replace"), 80)
        raise ServerError(f"it wrote something to its output that is no MCP message: {shown}") from None


async def _end(process: asyncio.subprocess.Process, mark: str) -> None:
    """End a server and all that it started: its input ends, some patience, then SIGKILL until nothing is left."""
    assert process.stdin is not None
    process.stdin.close()
    with anyio.move_on_after(PATIENCE):
        while process.returncode is None:
            await anyio.sleep(0.01)
    for _ in range(100):  # what forks while it is being killed is found the next time
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        left = marked(MARK, mark)
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        if not left and process.returncode is not None:
            break
        await anyio.sleep(0.02)
    # What it wrote and nobody read keeps its pipes open, and asyncio has no public way to close them.
    process._transport.close()  # type: ignore[attr-defined]


def _seconds(mark: str) -> float:
    """Processor time of a server's processes so far."""
    seconds = 0.0
    for one in marked(MARK, mark):
        with suppress(psutil.Error):
            times = one.cpu_times()
            seconds += times.user + times.system
    return seconds
