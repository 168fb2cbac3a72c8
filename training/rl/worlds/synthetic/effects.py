"""What each operation does to a state: a function of what it is bound to, the state's data and a call's arguments.

Each answers with a JSON object, or raises RefusalError and has changed nothing that is kept.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from training.rl.worlds.synthetic.bound import Bound, Data, Record, day
from training.rl.worlds.world import already, conflict

SMALLER: Mapping[str, tuple[str, int]] = {
    "kg": ("g", 1000), "t": ("kg", 1000), "km": ("m", 1000), "m": ("cm", 100), "cm": ("mm", 10), "litres": ("ml", 1000),
    "hours": ("minutes", 60), "minutes": ("seconds", 60), "days": ("hours", 24), "weeks": ("days", 7),
    "euros": ("cents", 100), "GB": ("MB", 1000), "kW": ("W", 1000), "kWh": ("Wh", 1000), "ha": ("m2", 10_000),
    "years": ("months", 12), "g": ("mg", 1000), "dm": ("cm", 10),
}  # fmt: skip
"""What a unit is in the next smaller one."""


def _shown(key: str, record: Record) -> dict[str, Any]:
    return {"id": key, **record}


def create(bound: Bound, data: Data, **values: Any) -> Any:
    key = bound.add(data, values)
    return _shown(key, bound.record(data, key))


def import_all(bound: Bound, data: Data, items: list[Record]) -> Any:
    # JSON schema takes 2.0 for an integer, at any depth.
    whole = [{name: int(v) if isinstance(v, float) else v for name, v in item.items()} for item in items]
    return {"created": [bound.add(data, item) for item in whole]}


def get(bound: Bound, data: Data, id: str) -> Any:
    return _shown(id, bound.record(data, id))


def find(bound: Bound, data: Data, limit: int = 10, **wanted: Any) -> Any:
    hits = [_shown(key, record) for key, record in bound.table(data).items() if _meets(bound, record, wanted)]
    return {"total": len(hits), bound.entity.plural: hits[:limit]}


def _meets(bound: Bound, record: Record, wanted: Mapping[str, Any]) -> bool:
    for field in bound.fields:
        value = record[field.name]
        low = wanted.get(f"min_{field.name}", wanted.get(f"{field.name}_from"))
        high = wanted.get(f"max_{field.name}", wanted.get(f"{field.name}_until"))
        same = wanted.get(field.name)
        if any(limit is not None for limit in (low, high, same)) and value is None:
            return False
        if (low is not None and value < low) or (high is not None and value > high):
            return False
        if same is not None and value != same:
            return False
    return True


def update(bound: Bound, data: Data, id: str, **values: Any) -> Any:
    record = bound.open_record(data, id)
    bound.check(data, values)
    if all(record[name] == value for name, value in values.items()):
        raise already(f"{id} has these values already")
    record.update(values)
    return _shown(id, record)


def update_all(bound: Bound, data: Data, old: str, new: str) -> Any:
    if old == new:
        raise conflict("old and new are the same")
    name, last = bound.field.name, bound.last_states
    changed = [key for key, one in bound.table(data).items() if one[name] == old and one["status"] not in last]
    for key in changed:
        bound.table(data)[key][name] = new
    return {"changed": changed}


def delete(bound: Bound, data: Data, id: str) -> Any:
    bound.record(data, id)
    for entity in bound.domain.entities:
        names = [field.name for field in entity.fields if field.entity == bound.entity.name]
        for key, record in data["records"][entity.name].items():
            if any(record[name] == id for name in names):
                raise conflict(f"{key} refers to {id}: change or delete it first")
    del bound.table(data)[id]
    return {"deleted": id, "left": len(bound.table(data))}


def count(bound: Bound, data: Data) -> Any:
    counts = dict.fromkeys(bound.field.values, 0)
    for record in bound.table(data).values():
        if record[bound.field.name] is not None:
            counts[record[bound.field.name]] += 1
    return {"counts": counts}


def compare(bound: Bound, data: Data, first: str, second: str) -> Any:
    if first == second:
        raise conflict("both are the same: name two")
    one, other = (_number(bound, bound.record(data, key), key) for key in (first, second))
    larger = None if one == other else first if one > other else second
    return {first: one, second: other, "larger": larger, "difference": abs(one - other)}


def _number(bound: Bound, record: Record, key: str) -> int:
    value = record[bound.field.name]
    if value is None:
        raise conflict(f"{key} has no {bound.field.title}")
    return int(value)


def _numbers(bound: Bound, data: Data) -> dict[str, int]:
    name = bound.field.name
    return {key: record[name] for key, record in bound.table(data).items() if record[name] is not None}


def report(bound: Bound, data: Data, measure: str) -> Any:
    number, group = bound.fields
    groups: dict[str, list[int]] = {value: [] for value in group.values}
    for record in bound.table(data).values():
        if record[number.name] is not None and record[group.name] is not None:
            groups[record[group.name]].append(record[number.name])
    measures: Mapping[str, Callable[[list[int]], int]] = {
        "sum": sum,
        "least": min,
        "greatest": max,
        "average": lambda values: sum(values) // len(values),
    }
    return {"measure": measure, "by": {name: measures[measure](found) for name, found in groups.items() if found}}


def rank(bound: Bound, data: Data, count: int, order: str) -> Any:
    ranked = sorted(_numbers(bound, data).items(), key=lambda item: (item[1], item[0]), reverse=order == "descending")
    return {"ranked": [{"id": key, bound.field.name: value} for key, value in ranked[:count]]}


def move(bound: Bound, data: Data, id: str, reason: str = "") -> Any:
    record = bound.record(data, id)
    if record["status"] == bound.target:
        raise already(f"{id} is {bound.target} already")
    if bound.target not in bound.entity.life[record["status"]]:
        raise conflict(f"{id} is {record['status']}: it can't become {bound.target}")
    record["status"] = bound.target
    return {"id": id, "status": bound.target, **({"reason": reason} if reason else {})}


def next_steps(bound: Bound, data: Data, id: str) -> Any:
    status = bound.record(data, id)["status"]
    return {"id": id, "status": status, "may_become": list(bound.entity.life[status])}


def by_status(bound: Bound, data: Data, status: str) -> Any:
    return {"ids": [key for key, record in bound.table(data).items() if record["status"] == status]}


def children(bound: Bound, data: Data, of: str) -> Any:
    parent = bound.field.entity
    Bound(bound.domain, bound.domain.entity(parent)).record(data, of)
    return {"ids": [key for key, record in bound.table(data).items() if record[bound.field.name] == of]}


def relink(bound: Bound, data: Data, id: str, to: str) -> Any:
    return update(bound, data, id, **{bound.field.name: to})


def adjust(sign: int) -> Callable[..., Any]:
    def run(bound: Bound, data: Data, id: str, by: int) -> Any:
        field, record = bound.field, bound.open_record(data, id)
        value = _number(bound, record, id) + sign * by
        if not field.low <= value <= field.high:
            raise conflict(f"{field.title} would be {value}; it goes from {field.low} to {field.high}")
        record[field.name] = value
        return {"id": id, field.name: value}

    return run


def transfer(bound: Bound, data: Data, source: str, target: str, amount: int) -> Any:
    if source == target:
        raise conflict("source and target are the same")
    field = bound.field
    one, other = bound.open_record(data, source), bound.open_record(data, target)
    less, more = _number(bound, one, source) - amount, _number(bound, other, target) + amount
    if less < field.low or more > field.high:
        raise conflict(f"{source} would have {less} and {target} {more}; {field.low} to {field.high} is allowed")
    one[field.name], other[field.name] = less, more
    return {source: less, target: more}


def postpone(bound: Bound, data: Data, id: str, days: int) -> Any:
    record = bound.open_record(data, id)
    if record[bound.field.name] is None:
        raise conflict(f"{id} has no {bound.field.title}")
    later = day(record[bound.field.name]) + dt.timedelta(days=days)
    record[bound.field.name] = later.isoformat()
    return {"id": id, bound.field.name: later.isoformat()}


def due(bound: Bound, data: Data, before: str, limit: int = 10) -> Any:
    last, name = day(before).isoformat(), bound.field.name
    dates = sorted((one[name], key) for key, one in bound.table(data).items() if one[name] and one[name] < last)
    return {"due": [{"id": key, name: value} for value, key in dates[:limit]]}


def days_between(bound: Bound, data: Data, first: str, second: str) -> Any:
    days = []
    for key in (first, second):
        if (value := bound.record(data, key)[bound.field.name]) is None:
            raise conflict(f"{key} has no {bound.field.title}")
        days.append(day(value))
    return {"days": abs((days[1] - days[0]).days), "earlier": first if days[0] <= days[1] else second}


def convert(bound: Bound, data: Data, id: str) -> Any:
    unit, factor = SMALLER[bound.field.unit]
    value = _number(bound, bound.record(data, id), id)
    return {"id": id, bound.field.unit: value, unit: value * factor}


def check(bound: Bound, data: Data, id: str, limit: int) -> Any:
    value = _number(bound, bound.record(data, id), id)
    return {"id": id, bound.field.name: value, "above": value > limit, "margin": value - limit}


def estimate(bound: Bound, data: Data, id: str, times: int, discount: int = 0) -> Any:
    each = _number(bound, bound.record(data, id), id)
    return {"each": each, "times": times, "total": each * times * (100 - discount) // 100}


def tag(bound: Bound, data: Data, id: str, tag: str) -> Any:
    record = bound.open_record(data, id)
    if tag in record["tags"]:
        raise already(f"{id} has this tag already")
    if len(record["tags"]) >= 5:
        raise conflict(f"{id} has five tags: remove one first")
    record["tags"].append(tag)
    return {"id": id, "tags": record["tags"]}


def untag(bound: Bound, data: Data, id: str) -> Any:
    record = bound.open_record(data, id)
    if not record["tags"]:
        raise already(f"{id} has no tags")
    removed, record["tags"] = record["tags"], []
    return {"id": id, "removed": removed}


def note(bound: Bound, data: Data, id: str, text: str) -> Any:
    record = bound.record(data, id)
    if len(record["notes"]) >= 8:
        raise conflict(f"{id} has eight notes, which is all it can have")
    record["notes"].append(text)
    return {"id": id, "notes": len(record["notes"])}


def copy(bound: Bound, data: Data, id: str, **changed: Any) -> Any:
    record = bound.record(data, id)
    values = {field.name: record[field.name] for field in bound.entity.fields}
    return create(bound, data, **{**values, **changed})


def merge(bound: Bound, data: Data, keep: str, drop: str) -> Any:
    if keep == drop:
        raise conflict("both are the same: name two")
    field, record = bound.field, bound.open_record(data, keep)
    total = _number(bound, record, keep) + _number(bound, bound.open_record(data, drop), drop)
    if not field.low <= total <= field.high:
        limit = f"at most {field.high}" if total > field.high else f"at least {field.low}"
        raise conflict(f"together their {field.title} would be {total}; {limit} is allowed")
    delete(bound, data, drop)
    record[field.name] = total
    return {"kept": keep, field.name: total}


def search(bound: Bound, data: Data, query: str) -> Any:
    name = bound.field.name
    hits = [key for key, one in bound.table(data).items() if one[name] and query.lower() in one[name].lower()]
    return {"matches": hits}
