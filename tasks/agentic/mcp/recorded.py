"""Tools of real servers in dialogues: how they are asked for, and what they answered when they were recorded."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from model.dialogue import compact
from model.visible import flat
from tasks.agentic.tools import Tool, ToolError
from tasks.artifact import Artifact
from training.rl.worlds.wording import Language, Split, expand, fields

MOST_SAID = 80
"""Characters of a result that the assistant repeats: the text is a stranger's."""


@dataclass(frozen=True, kw_only=True)
class RecordedTool(Tool):
    """A tool whose answers are those that its server gave."""

    declared: Mapping[str, Any]
    """As `openk2 chat --mcp` declares it, description and all."""
    licence: str
    grammars: tuple[str, ...]
    """Ways to ask of the server's row; each fits calls with exactly its fields."""
    calls: tuple[dict[str, Any], ...]
    """The arguments of the recorded calls, of which `draw` takes some."""

    def with_calls(self, calls: tuple[dict[str, Any], ...]) -> RecordedTool:
        """The tool, of which only these calls are drawn."""
        return replace(self, calls=calls, draw=_draw_of(calls))

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.declared["function"]["parameters"])

    def declaration(self, name: str, described: bool) -> dict[str, Any]:
        return dict(self.declared)

    def clauses(self, language: Language, split: Split, arguments: Mapping[str, Any]) -> list[str]:
        """Composed of the tool's name, its description and the names of its arguments; the same in every split."""
        texts = {name: _shown(value) for name, value in arguments.items()}
        found = [
            re.sub(r"\{(\w+)\}", lambda field: texts[field[1]], wording)
            for grammar in self.grammars
            for wording in expand(grammar)
            if fields(wording) == set(texts)
        ]
        labelled = [f"{_words(name)} {text}" for name, text in texts.items()]
        listed = " and ".join(filter(None, (", ".join(labelled[:-1]), *labelled[-1:])))
        for head in self._heads():
            if len(texts) < 2:
                found.append(" for ".join((head, *texts.values())))
            if texts:
                found += [f"{head} with {listed}", f"{head}: {listed}"]
        return found

    def _heads(self) -> list[str]:
        name = _words(self.name.partition("_")[2])
        sentence = re.split(r"(?<=[.!?])\s|\n", self.description.strip())[0].rstrip(".!")
        return list(dict.fromkeys([name, *([_lowered(sentence)] if 2 < len(sentence.split()) <= 12 else [])]))

    def reply(self, language: Language, arguments: Mapping[str, Any], result: str) -> str:
        """The first thing that the result says and the request did not."""
        try:
            value = json.loads(result)
            compact(value)  # Python reads NaN, and cannot write it
        except (ValueError, RecursionError):
            value = result
        if isinstance(value, dict):
            news = [(key, one) for key, one in value.items() if isinstance(one, str | int | float)]
            news = [(key, one) for key, one in news if one not in arguments.values()]
            said = f"The {_words(news[0][0])} is {_shown(news[0][1])}." if news else ""
        else:
            said = _shown(value)
        return flat(said) if 0 < len(said) <= MOST_SAID else "It is done."


def recorded_tools(tools: Artifact) -> list[RecordedTool]:
    """The tools of servers that the tools stage recorded."""
    return read_record(tools.files("server_tools"), tools.files("server_calls"))


def read_record(tools: Iterable[str | Path], calls: Iterable[str | Path]) -> list[RecordedTool]:
    """Tools and their answers from the parts of a record."""
    answers: dict[str, dict[str, tuple[str, str]]] = {}
    for path in calls:
        for row in pq.read_table(path).to_pylist():
            answers.setdefault(row["function"], {})[row["arguments"]] = row["result"], row["error"]
    return [_tool(row, answers[row["function"]]) for path in tools for row in pq.read_table(path).to_pylist()]


def _tool(row: Mapping[str, Any], answers: Mapping[str, tuple[str, str]]) -> RecordedTool:
    declared = json.loads(row["declaration"])
    calls = tuple(json.loads(text) for text in answers)

    def run(**arguments: Any) -> str:
        result, error = answers.get(compact(arguments), ("", "it was never called so"))
        if error:
            raise ToolError(f"{row['function']}: {error}")
        return result

    return RecordedTool(
        names=(row["function"],),
        description=declared["function"].get("description", ""),
        properties=declared["function"]["parameters"].get("properties", {}),
        run=run,
        draw=_draw_of(calls),
        requests={},
        answer={},
        declared=declared,
        licence=row["licence"],
        grammars=tuple(row["requests"]),
        calls=calls,
    )


def _draw_of(calls: tuple[dict[str, Any], ...]) -> Callable[[random.Random], dict[str, Any]]:
    return lambda chance: dict(chance.choice(calls))


def _shown(value: Any) -> str:
    """A value in a sentence: a text as it is, anything else in JSON."""
    return value if isinstance(value, str) else compact(value)


def _words(name: str) -> str:
    """A name as words: `sourceTimezone` and `source_timezone` are `source timezone`."""
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+", name)).lower() or name


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
