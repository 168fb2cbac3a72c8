"""The process that becomes the program: it takes its place, then runs the text it was given."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import sys
import threading
import types
from typing import Any, NoReturn

from training.rl.sandbox.inside import kernel, plain

FOLDER = "/tmp/work"
OURS = ("training", "__main__")
"""Modules that a program has no use for."""
LAST_LINE = 1 << 24


def program(source: int, standard: tuple[int, int, int], judge: int, languages: dict[str, Any]) -> NoReturn:
    """Run the program in descriptor `source`; where it has hidden tests, answer the calls that come over `judge`."""
    for place, descriptor in enumerate(standard):
        os.dup2(descriptor, place)
    with open(source, encoding="utf-8") as file:
        given = json.load(file)
    calls = socket.socket(fileno=os.dup2(judge, 3)) if given["entry_point"] else None
    os.closerange(4 if calls else 3, 1 << 16)
    kernel.traceable(True)  # to itself: it is not init's memory any more
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()
    os.chdir(FOLDER)
    language = languages[given["language"]]
    for name, text in {**given["files"], language["file"]: given["source"]}.items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    if language["command"]:
        os.execvp(language["command"][0], language["command"])
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    path = f"{FOLDER}/{language['file']}"
    sys.argv[:], sys.path[:0] = [path], [FOLDER]
    os._exit(python(path, given["source"], given["entry_point"], given.get("in_place", False), calls) & 0xFF)


def python(path: str, source: str, entry_point: str, in_place: bool, calls: socket.socket | None) -> int:
    """As the interpreter runs a script, its end included; gives the exit code."""
    module = types.ModuleType("solution" if calls else "__main__")
    module.__file__ = path
    sys.modules[module.__name__] = sys.modules["__main__"] = module
    code = 0
    try:
        compiled = compile(source.removeprefix("\ufeff"), path, "exec", dont_inherit=True)
        exec(compiled, module.__dict__)  # noqa: S102 - what the sandbox is for
        if calls:
            answer(calls, getattr(module, entry_point), in_place)
    except SystemExit as wish:
        code = wish.code if isinstance(wish.code, int) else int(wish.code is not None)
        if wish.code is not None and not isinstance(wish.code, int):
            sys.stderr.write(f"{wish.code}\n")
    except BaseException as error:
        code = 1
        if error.__traceback__:
            error = error.with_traceback(error.__traceback__.tb_next)  # without this file's own line
        sys.excepthook(type(error), error, error.__traceback__)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        code = code or 120
        sys.excepthook(type(error), error, None)
    return code


def answer(calls: socket.socket, function: Any, in_place: bool) -> None:
    """Call the function as the tests ask, until they are done. What goes back is plain data: this process is the
    program's, and may send whatever it likes."""
    with calls.makefile("rb") as requests:
        while line := requests.readline(LAST_LINE):
            arguments, named = plain.unpack(json.loads(line))
            try:
                reply: dict[str, Any] = {"value": plain.pack(function(*arguments, **named))}
                if in_place:
                    reply["arguments"] = [plain.pack(one) if type(one) in plain.MUTABLE else None for one in arguments]
                answered = json.dumps(reply)
            except Exception as error:
                answered = json.dumps({"error": type(error).__name__, "text": str(error)[:1000]})
            calls.sendall(answered.encode() + b"\n")
