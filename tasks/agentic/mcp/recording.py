"""Real tools for dialogues: the servers of `tools.servers` run once, and what they list and answer is kept.

Once, because an answer may depend on the moment and on the machine: the dialogues are made from this record, and bear
the hash of what is in it. Parts of the tools stage, and of the stage `real-tools`, which nothing reads:

    server_tools/all    the columns of `TOOLS`
    server_calls/all    the columns of `CALLS`

and of the stage `real-tools` alone, dialogues made of these as the dialogues stage makes them:

    server_dialogues/all    the columns of `DIALOGUES`
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from model.dialogue import compact
from tasks.agentic.calls import call_dialogue
from tasks.agentic.config import OF_SERVERS, CallsConfig
from tasks.agentic.mcp.arguments import draw_arguments
from tasks.agentic.mcp.backend import opened
from tasks.agentic.mcp.config import RecordingConfig, ServerConfig, ServerError
from tasks.agentic.mcp.recorded import read_record
from tasks.agentic.mcp.rows import ToolRow
from tasks.artifact import Artifact, Step
from tasks.launch import Execution
from tasks.part import write_table
from training.rl.worlds.wording import fields

if TYPE_CHECKING:
    from tasks.agentic.mcp.client import Toolbox

VERSION = 3  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

_ORIGIN = ("licence", "package", "version", "announced", "sha256")
TOOLS = pa.schema(
    [(name, pa.string()) for name in ("function", "server", "name", "declaration", *_ORIGIN)]  # declaration: JSON
    + [("requests", pa.list_(pa.string()))]  # grammars of the server's row
)
CALLS = pa.schema([(name, pa.string()) for name in ("function", "arguments", "result", "error")])  # arguments: JSON
PARTS = ("server_tools/all", "server_calls/all")
DIALOGUES = pa.schema(
    [(name, pa.string()) for name in ("environment", "player", "persona", "rubric", "verdicts", "reason", "messages")]
)
"""`reason`: why the rules refuse it; empty where they do not."""
IN_DIALOGUES = "server_dialogues/all"
SHORT = CallsConfig(requests=2, offered=2)
Row = dict[str, Any]


def run(step: Step, execution: Execution) -> Artifact:
    """The stage `real-tools`: list and call servers, so that a report can say what they answer here. No stage reads it:
    whether they are there, and what a clock says, changes nothing that is trained."""
    config = step.config
    assert isinstance(config, RecordingConfig)
    servers = record(step, config.servers, config.recorded, config.seed)
    return step.publish({"servers": servers, "dialogues": _write_dialogues(step, config.seed)}, (*PARTS, IN_DIALOGUES))


def _write_dialogues(step: Step, seed: int) -> Row:
    """Draw as many dialogues as calls were recorded, hold them against their rubrics and write them; the counts."""
    tools, calls = step.parts(PARTS)
    recorded = read_record([step.path(tools)], [step.path(calls)])
    draw = random.Random(f"{seed}/dialogues")
    rows: dict[str, Row] = {}
    drawn = (calls.rows or 0) if recorded else 0
    for _ in range(drawn):
        dialogue = call_dialogue(SHORT, 0.0, "train", OF_SERVERS, draw, recorded)  # nothing is held out
        verdicts = compact(dict(dialogue.verdicts))
        row = {**dialogue.columns, "verdicts": verdicts, "reason": dialogue.broken or ""}
        rows[row["messages"]] = row
    refused = Counter(row["reason"] for row in rows.values() if row["reason"])
    table = pa.Table.from_pylist(list(rows.values()), DIALOGUES)
    step.put(IN_DIALOGUES, ".parquet", partial(write_table, table=table), table.num_rows)
    left = len(rows) - refused.total()
    return {"drawn": drawn, "twice": drawn - len(rows), "refused": dict(sorted(refused.items())), "kept": left}


def record(step: Step, servers: Sequence[ServerConfig], calls: int, seed: int) -> Row:
    """Write the two parts, unless an earlier attempt did; statistics of them. `calls`: different ones of each tool.

    Raises:
        ServerError: a server that is not optional cannot be used, or dies.
    """
    if any(step.part(key) is None for key in PARTS):
        tools, made, left_out = _asked(servers, calls, seed)
        counts = {
            "licences": dict(sorted(Counter(row["licence"] for row in tools).items())),
            "refused": dict(sorted(Counter(row["error"] for row in made if row["error"]).items())),
            "left_out": left_out,
        }
        for key, rows, schema in zip(PARTS, (tools, made), (TOOLS, CALLS), strict=True):
            table = pa.Table.from_pylist(rows, schema)
            step.put(key, ".parquet", partial(write_table, table=table), table.num_rows, counts)
    tools_part, calls_part = step.parts(PARTS)
    return {"tools": tools_part.rows, "calls": calls_part.rows, **tools_part.statistics}


def _asked(servers: Sequence[ServerConfig], calls: int, seed: int) -> tuple[list[Row], list[Row], dict[str, str]]:
    """Rows of `TOOLS` and of `CALLS`, and why which server was left out."""
    tools: list[Row] = []
    made: list[Row] = []
    left_out: dict[str, str] = {}
    for server in servers:
        listed: list[Row] = []
        answers: list[Row] = []
        try:
            with opened([server]) as box:
                _refuse_unknown(server, box.rows)
                for row in box.rows:
                    answered = list(called(box, row, server, calls, random.Random(f"{seed}/{row.function}")))
                    if not answered:
                        log.warning("%s is left out: no arguments fit its schema; `values` may name some", row.function)
                        continue
                    answers += answered
                    listed.append(
                        {name: getattr(row, name) for name in ("function", "server", "name", *_ORIGIN)}
                        | {"declaration": compact(row.declaration), "requests": list(server.requests.get(row.name, ()))}
                    )
        except ServerError as error:
            if not server.optional:
                raise
            left_out[server.name] = str(error)
            log.warning(
                "the tools of '%s' take no part: %s. With them: mend that, delete this stage's folder, run again",
                server.name,
                error,
            )
            continue
        tools += listed  # only now: one that dies takes no part with half of its tools
        made += answers
    return tools, made, left_out


def _refuse_unknown(server: ServerConfig, rows: Sequence[ToolRow]) -> None:
    """ServerError where `requests` names a tool or an argument that there is not."""
    schemas = {row.name: json.loads(row.schema) for row in rows}
    for tool, grammars in server.requests.items():
        if tool not in schemas:
            raise ServerError(f"server '{server.name}': `requests` names the tool '{tool}', which it does not offer")
        known = schemas[tool].get("properties", {})
        if wrong := [name for grammar in grammars for name in fields(grammar) if name not in known]:
            raise ServerError(
                f"server '{server.name}': `requests` of '{tool}' names {wrong[0]}, which it does not take"
            )


def called(box: Toolbox, row: ToolRow, server: ServerConfig, calls: int, draw: random.Random) -> Iterator[Row]:
    """Different calls of a tool with what it answered, in the order in which they were made."""
    schema, asked = json.loads(row.schema), set[str]()
    for _ in range(4 * calls):
        arguments = draw_arguments(schema, server.values, draw)
        if arguments is None:
            return
        if len(asked) == calls or (text := compact(arguments)) in asked:
            continue
        asked.add(text)
        result = box.call(row.function, arguments)
        if result.error == "unavailable":
            raise ServerError(f"server '{server.name}' ended while it was called: {result.text:.300}")
        yield {"function": row.function, "arguments": text, "result": result.text, "error": result.error or ""}
