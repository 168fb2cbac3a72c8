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
from model.engines.reply import endpoint_key
from model.visible import visible

if TYPE_CHECKING:
    from tasks.evaluate.generation import Released

KEY_VARIABLE = "OPENK2_SERVE_KEY"
"""The key, where the owner chose one."""
SHORTEST_KEY = 16
OWN = ("127.0.0.1", "localhost")
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that are all addresses of this machine."""
out = Terminal()

Precision = Literal["auto", "float32", "bfloat16"]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="Any released folder, instead of this preset's release.")
]
Int4Option = Annotated[bool, typer.Option("--int4", help="Use the INT4 checkpoint instead of bf16.")]
PrecisionOption = Annotated[
    Precision,
    typer.Option("--precision", help="Precision of the matrix products; auto takes the faster on this machine."),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Device of the model: cpu or cuda.")]


def generate(
    prompt: Annotated[str, typer.Argument(help="The message to the model, or the text to continue (--raw).")],
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    int4: Int4Option = False,
    folder: FolderOption = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text without the chat format.")] = False,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Maximum number of new tokens.")] = 128,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the sampling.")] = 0,
) -> None:
    """Answer one prompt with the released model. A terminal displays control characters without interpreting them; a
    file or a pipe gets the text unchanged.

    Examples: `openk2 generate "Reverse 472."`, `openk2 generate --raw "The derivative of" --temperature 0.8`,
    `openk2 generate --folder FOLDER "Reverse 472."`.
    """
    from tasks.evaluate.generation import Released

    released = Released.load(_folder(request_of(preset, root, preset_file, overrides), folder, int4))

    def write(piece: str) -> None:
        # a terminal would obey what the model writes; a file or another program gets its bytes
        sys.stdout.write(visible(piece) if sys.stdout.isatty() else piece)
        sys.stdout.flush()

    try:
        released.generate(released.prompt(prompt, chat=not raw), tokens, temperature, seed, write)
    except ValueError as error:  # a prompt beyond the window, a temperature too close to 0
        raise RequestError(str(error)) from None
    sys.stdout.write("\n")


def serve(
    preset: PresetOption = PresetName.laptop,
    root: RootOption = "data",
    preset_file: FileOption = None,
    overrides: SetOption = None,
    folder: FolderOption = None,
    int4: Int4Option = False,
    name: Annotated[str, typer.Option("--name", help="The model's name for clients.")] = "openk2",
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other than loopback needs a key of yours.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A host name that clients use, or *.example.org. Repeatable."),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help=f"A file with your key, instead of ${KEY_VARIABLE} or a new key.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Maximum number of answers generated at once.")] = 32,
    waiting: Annotated[
        int, typer.Option("--waiting", min=0, help="Maximum number of answers that wait; further clients get 429.")
    ] = 512,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
) -> None:
    """Serve the released model through an OpenAI-compatible API, with a chat page.

    Paths: `/v1/chat/completions` (streams, tools, tool_choice, JSON schemas, log-probabilities), `/v1/completions`,
    `/v1/models`, `/health`, `/metrics`. By default it listens on this machine only. Clients need a key: yours, or a new
    one that is printed once.

    Examples:

    - `openk2 serve`: the latest release of the preset, at http://127.0.0.1:8000/v1.

    - `openk2 serve --folder FOLDER --port 8001 --rows 64`: another released folder.

    - `OPENK2_SERVE_KEY=... openk2 serve --host 0.0.0.0 --allow-host models.example.org`: for other machines, behind a
      proxy with TLS.
    """
    from model.serve.app import application
    from model.serve.server import listen, server

    key, own = _key(key_file, host)
    listener = listen(host, port)
    request = request_of(preset, root, preset_file, overrides)
    released = load(request, folder, int4, precision, device)
    names = [*OWN, *(allow_host or []), *([host] if host not in EVERYWHERE else [])]
    app = application(released.model, released.chat, name, key, names, rows, waiting)
    shown = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    where = f"http://{shown}:{listener.getsockname()[1]}"
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
        str, typer.Option("--url", help=f"An endpoint such as http://127.0.0.1:8000/v1; put its key in ${ENGINE_KEY}.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", help="The model's name at --url. Default: the first that it lists.")
    ] = "",
    system: Annotated[str, typer.Option("--system", help="System message at the start.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Maximum number of new tokens per answer.")] = 256,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, max=2.0, help="0 is greedy.")] = 0.6,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the sampling.")] = None,
    mcp: Annotated[
        Path | None, typer.Option("--mcp", help="YAML of tool servers that the model may call (docs/agentic/mcp.md).")
    ] = None,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
) -> None:
    """Chat with the released model, or with an endpoint, in the terminal. Control characters that the model writes are
    displayed and not interpreted.

    Examples:

    - `openk2 chat`: the latest release of the preset, in this process.

    - `OPENK2_ENGINE_KEY=... openk2 chat --url http://127.0.0.1:8000/v1`: a model served by `openk2 serve`, vLLM or
      another server.

    - `openk2 chat --mcp servers.yaml`: with real tools, which the model may call without asking you.
    """
    from flows.chat import Dialogue, Endpoint, converse, in_process
    from tasks.agentic.mcp.backend import tools_of

    if model and not url:
        raise RequestError("--model names one of the models at --url: say --url too, or choose a release with --folder")
    of_ours = {"--folder": folder, "--int4": int4, "--precision": precision != "auto", "--device": device != "cpu"}
    if url and (given := [name for name, value in of_ours.items() if value]):
        raise RequestError(f"{given[0]} is for a model in this process, and {url} has its own: leave one of them out")
    sampling = {"max_tokens": tokens, "temperature": temperature, **({} if seed is None else {"seed": seed})}
    begin = [{"role": "system", "content": system}] if system else []
    with ExitStack() as open_:
        tools = open_.enter_context(tools_of(mcp)) if mcp else None
        if url:
            endpoint = open_.enter_context(Endpoint.at(url, endpoint_key(), model))
        else:
            request = request_of(preset, root, preset_file, overrides)
            endpoint = open_.enter_context(in_process(load(request, folder, int4, precision, device)))
        converse(Dialogue(endpoint, sampling, begin, tools))


def load(request: Request, folder: Path | None, int4: bool, precision: Precision, device: str) -> Released:
    """The released model as it is served."""
    import torch

    from model.precision import dtype_of
    from tasks.evaluate.generation import Released

    try:
        place = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError):  # torch raises the one for a name that it does not know, the other else
        raise RequestError(f"--device {device}: torch has no such device here; cpu is everywhere") from None
    released = Released.load(_folder(request, folder, int4))
    released.model.to(place, dtype_of(precision, place))
    return released


def _folder(request: Request, folder: Path | None, int4: bool) -> Path:
    """The released folder that is named, or this recipe's."""
    from model.storage import local_path  # fsspec, which the other commands' start is spared

    if folder is not None:
        if int4:
            raise RequestError("--int4 chooses between this preset's two folders: with --folder name the INT4 folder")
        return local_path(str(folder))
    from flows.steps import graph
    from tasks.artifact import NotReady
    from tasks.evaluate.release import checkpoint_folder

    try:
        released = graph(request)["release"].require()
    except NotReady:
        told = "there is no release of this preset in this root yet: `openk2 run` with the same options makes one"
        raise RequestError(f"{told}; or name a folder with --folder") from None
    return checkpoint_folder(released, "int4" if int4 else "bf16")


def _key(path: Path | None, host: str) -> tuple[str, bool]:
    """The key, and whether the owner gave it. Raises RequestError where it will not do."""
    try:
        given = path.read_text(encoding="utf-8").strip() if path else os.environ.get(KEY_VARIABLE, "").strip()
    except UnicodeDecodeError:
        raise RequestError(f"{path} is no text: `openssl rand -hex 24` makes a key") from None
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
