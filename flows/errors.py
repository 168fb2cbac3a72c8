"""One sentence for a person from whatever went wrong."""

from __future__ import annotations

import errno
import typing
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from model.config import Config, refused
from tasks.address import hides, redacted

ADVICE = {
    errno.ENOTDIR: "a file stands where a folder is needed; name another place (`--root`), or move the file away",
    errno.EROFS: "nothing can be written there; name another place (`--root`)",
    errno.EACCES: "mend its permissions, or name another place (`--root`)",
    errno.EPERM: "mend its permissions, or name another place (`--root`)",
}
"""What to do about a file that cannot be read or written."""


def near(name: str, names: Iterable[str], most: int = 8) -> str:
    """`did you mean NAME?`, or which there are where none is like it."""
    known = list(names)
    close = get_close_matches(name, known, 1)
    if close:
        return f"did you mean '{close[0]}'?"
    if not known:
        return "there are none"
    return f"there are {', '.join(sorted(known)[:most])}{', ...' if len(known) > most else ''}"


def refusal(error: ValidationError, model: type[Config]) -> str:
    """The first thing that a configuration of `model` was refused for: which field, why, what was given, and how many
    more there are. A secret is not repeated."""
    first = error.errors()[0]
    location = first["loc"]
    where, said = refused(error)
    what = f"field '{where}'" if where else "taken as a whole"
    if first["type"] == "extra_forbidden":
        said = f"there is no such field; {near(str(location[-1]), _fields(model, location[:-1]))}"
    elif first["type"] == "missing":
        said = "it is missing: give it a value"
    given = first.get("input")
    # a group of fields says nothing in 80 characters
    silent = isinstance(given, dict | Config) or first["type"] in ("missing", "extra_forbidden") or hides(given)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{what}: {said}{more}" + ("" if silent else f"; got {given!r:.80}")


def _fields(model: type[Config], location: Sequence[str | int]) -> list[str]:
    """The fields of the configurations that may stand at `location` of `model`. Positions, and what names the kinds of
    a union, lead nowhere deeper."""
    there = [model]
    for item in location:
        known = [one.model_fields[item].annotation for one in there if item in one.model_fields]
        there = [inner for annotation in known for inner in _configs(annotation)] or there
    kinds = {item for item in location if isinstance(item, str)}
    named = [one for one in there if kinds & _tags(one)]  # of a union, the kind that was given
    return list(dict.fromkeys(name for one in named or there for name in one.model_fields))


def _configs(annotation: Any) -> list[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    return [found for inner in typing.get_args(annotation) for found in _configs(inner)]


def _tags(model: type[Config]) -> set[str]:
    field = model.model_fields.get("kind")
    return set(typing.get_args(field.annotation)) if field else set()


def sentence(error: BaseException) -> str:
    """What was wrong, where, and what to do: the outermost message that was written for a person, else the error's
    kind and text and how to see where it came from. No secret of an address is repeated."""
    return redacted(_sentence(error))


def _sentence(error: BaseException) -> str:
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, OSError) and link.errno == errno.ENOSPC:
            where = f" while writing {link.filename}" if link.filename else ""
            return f"the disk is full{where}: free some room and run the same command again; finished parts are kept"
    for link in chain:
        if _written_for_people(link):
            return str(link)
    for link in chain:
        if isinstance(link, OSError) and link.filename:
            advice = ADVICE.get(link.errno or 0)
            return f"{link.filename}: {link.strerror or link}" + (f": {advice}" if advice else "")
    last = chain[-1]
    return f"{type(last).__name__}: {last} (OPENK2_TRACEBACK=1 shows where it came from)"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps, outermost first."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        # `from None`: what is said is whole without what came before
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _written_for_people(error: BaseException) -> bool:
    module = type(error).__module__.split(".")[0]
    return module in {"flows", "tasks", "model", "training", "expectations"}
