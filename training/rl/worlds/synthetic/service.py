"""A synthetic domain as a world: a start state by seed, its tools as functions, and what always holds.

The world is one like the hand-written ones (training/rl/worlds): a call takes a state and gives another one with a
result, and whatever is wrong with a call is its result.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from training.rl.worlds.synthetic.bound import CAPACITY, Bound, Data
from training.rl.worlds.synthetic.operations import OPERATIONS, bind
from training.rl.worlds.synthetic.spec import DomainSpec, EntitySpec, FieldSpec, ToolSpec
from training.rl.worlds.world import Function, World

RECORDS = 6
"""Of each entity in a start state."""
EMPTY = 0.05
"""Share of the values that a start state leaves out, from an entity's third field on."""
FIRST_DAY = dt.date(2025, 1, 1)
PEOPLE = (
    "Ana", "Bela", "Chen", "Dora", "Emeka", "Farid", "Grete", "Hugo", "Ines", "Jun", "Kofi", "Lena", "Mira", "Nadia",
    "Omar", "Priya", "Quentin", "Rosa", "Sven", "Tarik",
)  # fmt: skip
TAGS = ("urgent", "vip", "check-2", "spring", "old")
TEXTS = (
    "as agreed by phone", "needs a second look", "left at the back door", "see the file of last year",
    "colour as in the sample", "new since the move", "was asked for twice", "handle with care",
)  # fmt: skip


def function_of(domain: DomainSpec, tool: ToolSpec) -> Function:
    """A proposed tool as a function of its domain's world.

    Raises:
        ValueError: it names an operation, an entity or a field that does not exist, or fields that the operation does
            not take.
    """
    operation = OPERATIONS.get(tool.operation)
    if operation is None:
        raise ValueError(f"there is no operation {tool.operation!r}")
    try:
        bound = bind(domain, tool.entity, tool.fields, tool.target)
    except KeyError as error:
        raise ValueError(f"the domain has no {error.args[0]!r}") from None
    if not operation.accepts(bound):
        raise ValueError(f"{tool.operation} does not take {', '.join(tool.fields) or tool.target or 'no field'}")
    return Function(
        (tool.name,),
        tool.description,
        operation.arguments(bound),
        partial(operation.run, bound),
        operation.writes,
        operation.optional(bound),
        operation.repeatable,
    )


def world_of(domain: DomainSpec, functions: Iterable[Function]) -> World:
    """The world of a domain with some tools."""
    return World(
        domain.name, (domain.name,), {one.name: one for one in functions}, partial(_draw, domain), _invariants(domain)
    )


def _draw(domain: DomainSpec, draw: random.Random) -> Data:
    data: Data = {"records": {entity.name: {} for entity in domain.entities}, "next": 101}
    for entity in domain.entities:
        bound = Bound(domain, entity)
        for _ in range(RECORDS):
            key = bound.add(data, {field.name: _value(field, data, draw) for field in entity.fields})
            record = bound.table(data)[key]
            record["status"] = draw.choice(list(entity.life))
            record["tags"] = draw.sample(TAGS, draw.randint(0, 2))
            for field in entity.fields[2:]:
                if field.kind != "reference" and draw.random() < EMPTY:
                    record[field.name] = None
    return data


def _value(field: FieldSpec, data: Data, draw: random.Random) -> Any:
    if field.kind == "choice":
        return draw.choice(field.values)
    if field.kind == "integer":
        return draw.randint(field.low, field.high)
    if field.kind == "flag":
        return draw.random() < 0.5
    if field.kind == "date":
        return record_date(draw)
    if field.kind == "reference":
        return draw.choice(list(data["records"][field.entity]))
    return draw.choice(PEOPLE if field.kind == "person" else TEXTS)


def record_date(draw: random.Random) -> str:
    """A day as records have them."""
    return (FIRST_DAY + dt.timedelta(days=draw.randrange(730))).isoformat()


def _invariants(domain: DomainSpec) -> dict[str, Any]:
    def each(holds: Any) -> Any:
        return lambda data: all(
            holds(entity, key, record, data)
            for entity in domain.entities
            for key, record in data["records"][entity.name].items()
        )

    return {
        "every value is one of its field": each(_values_fit),
        "a reference leads to a record": each(_references_lead),
        "every status is one of its entity's life": each(
            lambda entity, key, record, data: record["status"] in entity.life
        ),
        "a tag stands once": each(lambda entity, key, record, data: len(set(record["tags"])) == len(record["tags"])),
        "ids are numbered below the next one": each(
            lambda entity, key, record, data: int(key.removeprefix(f"{entity.prefix}-")) < data["next"]
        ),
        "there is room for all records": lambda data: all(len(table) <= CAPACITY for table in data["records"].values()),
    }


def _values_fit(entity: EntitySpec, key: str, record: Mapping[str, Any], data: Data) -> bool:
    names = {field.name for field in entity.fields} | {"status", "tags", "notes"}
    return record.keys() == names and all(_fits(field, record[field.name]) for field in entity.fields)


def _fits(field: FieldSpec, value: Any) -> bool:
    if value is None:
        return field.kind != "reference"
    if field.kind == "integer":
        return type(value) is int and field.low <= value <= field.high
    if field.kind == "flag":
        return type(value) is bool
    if type(value) is not str:
        return False
    if field.kind == "date":
        try:
            return dt.date.fromisoformat(value).isoformat() == value
        except ValueError:
            return False
    return field.kind != "choice" or value in field.values


def _references_lead(entity: EntitySpec, key: str, record: Mapping[str, Any], data: Data) -> bool:
    return all(
        record[field.name] in data["records"][field.entity] for field in entity.fields if field.kind == "reference"
    )
