"""Evolution without a model: application domains by mutation and crossing, then tools on them.

A domain is a trade in a setting (a rural pharmacy). It keeps some of the trade's fields, takes one from another trade
of its category, gains one that belongs to no trade, and its records live one of several lives. Its tools are operations
bound to what it has. Everything follows from the seed and the domain's name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import yaml

from training.rl.worlds.synthetic.bound import Bound
from training.rl.worlds.synthetic.operations import OPERATIONS, Operation
from training.rl.worlds.synthetic.spec import DomainSpec, EntitySpec, FieldSpec, ToolSpec

WORDS = Path(__file__).with_name("domains.yaml")
FIELDS_MIN = 3
"""Fields that a trade's entity keeps, besides its references."""
TRIES = 12
"""Draws for one tool before a domain counts as exhausted."""


@cache
def words() -> Mapping[str, Any]:
    return yaml.safe_load(WORDS.read_text(encoding="utf-8"))


def categories() -> tuple[str, ...]:
    """The fields of life."""
    return tuple(words()["categories"])


def domains(seed: int) -> Iterator[DomainSpec]:
    """Every domain that there can be, the categories in turn, each trade in every setting."""
    told = words()
    per_category = []
    for category, trades in told["categories"].items():
        draw = random.Random(f"{seed}/{category}")
        pairs = [(trade, setting) for setting in told["settings"] for trade in trades]
        draw.shuffle(pairs)
        per_category.append(_evolved(seed, category, pairs))
    yield from (domain for domain in chain(*zip_longest(*per_category)) if domain is not None)


def _evolved(seed: int, category: str, pairs: list[tuple[str, str]]) -> Iterator[DomainSpec]:
    return (_domain(seed, category, trade, setting) for trade, setting in pairs)


def field_of(name: str, said: str) -> FieldSpec:
    """A field as domains.yaml writes it."""
    if said.startswith("-> "):
        return FieldSpec(name=name, kind="reference", entity=said[3:])
    if "|" in said:
        return FieldSpec(name=name, kind="choice", values=tuple(said.split("|")))
    if ".." in said:
        band, _, unit = said.partition(" ")
        low, high = (int(bound) for bound in band.split(".."))
        return FieldSpec(name=name, kind="integer", low=low, high=high, unit="" if unit == "number" else unit)
    return FieldSpec(name=name, kind=said)  # type: ignore[arg-type]


def _domain(seed: int, category: str, trade: str, setting: str) -> DomainSpec:
    told = words()
    name = f"{setting}_{trade}" if setting else trade
    draw = random.Random(f"{seed}/{category}/{name}")
    others = [
        entity for other, found in told["categories"][category].items() if other != trade for entity in found.values()
    ]
    entities = []
    for entity, fields in told["categories"][category][trade].items():
        kept = _kept({key: field_of(key, said) for key, said in fields.items()}, draw if setting else None)
        if setting:
            stranger = draw.choice(others)
            taken = [(key, said) for key, said in stranger.items() if not said.startswith("->")]
            for key, said in (draw.choice(taken), *draw.sample(list(told["traits"].items()), draw.randint(1, 2))):
                kept.setdefault(key, field_of(key, said))
            kept = {key: _mutated(field, draw) for key, field in kept.items()}
        entities.append(EntitySpec(name=entity, fields=tuple(kept.values()), life=draw.choice(told["lives"])))
    title = name.replace("_", " ")
    return DomainSpec(
        name=name, category=category, title=title, about=told["settings"][setting], entities=tuple(entities)
    )


def _kept(fields: dict[str, FieldSpec], draw: random.Random | None) -> dict[str, FieldSpec]:
    """The fields that survive: references always."""
    if draw is None:
        return fields
    loose = [name for name, field in fields.items() if field.kind != "reference"]
    staying = set(draw.sample(loose, max(min(FIELDS_MIN, len(loose)), len(loose) - draw.randint(0, 2))))
    return {name: field for name, field in fields.items() if name in staying or field.kind == "reference"}


def _mutated(field: FieldSpec, draw: random.Random) -> FieldSpec:
    """Another scale, or one choice less."""
    if field.kind == "integer" and draw.random() < 0.5:
        return field.model_copy(
            update={"high": field.low + max(1, (field.high - field.low) * draw.choice((1, 3)) // 2)}
        )
    if field.kind == "choice" and len(field.values) > 3 and draw.random() < 0.4:
        gone = draw.randrange(len(field.values))
        return field.model_copy(update={"values": field.values[:gone] + field.values[gone + 1 :]})
    return field


def tools(domain: DomainSpec, seed: int, count: int) -> list[ToolSpec]:
    """Up to `count` tools on a domain, each operation at most once on the same fields."""
    draw = random.Random(f"{seed}/{domain.category}/{domain.name}/tools")
    found: dict[tuple[Any, ...], ToolSpec] = {}
    # Every operation is drawn before one comes again.
    order: list[str] = []
    for _ in range(count * TRIES):
        if len(found) == count:
            break
        if not order:
            order = draw.sample(list(OPERATIONS), len(OPERATIONS))
        made = _tool(domain, draw, order.pop())
        if made is not None:
            found.setdefault((made.operation, made.entity, frozenset(made.fields), made.target), made)
    return list(found.values())


def _tool(domain: DomainSpec, draw: random.Random, name: str) -> ToolSpec | None:
    operation, entity = OPERATIONS[name], draw.choice(domain.entities)
    fields = _fields(operation, entity, draw)
    if fields is None:
        return None
    target = draw.choice(list(entity.life)) if name == "move" else ""
    if not operation.accepts(Bound(domain, entity, fields, target)):
        return None
    parts = [field.name for field in fields] + [""] * 2  # `{1}` of a sentence that only some bindings have
    slots = {"entity": entity.name, "entities": entity.plural, "target": target}
    called = draw.choice(operation.verbs).format(*parts, **slots)
    titles = {key: value.replace("_", " ") for key, value in slots.items()}
    said = draw.choice(operation.sentences).format(*(f"`{part}`" for part in parts), **titles, service=domain.title)
    said = re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", said)
    where = f" The {domain.title} is {domain.about}." if domain.about and draw.random() < 0.5 else ""
    return ToolSpec(
        name=called,
        description=said + where,
        operation=name,
        entity=entity.name,
        fields=tuple(field.name for field in fields),
        target=target,
    )


def _fields(operation: Operation, entity: EntitySpec, draw: random.Random) -> tuple[FieldSpec, ...] | None:
    """Different fields of the kinds that the operation takes; None where the entity has none such."""
    chosen: list[FieldSpec] = []
    wanted = list(operation.takes) + [operation.takes[-1]] * draw.randint(0, operation.more) if operation.takes else []
    for place, kinds in enumerate(wanted):
        fit = [field for field in entity.fields if field.kind in kinds and field not in chosen]
        if not fit:
            return tuple(chosen) if place >= len(operation.takes) else None
        chosen.append(draw.choice(fit))
    return tuple(chosen)
