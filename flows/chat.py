"""A dialogue in the terminal with an OpenAI-compatible endpoint, or with a model in this process behind one."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from flows.tables import styled
from flows.terminal import Terminal
from model.dialogue import compact, tool_result
from model.engines.reply import KEY_VARIABLE, shown
from model.serve.app import application
from model.serve.server import in_background
from model.visible import encodable, flat, visible

if TYPE_CHECKING:
    from tasks.evaluate.generation import Released

MOST_ROUNDS = 8
"""Times that a model may call tools before it has to answer."""
CONNECT_SECONDS, SILENT_SECONDS = 10.0, 600.0
HELP = "/help  this\n/reset  forget the dialogue\n/quit  end (or Ctrl-D); Ctrl-C stops an answer"
out = Terminal()


class ChatEnded(RuntimeError):
    """An endpoint that did not answer; the message says why."""


class Result(Protocol):
    """What a tool gave: a stranger's text."""

    @property
    def text(self) -> str: ...


class Tools(Protocol):
    """A back end of tools: what a model is told of, and what answers its calls."""

    def tools(self) -> list[dict[str, Any]]:
        """In OpenAI's layout; they do not change."""

    def call(self, name: str, arguments: Any) -> Result:
        """Never raises for what the model asked or the tool did: the result says it."""


def converse(dialogue: Dialogue) -> None:
    """Read lines and answer them until the end of the input or /quit."""
    with suppress(ImportError):
        import readline  # noqa: F401 - `input` edits lines and remembers them with it
    out.print(styled((dialogue.endpoint.model, "bold"), " listens. /help says what else there is."))
    if dialogue.tools is not None:
        names = [tool["function"]["name"] for tool in dialogue.tools.tools()]
        out.print(f"It may call {', '.join(names)}.", soft_wrap=True)
    while True:
        try:
            said = input("> ").strip()
        except EOFError:
            out.print()
            return
        except KeyboardInterrupt:
            out.print()
            continue
        match said:
            case "":
                pass
            case "/quit":
                return
            case "/help":
                out.print(HELP)
            case "/reset":
                dialogue.reset()
                out.print("Forgotten.")
            case _ if said.startswith("/"):
                out.print(f"There is no {flat(said, 20)}; /help says what there is.")
            case _:
                dialogue.say(said)


@dataclass
class Dialogue:
    """What was said so far, and who answers."""

    endpoint: Endpoint
    sampling: dict[str, Any]
    begin: list[dict[str, Any]]
    tools: Tools | None = None
    messages: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.messages = list(self.begin)

    def say(self, text: str) -> None:
        """A turn of the user's and what follows it; one that fails leaves the dialogue as it was."""
        before = list(self.messages)
        self.messages.append({"role": "user", "content": encodable(text)})  # a terminal may send bytes that are no text
        try:
            for _ in range(MOST_ROUNDS):
                calls = self._answer()
                if not calls or self.tools is None:
                    return
                for call in calls:
                    # with the name, as in the dialogues that the model was trained on
                    self.messages.append(tool_result(call["function"]["name"], call["id"], self._result(call)))
            out.print(styled((f"It has called tools {MOST_ROUNDS} times: say how to go on.", "yellow")))
        except ChatEnded as error:
            self.messages = before
            out.print(styled(("No answer: ", "bold red"), str(error)), soft_wrap=True)
            if self.tools is not None and "window" in str(error):
                out.print("The tools' schemas take much of it: `descriptions: false` in --mcp's file shortens them.")
        except (LookupError, TypeError, AttributeError):
            self.messages = before
            out.print(styled(("No answer: ", "bold red"), "what came is no chat completion"))
        except KeyboardInterrupt:
            self.messages = before
            out.print(styled(("\nStopped: this turn is forgotten.", "yellow")))

    def _answer(self) -> list[dict[str, Any]]:
        """One answer, shown as it comes; the calls in it."""
        content, calls, problems = "", list[dict[str, Any]](), list[str]()
        under_way: dict[Any, dict[str, Any]] = {}  # calls by their index
        finish = None
        declared = self.tools.tools() if self.tools else []
        for choice in self.endpoint.stream(self.messages, declared, self.sampling):
            delta, finish = choice.get("delta") or {}, choice.get("finish_reason") or finish
            if piece := delta.get("content"):
                content += piece
                sys.stdout.write(visible(piece))
                sys.stdout.flush()
            for part in delta.get("tool_calls") or ():
                place = part.get("index")
                # some servers repeat a call's id in each of its parts, some give every call the index 0
                if part.get("id") and under_way.get(place, {}).get("id") != part["id"]:
                    function = {"name": "", "arguments": ""}
                    under_way[place] = {"id": part["id"], "type": "function", "function": function}
                    calls.append(under_way[place])
                for key in ("name", "arguments"):
                    under_way[place]["function"][key] += (part.get("function") or {}).get(key) or ""
            problems += [error["reason"] for error in delta.get("tool_call_errors") or ()]
        sys.stdout.write("\n")
        content = encodable(content)  # of the halves that two chunks held one character is made
        for call in calls:
            call["function"] = {key: encodable(text) for key, text in call["function"].items()}
        for problem in problems:
            out.print(styled(("A broken call: ", "yellow"), problem))
        if finish == "length":
            out.print(styled(("Cut: --tokens gives more.", "yellow")))
            calls = []  # the last may lack half its arguments
        for call in calls:
            out.print(
                styled(("calls ", "cyan"), (call["function"]["name"], "bold"), f" {call['function']['arguments']}")
            )
        message: dict[str, Any] = {"role": "assistant", "content": content}
        self.messages.append({**message, "tool_calls": calls} if calls else message)
        return calls

    def _result(self, call: dict[str, Any]) -> str:
        assert self.tools is not None
        try:
            text = self.tools.call(call["function"]["name"], json.loads(call["function"]["arguments"])).text
        except (ValueError, RecursionError):
            text = compact({"error": "invalid_arguments", "message": "the arguments are no JSON"})
        out.print(styled(("gives ", "cyan"), flat(text, 400)))
        return text


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint."""

    client: httpx.Client
    model: str

    @classmethod
    @contextmanager
    def at(cls, url: str, key: str, model: str = "", own: bool = False) -> Iterator[Endpoint]:
        """`own`: it is in this process, whatever proxies the environment names. Raises ChatEnded where nothing there
        answers, or not to this key."""
        timeout = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout, trust_env=not own) as client:
            if not model:
                try:
                    answer = client.get("/models")
                    if answer.status_code != 200:
                        hint = f": its key goes into ${KEY_VARIABLE}" if answer.status_code == 401 else ""
                        raise ChatEnded(f"{url} answered {answer.status_code}{hint} ({shown(answer.content)})")
                    model = str(answer.json()["data"][0]["id"])
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    raise ChatEnded(f"nothing answers at {url} ({type(error).__name__}: {error})") from None
                except (ValueError, LookupError, TypeError):
                    raise ChatEnded(
                        f"{url}/models lists no model: is the URL that of the API? it ends in /v1"
                    ) from None
            yield cls(client, model)

    def stream(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], sampling: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The choices of the chunks of an answer. Raises ChatEnded."""
        body = {"model": self.model, "messages": messages, "stream": True, **sampling}
        try:
            with self.client.stream(
                "POST", "/chat/completions", json=body | ({"tools": tools} if tools else {})
            ) as got:
                if got.status_code != 200:
                    raise ChatEnded(f"status {got.status_code}: {shown(got.read())}")
                for data in _events(got.iter_bytes()):
                    if data.strip() in (b"", b"[DONE]"):
                        continue
                    chunk = json.loads(data)
                    if chunk.get("error"):
                        raise ChatEnded(shown(data))
                    yield from chunk.get("choices") or ()
        except httpx.HTTPError as error:
            raise ChatEnded(f"{type(error).__name__}: {error}") from None
        except (ValueError, AttributeError, RecursionError) as error:
            raise ChatEnded(f"a chunk is no JSON object ({error})") from None


def _events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of server-sent events, a line each. httpx's own lines would end at U+2028 and its like too, which stand
    in an answer as they are."""
    left = b""
    for chunk in chunks:
        *lines, left = (left + chunk).split(b"\n")
        yield from (line.removeprefix(b"data:") for line in lines if line.startswith(b"data:"))
    if left.startswith(b"data:"):
        yield left.removeprefix(b"data:")


@contextmanager
def in_process(released: Released) -> Iterator[Endpoint]:
    """The model behind a port of its own, whose key nobody else has: a chat is the same wherever its model is."""
    key = secrets.token_urlsafe(32)
    app = application(released.model, released.chat, "openk2", key, ["127.0.0.1"], rows=1, waiting=1)
    with in_background(app) as url, Endpoint.at(f"{url}/v1", key, own=True) as endpoint:
        yield endpoint
