"""An operation tied to an entity of a domain: the schemas of its arguments, and its records in a state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.rl.worlds.synthetic.spec import DomainSpec, EntitySpec, FieldSpec
from training.rl.worlds.world import RefusalError, conflict, found, integer, one_of, text

CAPACITY = 12
"""Most records of an entity."""
DATE = "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"
Data = dict[str, Any]
Record = dict[str, Any]


@dataclass(frozen=True)
class Bound:
    """What a tool's schema and behaviour follow from."""

    domain: DomainSpec
    entity: EntitySpec
    fields: tuple[FieldSpec, ...] = ()
    target: str = ""

    @property
    def field(self) -> FieldSpec:
        """The first of the fields that it is about."""
        return self.fields[0]

    @property
    def last_states(self) -> list[str]:
        """The statuses that nothing follows."""
        return [status for status, following in self.entity.life.items() if not following]

    def table(self, data: Data) -> dict[str, Record]:
        return data["records"][self.entity.name]

    def record(self, data: Data, key: str) -> Record:
        """The record. Raises RefusalError where there is none."""
        return found(self.table(data), key, self.entity.title)

    def open_record(self, data: Data, key: str) -> Record:
        """The record, which may be changed. Raises RefusalError where it may not, or there is none."""
        record = self.record(data, key)
        if record["status"] in self.last_states:
            raise conflict(f"{key} is {record['status']}, and stays as it is")
        return record

    def add(self, data: Data, values: Mapping[str, Any]) -> str:
        """A new record of these values; its id. Raises RefusalError where there is no room, or a value is none."""
        if len(self.table(data)) >= CAPACITY:
            raise conflict(
                f"there is room for {CAPACITY} {self.entity.plural.replace('_', ' ')} only: delete one first"
            )
        self.check(data, values)
        key = f"{self.entity.prefix}-{data['next']}"
        blank = {field.name: None for field in self.entity.fields}
        state = {"status": next(iter(self.entity.life)), "tags": [], "notes": []}
        self.table(data)[key] = {**blank, **values, **state}
        data["next"] += 1
        return key

    def check(self, data: Data, values: Mapping[str, Any]) -> None:
        """Raises RefusalError for a date that the calendar has not, and for a reference that leads nowhere."""
        for field in self.entity.fields:
            value = values.get(field.name)
            if field.kind == "date" and value is not None:
                day(value)
            if field.kind == "reference" and value is not None:
                found(data["records"][field.entity], value, field.entity.replace("_", " "))

    def id_of(self, what: str = "") -> dict[str, Any]:
        """The schema of an argument that names a record."""
        return reference(self.entity, what or f"Id of the {self.entity.title}")

    def value_of(self, field: FieldSpec, what: str = "") -> dict[str, Any]:
        """The schema of an argument that is a value of a field."""
        said = what or f"{field.title.capitalize()} of the {self.entity.title}"
        if field.kind == "choice":
            return one_of(field.values, said)
        if field.kind == "integer":
            return integer(field.low, field.high, said + (f" in {field.unit}" if field.unit else ""))
        if field.kind == "flag":
            return {"type": "boolean", "description": said}
        if field.kind == "date":
            return text(f"{said}, as YYYY-MM-DD", 10, DATE)
        if field.kind == "reference":
            return reference(self.domain.entity(field.entity), f"Id of the {field.entity.replace('_', ' ')}")
        return text(said, 40 if field.kind == "person" else 80)


def reference(entity: EntitySpec, what: str) -> dict[str, Any]:
    return text(f"{what}, such as {entity.prefix}-104", 9, f"^{entity.prefix}-[0-9]{{3,4}}$")


def day(value: str) -> dt.date:
    """The date. Raises RefusalError where the calendar has none such."""
    try:
        return dt.date.fromisoformat(value)
    except ValueError:
        raise RefusalError("invalid_value", f"{value} is no day of the calendar") from None
