"""What a synthetic tool is made of, whoever proposed it: a domain with entities, and an operation on one of them.

A grammar and a model propose in this one layout. Whatever does not fit it is refused when it is read, sizes included.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from model.config import Config

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=48)]
Words = Annotated[str, Field(pattern=r"^[^\x00-\x1f<>|{}]+$", max_length=60)]
Sentence = Annotated[str, Field(pattern=r"^[^\x00-\x1f<>|]+$", min_length=12, max_length=400)]
Kind = Literal["choice", "integer", "date", "flag", "person", "text", "reference"]
RESERVED = ("id", "status", "tags", "notes", "limit", "error", "message", "bound", "data")
"""What every record, call or refusal has besides an entity's own fields."""


class FieldSpec(Config):
    """One thing that is known of a record."""

    name: Name
    """Such as `weight`."""
    kind: Kind
    """What its values are."""
    values: tuple[Words, ...] = Field(default=(), max_length=12)
    """Of a `choice`: what it may be."""
    low: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Of an `integer`: the least value."""
    high: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Of an `integer`: the greatest value."""
    unit: str = Field(default="", max_length=16, pattern=r"^[A-Za-z0-9/ -]*$")
    """Of an `integer`: what it is counted in."""
    entity: str = Field(default="", max_length=32)
    """Of a `reference`: the entity that it leads to."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "choice" and len(set(self.values)) < max(2, len(self.values)):
            raise ValueError(f"field '{self.name}' is a choice of {self.values}: give two different values at least")
        if self.kind == "integer" and self.low >= self.high:
            raise ValueError(f"field '{self.name}' goes from {self.low} to {self.high}: swap the two, or widen it")
        if (self.kind == "reference") != bool(self.entity):
            raise ValueError(f"field '{self.name}': a reference, and nothing else, names an entity")
        return self

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


class EntitySpec(Config):
    """A kind of record: its fields, and how it lives."""

    name: Name
    """Such as `prescription`."""
    fields: tuple[FieldSpec, ...] = Field(min_length=1, max_length=12)
    """What is known of each."""
    life: dict[Name, tuple[Name, ...]] = Field(min_length=2, max_length=8)
    """Each status with those that may follow it; a record begins in the first."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names) or set(names) & set(RESERVED):
            raise ValueError(f"entity '{self.name}' has fields {names}: each once, and none of {RESERVED}")
        if unknown := {status for following in self.life.values() for status in following} - self.life.keys():
            raise ValueError(f"the life of '{self.name}' leads to {sorted(unknown)}, of which it says nothing")
        return self

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    @property
    def prefix(self) -> str:
        """What the ids of its records begin with."""
        return self.name.replace("_", "")[:4].upper()

    @property
    def plural(self) -> str:
        if self.name == "child":
            return "children"
        if self.name.endswith("y") and self.name[-2:-1] not in "aeou":
            return f"{self.name[:-1]}ies"
        return f"{self.name}es" if self.name.endswith(("s", "x", "ch", "sh")) else f"{self.name}s"


class DomainSpec(Config):
    """One application: the state model that its tools work on."""

    name: Name
    """What stands before the dot of its tools' names."""
    category: Name
    """The field of life that it belongs to."""
    title: Words
    """How it is called in a sentence: `rural pharmacy`."""
    about: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f<>|{}]*$")
    """What is special about it."""
    entities: tuple[EntitySpec, ...] = Field(min_length=1, max_length=4)
    """Its records; a reference leads to an entity that stands before its own."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        before: list[str] = []
        for entity in self.entities:
            if lost := [field.name for field in entity.fields if field.entity and field.entity not in before]:
                raise ValueError(f"'{entity.name}.{lost[0]}' leads to no entity that stands before '{entity.name}'")
            before.append(entity.name)
        if len({entity.prefix for entity in self.entities}) < len(before):
            raise ValueError(f"entities {before} begin with the same letters: their ids could not be told apart")
        return self

    def entity(self, name: str) -> EntitySpec:
        """The entity of that name; KeyError where there is none."""
        return {entity.name: entity for entity in self.entities}[name]


class ToolSpec(Config):
    """A tool that is proposed: its interface follows from the operation, the entity and the fields."""

    name: Name
    """What stands behind the dot of its name."""
    description: Sentence
    """What a model is told that it does."""
    operation: str = Field(max_length=32)
    """What it does (training/rl/worlds/synthetic/operations.py)."""
    entity: str = Field(max_length=32)
    """Whose records it works on."""
    fields: tuple[Annotated[str, Field(max_length=32)], ...] = Field(default=(), max_length=12)
    """Those of the entity's fields that it is about, in the order that the operation takes them."""
    target: str = Field(default="", max_length=32)
    """Of `move`: the status that it leads to."""
