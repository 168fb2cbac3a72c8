"""A ticket system: who works on what, and what must be closed first."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.world import World, already, conflict, found, function, functions, one_of, text

PEOPLE = ("Ana", "Ben", "Clara", "David", "Elif", "Hugo", "Li Na", "Wang Wei")
PROBLEMS = (
    "Printer offline", "Login fails", "Slow search", "Broken link", "Missing invoice", "Wrong total", "Blank page",
    "Noisy fan", "Expired certificate", "Lost parcel", "Empty export", "Stuck upload",
)  # fmt: skip
PRIORITIES = ("low", "normal", "high", "urgent")
_TICKET = text("Number of the ticket, such as T17", 8, "^T[0-9]{1,6}$")
_PERSON = text("Name of the person", 40)
COMMENTS_MAX = 20


def _draw(draw: random.Random) -> dict[str, Any]:
    data: dict[str, Any] = {"people": sorted(draw.sample(PEOPLE, 4)), "tickets": {}, "next": draw.randint(10, 800)}
    for title in draw.sample(PROBLEMS, draw.randint(4, 7)):
        _add(data, title, draw.choice(PRIORITIES))["assignee"] = draw.choice([*data["people"], None])
    *blockers, last = sorted(data["tickets"], key=lambda key: int(key[1:]))
    data["tickets"][last]["blocked_by"] = sorted(draw.sample(blockers, draw.randint(1, 2)))
    return data


def _add(data: dict[str, Any], title: str, priority: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "title": title,
        "priority": priority,
        "status": "open",
        "assignee": None,
        "blocked_by": [],
        "comments": [],
    }
    data["tickets"][f"T{data['next']}"] = entry
    data["next"] += 1
    return entry


@function(("find", "search", "find_ticket"), "Find tickets by a part of their title", {"title": text("Title")})
def _find(data: dict[str, Any], title: str) -> dict[str, Any]:
    hits = [(key, one) for key, one in sorted(data["tickets"].items()) if title.lower() in one["title"].lower()]
    return {"tickets": [{"ticket": key, "title": one["title"], "status": one["status"]} for key, one in hits]}


@function(("of", "list_open", "assigned_to"), "Open tickets that a person works on", {"person": _PERSON})
def _of(data: dict[str, Any], person: str) -> dict[str, Any]:
    mine = [key for key, one in data["tickets"].items() if one["assignee"] == person and one["status"] == "open"]
    return {"person": person, "tickets": sorted(mine)}


@function(("show", "get", "details"), "Everything about a ticket", {"ticket": _TICKET})
def _show(data: dict[str, Any], ticket: str) -> dict[str, Any]:
    return {"ticket": ticket, **found(data["tickets"], ticket, "ticket")}


@function(
    ("create", "open", "new_ticket"),
    "Open a ticket",
    {"title": text("Title", 60), "priority": one_of(PRIORITIES, "How soon")},
    writes=True,
)
def _create(data: dict[str, Any], title: str, priority: str) -> dict[str, Any]:
    for key, one in data["tickets"].items():
        if one["title"] == title and one["status"] == "open":
            raise already(f"{key} is open under this title")
    if len(data["tickets"]) == 60:
        raise conflict("the system is full")
    _add(data, title, priority)
    return {"ticket": f"T{data['next'] - 1}", "title": title, "priority": priority}


@function(
    ("assign", "give_to", "set_assignee"),
    "Give a ticket to a person",
    {"ticket": _TICKET, "person": _PERSON},
    writes=True,
)
def _assign(data: dict[str, Any], ticket: str, person: str) -> dict[str, Any]:
    entry = _open(data, ticket)
    if person not in data["people"]:
        raise conflict(f"{person} does not work here")
    entry["assignee"] = person
    return {"ticket": ticket, "assignee": person}


@function(
    ("comment", "add_note", "reply"),
    "Write a comment under a ticket",
    {"ticket": _TICKET, "comment": text("The comment", 200)},
    writes=True,
)
def _comment(data: dict[str, Any], ticket: str, comment: str) -> dict[str, Any]:
    entry = found(data["tickets"], ticket, "ticket")
    if comment in entry["comments"]:
        raise already("the ticket has this comment")
    if len(entry["comments"]) == COMMENTS_MAX:
        raise conflict("the ticket has too many comments")
    entry["comments"].append(comment)
    return {"ticket": ticket, "comments": len(entry["comments"])}


@function(
    ("prioritise", "set_priority", "escalate"),
    "Set how soon a ticket must be dealt with",
    {"ticket": _TICKET, "priority": one_of(PRIORITIES, "How soon")},
    writes=True,
)
def _prioritise(data: dict[str, Any], ticket: str, priority: str) -> dict[str, Any]:
    _open(data, ticket)["priority"] = priority
    return {"ticket": ticket, "priority": priority}


@function(
    ("block", "depends_on", "link"),
    "Say that a ticket waits for another one",
    {"ticket": _TICKET, "blocker": _TICKET},
    writes=True,
)
def _block(data: dict[str, Any], ticket: str, blocker: str) -> dict[str, Any]:
    entry = _open(data, ticket)
    _open(data, blocker)
    if blocker in entry["blocked_by"]:
        raise already(f"{ticket} waits for {blocker}")
    if ticket in _before(data, blocker):
        raise conflict("then both would wait for each other")
    entry["blocked_by"].append(blocker)
    return {"ticket": ticket, "blocked_by": entry["blocked_by"]}


@function(
    ("close", "resolve", "finish"),
    "Close a ticket; those that it waits for are closed first",
    {"ticket": _TICKET},
    writes=True,
)
def _close(data: dict[str, Any], ticket: str) -> dict[str, Any]:
    entry = found(data["tickets"], ticket, "ticket")
    if entry["status"] == "closed":
        raise already(f"{ticket} is closed")
    waits = [key for key in entry["blocked_by"] if data["tickets"][key]["status"] == "open"]
    if waits:
        raise conflict(f"{ticket} waits for {', '.join(waits)}")
    entry["status"] = "closed"
    return {"ticket": ticket, "status": "closed"}


def _open(data: dict[str, Any], ticket: str) -> dict[str, Any]:
    entry = found(data["tickets"], ticket, "ticket")
    if entry["status"] == "closed":
        raise conflict(f"{ticket} is closed")
    return entry


def _before(data: Mapping[str, Any], ticket: str) -> set[str]:
    """The ticket, and every one that it waits for."""
    seen, waiting = set(), [ticket]
    while waiting:
        here = waiting.pop()
        if here not in seen:
            seen.add(here)
            waiting += data["tickets"][here]["blocked_by"]
    return seen


def _no_circle(data: Mapping[str, Any]) -> bool:
    return all(
        key not in _before(data, blocker) for key, one in data["tickets"].items() for blocker in one["blocked_by"]
    )


TICKETS = World(
    "tickets",
    ("tickets", "helpdesk", "issues"),
    functions(_find, _of, _show, _create, _assign, _comment, _prioritise, _block, _close),
    _draw,
    {
        "a closed ticket waits for no open one": lambda data: all(
            data["tickets"][key]["status"] == "closed"
            for one in data["tickets"].values()
            if one["status"] == "closed"
            for key in one["blocked_by"]
        ),
        "tickets do not wait in a circle": _no_circle,
        "only people who work here have tickets": lambda data: (
            {one["assignee"] for one in data["tickets"].values()} <= {*data["people"], None}
        ),
    },
)
