"""A calendar of one person: events of a day never overlap."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from training.rl.worlds.world import (
    RefusalError,
    World,
    already,
    conflict,
    found,
    function,
    functions,
    integer,
    text,
)

TITLES = (
    "Dentist", "Team lunch", "Budget review", "Yoga class", "Piano lesson", "Car inspection", "Book club",
    "Job interview", "Parents evening", "Flu shot", "Design meeting", "Swimming", "Chess night", "Haircut",
)  # fmt: skip
GUESTS = ("Ana", "Ben", "Clara", "David", "Elif", "Hugo", "Li Na", "Wang Wei")
DATES = tuple((dt.date(2026, 3, 2) + dt.timedelta(days=days)).isoformat() for days in range(60))
OPENS, CLOSES = 8 * 60, 20 * 60

_DATE = text("YYYY-MM-DD", 10, "^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")
_TIME = text("HH:MM", 5, "^[0-9]{2}:[0-9]{2}$")
_EVENT = text("Id of the event", 6, "^e[0-9]{1,5}$")
_MINUTES = integer(5, 480, "Length in minutes")


def clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _draw(draw: random.Random) -> dict[str, Any]:
    data: dict[str, Any] = {"events": {}, "next": draw.randint(10, 900)}
    dates = draw.sample(DATES, 3)
    for title in draw.sample(TITLES, draw.randint(3, 6)):
        date, length = draw.choice(dates), draw.choice((30, 45, 60, 90))
        start = first_free(data, date, length, OPENS + 30 * draw.randint(0, 8))
        assert start is not None
        _add(data, title, date, start, length)
    return data


def _add(data: dict[str, Any], title: str, date: str, start: int, minutes: int) -> str:
    event = f"e{data['next']}"
    data["events"][event] = {"title": title, "date": date, "start": start, "minutes": minutes, "guests": []}
    data["next"] += 1
    return event


def _shown(event: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"event": event, **entry, "start": clock(entry["start"])}


def first_free(data: Mapping[str, Any], date: str, minutes: int, start: int = OPENS) -> int | None:
    """The first minute of the day from which `minutes` are free."""
    for _, entry in _on(data, date):
        if start + minutes <= entry["start"]:
            break
        start = max(start, entry["start"] + entry["minutes"])
    return start if start + minutes <= CLOSES else None


def _on(data: Mapping[str, Any], date: str) -> list[tuple[str, dict[str, Any]]]:
    here = [(event, entry) for event, entry in data["events"].items() if entry["date"] == date]
    return sorted(here, key=lambda pair: pair[1]["start"])


def _when(date: str, start: str, minutes: int) -> int:
    """Minutes after midnight at which an event may begin.

    Raises:
        RefusalError: there is no such day or time, or the event would end after the day.
    """
    try:
        dt.date.fromisoformat(date)
        time = dt.time.fromisoformat(start)
    except ValueError:
        raise RefusalError("invalid_arguments", "there is no such day or time") from None
    minute = time.hour * 60 + time.minute
    if minute + minutes > 24 * 60:
        raise conflict("an event ends on the day on which it begins")
    return minute


def _place(data: dict[str, Any], date: str, start: int, minutes: int, but: str = "") -> None:
    for event, entry in _on(data, date):
        if event != but and start < entry["start"] + entry["minutes"] and entry["start"] < start + minutes:
            raise conflict(f"{event} is at that time")


@function(("day", "list_day", "events_on"), "Events of a day", {"date": _DATE})
def _day(data: dict[str, Any], date: str) -> dict[str, Any]:
    return {"date": date, "events": [_shown(event, entry) for event, entry in _on(data, date)]}


@function(("find", "search", "find_event"), "Find events by a part of their title", {"title": text("Title")})
def _find(data: dict[str, Any], title: str) -> dict[str, Any]:
    hits = sorted(
        (event for event, entry in data["events"].items() if title.lower() in entry["title"].lower()),
        key=lambda event: int(event[1:]),
    )
    return {"events": [_shown(event, data["events"][event]) for event in hits]}


@function(
    ("free", "first_gap", "free_slot"),
    "The first free time of a day for an event of this length",
    {"date": _DATE, "minutes": _MINUTES},
)
def _free(data: dict[str, Any], date: str, minutes: int) -> dict[str, Any]:
    start = first_free(data, date, minutes)
    if start is None:
        raise conflict(f"no {minutes} minutes are free on {date}")
    return {"date": date, "start": clock(start), "minutes": minutes}


@function(
    ("create", "add_event", "book"),
    "Enter an event",
    {"title": text("Title", 40), "date": _DATE, "start": _TIME, "minutes": _MINUTES},
    writes=True,
)
def _create(data: dict[str, Any], title: str, date: str, start: str, minutes: int) -> dict[str, Any]:
    begin = _when(date, start, minutes)
    wanted = {"title": title, "date": date, "start": begin, "minutes": minutes}
    for event, entry in data["events"].items():
        if wanted.items() <= entry.items():
            raise already(f"{event} is this event")
    _place(data, date, begin, minutes)
    event = _add(data, title, date, begin, minutes)
    return _shown(event, data["events"][event])


@function(
    ("move", "reschedule", "postpone"),
    "Move an event to another time; its length stays",
    {"event": _EVENT, "date": _DATE, "start": _TIME},
    writes=True,
)
def _move(data: dict[str, Any], event: str, date: str, start: str) -> dict[str, Any]:
    entry = found(data["events"], event, "event")
    begin = _when(date, start, entry["minutes"])
    _place(data, date, begin, entry["minutes"], but=event)
    entry |= {"date": date, "start": begin}
    return _shown(event, entry)


@function(("cancel", "delete_event", "remove"), "Take an event out of the calendar", {"event": _EVENT}, writes=True)
def _cancel(data: dict[str, Any], event: str) -> dict[str, Any]:
    found(data["events"], event, "event")
    return {"cancelled": event, "title": data["events"].pop(event)["title"]}


@function(
    ("invite", "add_guest", "add_person"),
    "Invite a person to an event",
    {"event": _EVENT, "guest": text("Name of the person", 40)},
    writes=True,
)
def _invite(data: dict[str, Any], event: str, guest: str) -> dict[str, Any]:
    entry = found(data["events"], event, "event")
    if guest in entry["guests"]:
        raise already(f"{guest} is invited")
    if len(entry["guests"]) == 20:
        raise conflict("an event has 20 guests at most")
    entry["guests"].append(guest)
    return _shown(event, entry)


def _no_overlap(data: Mapping[str, Any]) -> bool:
    for date in {entry["date"] for entry in data["events"].values()}:
        for (_, one), (_, other) in pairwise(_on(data, date)):
            if one["start"] + one["minutes"] > other["start"]:
                return False
    return True


CALENDAR = World(
    "calendar",
    ("calendar", "agenda", "schedule"),
    functions(_day, _find, _free, _create, _move, _cancel, _invite),
    _draw,
    {
        "events of a day do not overlap": _no_overlap,
        "events end on the day on which they begin": lambda data: all(
            one["start"] >= 0 and one["start"] + one["minutes"] <= 24 * 60 for one in data["events"].values()
        ),
        "nobody is invited twice": lambda data: all(
            len(set(one["guests"])) == len(one["guests"]) for one in data["events"].values()
        ),
        "ids are not given twice": lambda data: all(int(event[1:]) < data["next"] for event in data["events"]),
    },
)
