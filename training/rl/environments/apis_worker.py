"""Plays calls on bfcl-eval's simulated APIs: one JSON object on stdin, one on stdout. It runs in the sandbox and
imports nothing of ours.

What comes out is hashes of results and states, which is all that is compared, and the texts of the last results, which
is what a model sees next. A long context's states would be megabytes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import types


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # what an API prints is no answer
    given = json.load(sys.stdin)
    if importlib.util.find_spec("mpmath") is None:
        sys.modules["mpmath"] = types.ModuleType("mpmath")  # sent along only where a call needs it: it is large
    apis = {name: opened(name, module, given) for name, module in given["modules"].items()}
    functions: dict[str, object] = {}
    for api in apis.values():
        methods = inspect.getmembers(api, predicate=inspect.ismethod)
        functions.update((name, method) for name, method in methods if not name.startswith("_"))
    turns, texts = [], []
    for calls in given["turns"]:
        texts = [result(functions, call) for call in calls]
        turns.append(
            {
                "results": [digest(text) for text in texts],
                "states": {name: digest(api) for name, api in apis.items()},
            }
        )
    last = given["last"]
    json.dump({"turns": turns, "texts": texts[len(texts) - last :]}, out)
    out.flush()


def opened(name, module, given):  # type: ignore[no-untyped-def]
    """An API in the state where the dialogue begins."""
    api = getattr(importlib.import_module(module), name)()
    if hasattr(api, "_load_scenario"):
        api._load_scenario(given["initial"].get(name, {}), long_context=given["long"])
    return api


def result(functions, call):  # type: ignore[no-untyped-def]
    """What a call says, as BFCL writes it; a call that fails says why."""
    try:
        if call["name"] not in functions:
            raise NameError(f"name '{call['name']}' is not defined")
        value = functions[call["name"]](**call["arguments"])
    except Exception as error:
        return f"Error during execution: {error}"
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            pass
    return str(value)


def plain(value):  # type: ignore[no-untyped-def]
    """A value as JSON in which equal values are equal texts: 1 is 1.0 and True, as Python has it. Of an object its
    public attributes; not the way back up from a folder, which would not end."""
    if isinstance(value, (bool, int, float)):
        return int(value) if value == value and abs(value) != float("inf") and value == int(value) else value
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [plain(one) for one in value]}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(text(one) for one in value)}
    if isinstance(value, dict):
        return {"dict": {text(key): plain(one) for key, one in value.items()}}
    if hasattr(value, "__dict__"):
        public = {name: one for name, one in vars(value).items() if not name.startswith("_") and name != "parent"}
        return {type(value).__name__: plain(public)}
    return repr(value)


def text(value):  # type: ignore[no-untyped-def]
    return json.dumps(plain(value), sort_keys=True)


def digest(value):  # type: ignore[no-untyped-def]
    return hashlib.sha256(text(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]


if __name__ == "__main__":
    main()
