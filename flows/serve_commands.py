"""The released model: for whoever has the key (`openk2 serve`), in a dialogue (`chat`), for one prompt (`generate`)."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows.options import FileOption, PresetOption, RequestError, RootOption, SetOption, request_of
from flows.request import PresetName, Request
from flows.tables import styled
from flows.terminal import Terminal
from model.engines.reply import KEY_VARIABLE as ENGINE_KEY
from model.visible import visible

if TYPE_CHECKING:
    from tasks.evaluate.generation import Released

KEY_VARIABLE = "OPENK2_SERVE_KEY"
"""The key, where the owner chose one."""
SHORTEST_KEY = 16
OWN = ("127.0.0.1", "localhost")
out = Terminal()

Precision = Literal["auto", "float32", "bfloat16"]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="A released folder, whoever made it, instead of this preset's.")
]
Int4Option = Annotated[bool, typer.Option("--int4", help="The INT4 checkpoint instead of bf16.")]
PrecisionOption = Annotated[
    Precision, typer.Option("--precision", help="Of the products; auto takes what this machine multiplies fast.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where the model lies: cpu or cuda.")]


def generate(
    prompt: Annotated[str, typer.Argument(help="What to say to the model, or the text to go on with (--raw).")],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    int4: Int4Option = False,
    folder: FolderOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat format.")] = False,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="At most this many new tokens.")] = 128,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the sampling.")] = 0,
) -> None:
    """Generate with the released model. A terminal shows control characters instead of obeying them; a file or a pipe
    gets the text as it is.

    Examples: `openk2 generate "What is 27 + 45?"`, `openk2 generate --raw "The derivative of" --temperature 0.8`,
    `openk2 generate --folder FOLDER "What is 27 + 45?"`.
    """
    from tasks.evaluate.generation import Released

    released = Released.load(_folder(request_of(preset, root, preset_file, overrides), folder, int4))

    def write(piece: str) -> None:
        # a terminal would obey what the model writes; a file or another program gets its bytes
        sys.stdout.write(visible(piece) if sys.stdout.isatty() else piece)
        sys.stdout.flush()

    released.generate(released.prompt(prompt, chat=not raw), tokens, temperature, seed, write)
    sys.stdout.write("\n")


def serve(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    folder: FolderOption = None,
    int4: Int4Option = False,
    name: Annotated[str, typer.Option("--name", help="What clients call the model.")] = "openk2",
    host: Annotated[str, typer.Option("--host", help="Address to listen on; one that is not loopback wants a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8000,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name under which clients reach it. Repeatable.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help=f"A file with your key, instead of ${KEY_VARIABLE} or a new one.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Answers generated at once.")] = 32,
    waiting: Annotated[
        int, typer.Option("--waiting", min=0, help="Answers that may wait; then clients get 429.")
    ] = 512,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
) -> None:
    """Serve the released model to OpenAI clients, and a page to chat with it.

    `/v1/chat/completions` (streams, tools, tool_choice, JSON schemas, log-probabilities), `/v1/completions`,
    `/v1/models`, `/health`, `/metrics`. It listens on this machine alone and asks for a key: yours, or a new one that
    is printed once.

    Examples:

    - `openk2 serve`: what the last run released, at http://127.0.0.1:8000/v1.

    - `openk2 serve --folder FOLDER --port 8001 --rows 64`: another released folder.

    - `OPENK2_SERVE_KEY=... openk2 serve --host 0.0.0.0 --allow-host models.example.org`: for others, behind TLS.
    """
    from model.serve.app import application
    from model.serve.server import listen, server

    key, own = _key(key_file, host)
    listener = listen(host, port)
    request = request_of(preset, root, preset_file, overrides)
    released = load(request, folder, int4, precision, device)
    names = [*OWN, *(allow_host or []), *([host] if host != "0.0.0.0" else [])]
    app = application(released.model, released.chat, name, key, names, rows, waiting)
    where = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{listener.getsockname()[1]}"
    out.print(styled("Serving ", (name, "bold"), f" at {where}/v1 until Ctrl-C."))
    if own:
        out.print("The key is yours." + f" To chat: {where}/ (it asks for the key)", soft_wrap=True)
    else:
        out.print(styled("The key, printed this once: ", (key, "bold")), soft_wrap=True)
        out.print(f"To chat: {where}/#{key}", soft_wrap=True)
    try:
        server(app).run(sockets=[listener])
    except KeyboardInterrupt:
        out.print("Ended.")


def chat(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    folder: FolderOption = None,
    int4: Int4Option = False,
    url: Annotated[
        str, typer.Option("--url", help=f"An endpoint such as http://127.0.0.1:8000/v1; its key in ${ENGINE_KEY}.")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="The model's name there; else the first that it lists.")] = "",
    system: Annotated[str, typer.Option("--system", help="A system turn to begin with.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="At most this many new tokens an answer.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, max=2.0, help="0 is greedy.")] = 0.6,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the sampling.")] = None,
    mcp: Annotated[
        Path | None, typer.Option("--mcp", help="YAML that names tool servers (docs/agentic/mcp.md): it may call them.")
    ] = None,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
) -> None:
    """Talk with the released model. What it writes is shown, control characters included, and never obeyed.

    Examples:

    - `openk2 chat`: the model that the last run released, in this process.

    - `OPENK2_ENGINE_KEY=... openk2 chat --url http://127.0.0.1:8000/v1`: what `openk2 serve`, vLLM or another serves.

    - `openk2 chat --mcp servers.yaml`: with real tools, which it calls as it likes.
    """
    from flows.chat import Dialogue, Endpoint, converse, in_process
    from tasks.agentic.mcp.backend import tools_of

    sampling = {"max_tokens": tokens, "temperature": temperature, **({} if seed is None else {"seed": seed})}
    begin = [{"role": "system", "content": system}] if system else []
    with ExitStack() as open_:
        tools = open_.enter_context(tools_of(mcp)) if mcp else None
        if url:
            endpoint = open_.enter_context(Endpoint.at(url, os.environ.get(ENGINE_KEY, ""), model))
        else:
            request = request_of(preset, root, preset_file, overrides)
            endpoint = open_.enter_context(in_process(load(request, folder, int4, precision, device)))
        converse(Dialogue(endpoint, sampling, begin, tools))


def load(request: Request, folder: Path | None, int4: bool, precision: Precision, device: str) -> Released:
    """The released model as it is served."""
    import torch

    from model.precision import dtype_of
    from tasks.evaluate.generation import Released

    place = torch.device(device)
    released = Released.load(_folder(request, folder, int4))
    released.model.to(place, dtype_of(precision, place))
    return released


def _folder(request: Request, folder: Path | None, int4: bool) -> Path:
    """The released folder that is named, or this recipe's."""
    if folder is not None:
        return folder
    from flows.steps import graph
    from tasks.evaluate.release import checkpoint_folder

    return checkpoint_folder(graph(request)["release"].require(), "int4" if int4 else "bf16")


def _key(path: Path | None, host: str) -> tuple[str, bool]:
    """The key, and whether the owner gave it. Raises RequestError where it will not do."""
    given = path.read_text(encoding="utf-8").strip() if path else os.environ.get(KEY_VARIABLE, "").strip()
    if given and len(given) < SHORTEST_KEY:
        raise RequestError(f"a key has at least {SHORTEST_KEY} characters: `openssl rand -hex 24` makes one")
    if not given and not _loopback(host):
        raise RequestError(
            f"others can reach {host}: give a key of yours (${KEY_VARIABLE} or --key-file), or listen on 127.0.0.1"
        )
    return given or secrets.token_urlsafe(32), bool(given)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
