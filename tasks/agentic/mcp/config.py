"""The file of tool servers: which there are, how they are reached, what they may have and how long they may take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import Field, SerializationInfo, ValidationError, field_serializer, field_validator, model_validator

from model.config import Config, for_identity, refused
from tasks.address import keyless

Kind = Literal[
    "timezone", "time", "date", "date-time", "city", "country", "person", "email", "uri", "url", "word"
]  # fmt: skip
"""What a text argument may be drawn from (tasks/agentic/mcp/arguments.py)."""
HOW_IT_RUNS = frozenset(
    ("folder", "environment", "walls", "network", "reads", "writes", "headers", "limits", "optional")
)
"""Fields that do not say which server it is, nor what is asked of it."""
OF_COMMANDS = {"args", "folder", "environment", "walls", "network", "reads", "writes"}
"""Fields that mean nothing for an address."""


class ServerError(ValueError):
    """A server, or the file that names it, that cannot be used; the message says which one, why and what to do."""


class Limits(Config):
    """What a server may cost. Whatever it sends is hostile until it fits in here."""

    start_seconds: float = Field(default=30, gt=0, le=600)
    """For its start, the handshake and the whole list of its tools."""
    call_seconds: float = Field(default=30, gt=0, le=3600)
    """For one call."""
    answer_bytes: int = Field(default=8 << 20, ge=1 << 10, le=1 << 30)
    """Most bytes that it may write, errors and notifications included, between two of our requests."""
    result_characters: int = Field(default=20_000, ge=100)
    """Most characters of a result; what is cut off is said at its end."""
    tools: int = Field(default=1000, ge=1, le=10_000)
    """Most tools that it may list."""
    pages: int = Field(default=100, ge=1, le=10_000)
    """Most pages of that list."""
    processor_seconds: int = Field(default=600, ge=1)
    """Processor time of each of its processes."""
    memory_mb: int = Field(default=4096, ge=64)
    """Memory that each of its processes may allocate; all together where a control group can be made."""
    processes: int = Field(default=256, ge=4)
    """Its processes and threads, where a control group can be made."""
    file_mb: int = Field(default=1024, ge=1)
    """The largest file that it may write; behind walls also the size of /tmp."""


class ServerConfig(Config):
    """One server: a command that speaks MCP on its standard input and output, or an address."""

    name: str = Field(pattern="^[a-z][a-z0-9]{0,23}$")
    """What it is called here: lower-case letters and digits. Its tools are offered as `NAME_TOOL`."""
    command: str = ""
    """The program that is the server; searched for on PATH."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    folder: str = ""
    """Where the command runs and may write: an absolute path; an empty folder of its own where none is named."""
    walls: bool = True
    """Whether it runs in bubblewrap: a user without rights, no network, of the machine's files only the system's
    programs and the environment that openk2 is installed in. Without walls it runs with your rights."""
    network: bool = False
    """Whether it may use the machine's network, all of it: this machine's own servers too."""
    reads: tuple[str, ...] = ()
    """Further files and folders that it may read: absolute paths."""
    writes: tuple[str, ...] = ()
    """Folders that it may change: absolute paths."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that the command gets besides PATH and a temporary HOME. It gets no others."""
    url: str = ""
    """The address of a server that is reached over (streamable) HTTP."""
    headers: dict[str, str] = {}
    """Headers for that address, each with the name of the environment variable that holds its value."""
    package: str = ""
    """Where its code is from, such as `pypi:mcp-server-git`."""
    version: str = ""
    """The version of that package."""
    licence: str = Field(min_length=1)
    """Licence of its tools' names, descriptions and schemas (SPDX)."""
    tools: tuple[str, ...] | None = None
    """The tools of it that may be listed and called; all where nothing is said."""
    descriptions: bool = True
    """Whether models are told what the server says of its tools and their arguments. A small model reads names alone,
    in a third of the tokens; declare a tool in training as it will be declared in use."""
    limits: Limits = Limits()
    """What it may cost."""
    optional: bool = False
    """In a preset (`tools.servers`): where it cannot be used, a run goes on without its tools, and says so."""
    values: dict[str, Kind | tuple[Any, ...]] = {}
    """In a preset: what arguments are drawn from, by their names: a kind or a list; their schemas say the others."""
    requests: dict[str, tuple[str, ...]] = {}
    """In a preset: further ways to ask for a tool, such as `(say|tell me) what time it is in {timezone}`. One that ends
    in a question mark stands alone, others stand in sentences such as `Could you please ...?`."""

    @field_validator("url", "args", "command")
    @classmethod
    def _holds_no_secret(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for text in (value,) if isinstance(value, str) else value:
            keyless(text)
            if "\0" in text:
                raise ValueError("it holds a NUL character, which no command line can hold")
        return value

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError(f"server '{self.name}' needs either `command` or `url`: give one of them")
        if self.url:
            if given := self.model_fields_set & OF_COMMANDS:
                raise ValueError(f"server '{self.name}' has a url: {' and '.join(sorted(given))} belong to a command")
            if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
                raise ValueError(f"server '{self.name}': {self.url!r:.80} is no http or https address")
        elif self.headers:
            raise ValueError(f"server '{self.name}' has a command: headers belong to a url")
        if not self.walls and (self.network or self.reads or self.writes):
            raise ValueError(f"server '{self.name}' has no walls: network, reads and writes are openings in them")
        for path in (*self.reads, *self.writes, *([self.folder] if self.folder else ())):
            if not Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"server '{self.name}': {path!r:.80} is relative: say it from the root on")
            if self.walls and Path(path) == Path("/"):
                raise ValueError(f"server '{self.name}': walls that let in all of / are none: name the folders")
        if self.tools is not None and (not self.tools or len(set(self.tools)) < len(self.tools)):
            raise ValueError(f"server '{self.name}': `tools` is empty or names one twice: leave it out to allow all")
        return self

    def variables(self, names: tuple[str, ...]) -> dict[str, str]:
        """The values of environment variables; ServerError where one is not set."""
        if missing := [name for name in names if name not in os.environ]:
            raise ServerError(f"server '{self.name}' needs the environment variable {missing[0]}, which is not set")
        return {name: os.environ[name] for name in names}


class ServerFile(Config):
    """All servers of a file."""

    servers: tuple[ServerConfig, ...] = Field(min_length=1)
    """The servers, each with a name of its own."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        different(self.servers)
        return self


class RecordingConfig(Config):
    """Servers that a stage calls, and what it asks of them."""

    seed: int = 0
    """Decides every draw."""
    servers: tuple[ServerConfig, ...] = ()
    """Servers of the Model Context Protocol, rows as in a file of servers (docs/agentic/mcp.md)."""
    recorded: int = Field(default=400, ge=1)
    """Different calls that are made of each of their tools, where there are so many."""

    @model_validator(mode="after")
    def _servers_differ(self) -> Self:
        different(self.servers)
        return self

    @field_serializer("servers")
    def _which(self, servers: tuple[ServerConfig, ...], info: SerializationInfo) -> list[dict[str, Any]]:
        left = set(HOW_IT_RUNS) if for_identity(info) else None
        return [server.model_dump(mode="json", exclude=left) for server in servers]


def different(servers: Iterable[ServerConfig]) -> None:
    """ValueError where two servers have one name."""
    twice = [name for name, count in Counter(server.name for server in servers).items() if count > 1]
    if twice:
        raise ValueError(f"two servers are called '{twice[0]}': name each differently")


def read_servers(path: str | Path) -> tuple[ServerConfig, ...]:
    """The servers that a YAML file names.

    Raises:
        ServerError: there is no such file, it is no YAML, or a field of it cannot be taken.
    """
    try:
        given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ServerError(f"{path}: not readable as YAML: {' '.join(str(error).split()):.200}") from None
    try:
        return ServerFile.model_validate(given).servers
    except ValidationError as error:
        where, told = refused(error)
        if error.errors()[0]["type"] == "extra_forbidden":
            told = "there is no such field (docs/agentic/mcp.md has them)"
        raise ServerError(f"{path}: {f'{where}: ' if where else ''}{told}") from None
