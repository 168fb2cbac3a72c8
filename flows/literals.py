"""YAML read strictly: plain literals, each with the file and line that it stands in, layered by `extends` and `--set`.

Refused, where PyYAML would read on: a key given twice, numbers that are not finite, tags of Python's own, merge keys,
several documents, and aliases or nesting that grow beyond what a person writes.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tasks.address import redacted

NODES_MAX = 100_000  # of a file once aliases are written out; the largest preset has a thousand
DEPTH_MAX = 50
BYTES_MAX = 10_000_000
# YAML 1.1 takes `1e-3` for a string, which nobody who writes a learning rate means.
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+")

Place = tuple[str | int, ...]
"""Where a literal stands: keys and positions from the outside in."""


class PresetError(ValueError):
    """A preset that does not exist or does not validate; the message names the file and the field."""


@dataclass(frozen=True)
class Literals:
    """Nested literals, and where each of them was written."""

    values: dict[str, Any]
    places: dict[Place, str] = field(default_factory=dict)
    """By path: `mine.yaml, line 7` or `--set '...'`."""

    def place(self, location: Sequence[str | int]) -> str:
        """Where the value at `location` was written, or the nearest that holds it. What is no key on the way (the kinds
        of a union, as pydantic names them) is passed over."""
        path: Place = ()
        for item in location:
            if (*path, item) in self.places:
                path = (*path, item)
        return self.places.get(path, "")

    def over(self, base: Literals) -> Literals:
        """These literals over those of `base`, field by field."""
        replaced = set(_leaves(self.values, ()))
        below = {
            path: place
            for path, place in base.places.items()
            if not any(path[:depth] in replaced for depth in range(1, len(path)))
        }
        return Literals(_merged(base.values, self.values), below | self.places)

    def changed(self, text: str) -> Literals:
        """These literals with one override, `a.b.c=value`, applied; the value is read as YAML. Raises PresetError."""
        shown = f"--set '{redacted(text)}'"
        name, equals, value = text.partition("=")
        keys = tuple(name.strip().split("."))
        if not equals or not all(keys):
            raise PresetError(f"{shown} is not of the form stage.field=value")
        written: dict[Place, str] = {}
        values = copy.deepcopy(self.values)
        group = values
        for key in keys[:-1]:
            group = group.setdefault(key, {})
            if not isinstance(group, dict):
                raise PresetError(f"{shown}: '{key}' is a value, not a group of fields")
        group[keys[-1]] = _parsed(value, lambda _: shown, written)
        above = {keys[: at + 1]: shown for at in range(len(keys))}
        kept = {path: place for path, place in self.places.items() if path[: len(keys)] != keys}
        return Literals(values, kept | above | {(*keys, *path): shown for path in written})

    def dropping(self, path: Sequence[str]) -> Literals:
        """These literals without the field at `path`, where there is one."""
        values = copy.deepcopy(self.values)
        group: Any = values
        for key in path[:-1]:
            group = group.get(key)
            if not isinstance(group, dict):
                return self
        group.pop(path[-1], None)
        return Literals(
            values, {place: told for place, told in self.places.items() if place[: len(path)] != tuple(path)}
        )

    def without(self, key: str) -> tuple[Any, Literals]:
        """(the value of a field of the outermost group or None, the others)."""
        rest = {name: value for name, value in self.values.items() if name != key}
        return self.values.get(key), Literals(rest, self.places)


def read(path: Path) -> Literals:
    """The literals of a file. Raises PresetError with file and line; FileNotFoundError where there is none."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise PresetError(f"{path} has more than {BYTES_MAX:,} bytes: that is no preset")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise PresetError(f"{path} is not UTF-8 (at byte {error.start}): save it as UTF-8") from error
    except OSError as error:
        raise PresetError(f"{path} cannot be read: {error.strerror or error}") from error
    places: dict[Place, str] = {}

    def where(line: int) -> str:
        return f"{path}, line {line}"

    values = _parsed(text, where, places)
    if not isinstance(values, dict) or not values:
        what = "holds nothing" if not values else f"holds a {'list' if isinstance(values, list) else 'single value'}"
        raise PresetError(
            f"{path} {what}: a preset is a mapping of stages to their fields, such as `rephrase: {{documents: 40}}` "
            "under `extends: laptop`"
        )
    return Literals(values, places)


def _merged(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _leaves(values: dict[str, Any], path: Place) -> Iterator[Place]:
    """Where a value stands that is no group of fields: it replaces what it is laid over."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


# ---------------------------------------------------------------------------------------------------------------- YAML


def _parsed(text: str, where: Callable[[int], str], places: dict[Place, str]) -> Any:
    """The value of one YAML document; `places` is filled with `where(line)` of every path."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        return _Builder(loader, where, places).value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.problem, error.context) if part)
        if "expected a single document" in said:
            said = "a second document begins here: a preset is one"
        raise PresetError(f"{where(mark.line + 1 if mark else 1)} is not YAML that can be read: {said}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise PresetError(f"{where(line)} has a character that YAML does not allow: U+{error.character:04X}") from error
    except RecursionError:
        raise PresetError(f"{where(1)}: nested deeper than {DEPTH_MAX} groups: that is no preset") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Builder:
    """Nodes of PyYAML into values. Aliases share a node: they are written out here, and counted."""

    def __init__(self, loader: yaml.SafeLoader, where: Callable[[int], str], places: dict[Place, str]) -> None:
        self.loader, self.where, self.places = loader, where, places
        self.nodes = 0

    def value(self, node: yaml.Node, path: Place) -> Any:
        place = self.where(node.start_mark.line + 1)
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise PresetError(f"{place}: aliases grow this to more than {NODES_MAX:,} values: write out what is meant")
        if len(path) > DEPTH_MAX:
            raise PresetError(f"{place}: nested deeper than {DEPTH_MAX} groups: that is no preset")
        self.places.setdefault(path, place)
        if isinstance(node, yaml.MappingNode):
            self._plain(node, "map", place)
            return dict(self._items(node, path))
        if isinstance(node, yaml.SequenceNode):
            self._plain(node, "seq", place)
            return [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, place)

    def _items(self, node: yaml.MappingNode, path: Place) -> Iterator[tuple[str, Any]]:
        seen: dict[str, str] = {}
        for name, content in node.value:
            place = self.where(name.start_mark.line + 1)
            if name.tag == "tag:yaml.org,2002:merge":
                raise PresetError(f"{place}: `<<` is not read here: write the fields out, or use `extends`")
            if not isinstance(name, yaml.ScalarNode):
                raise PresetError(f"{place}: a field's name is a word, no list or group")
            key = name.value
            if key in seen:
                raise PresetError(f"{place}: '{key}' was given already ({seen[key]}): keep one of the two")
            seen[key] = place
            self.places[(*path, key)] = place
            yield key, self.value(content, (*path, key))

    def _scalar(self, node: yaml.ScalarNode, place: str) -> Any:
        if node.tag == "tag:yaml.org,2002:str" and node.style is None and _NUMBER.fullmatch(node.value):
            number = float(node.value)
            found: Any = int(number) if number.is_integer() else number  # 1e9 tokens are a count
        elif node.tag in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:binary"):
            found = node.value
        else:
            self._plain(node, "null bool int float str", place)
            try:
                found = self.loader.construct_object(node)
            except ValueError:  # a number with too many digits, or `!!int x`
                raise PresetError(f"{place}: '{node.value[:40]}' is no number that can be read") from None
        if isinstance(found, float) and not math.isfinite(found):
            raise PresetError(f"{place}: '{node.value[:40]}' is no finite number")
        return found

    def _plain(self, node: yaml.Node, kinds: str, place: str) -> None:
        tag = str(node.tag)
        if tag not in {f"tag:yaml.org,2002:{kind}" for kind in kinds.split()}:
            raise PresetError(f"{place}: the tag '{tag[:80]}' is not read here: write plain values")
