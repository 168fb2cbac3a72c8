"""What people ask for with tickets."""

from __future__ import annotations

import random
from typing import Any

from training.rl.worlds import tickets
from training.rl.worlds.families.family import Call, Data, Family, last, pair


def _open_tickets(data: Data) -> list[str]:
    return sorted(key for key, one in data["tickets"].items() if one["status"] == "open")


def _waits(data: Data, ticket: str) -> list[str]:
    blockers = data["tickets"][ticket]["blocked_by"]
    return [key for key in blockers if data["tickets"][key]["status"] == "open"]


def _draw_titled(data: Data, draw: random.Random, blocked: bool = False) -> dict[str, Any] | None:
    fitting = [key for key in _open_tickets(data) if bool(_waits(data, key)) == blocked]
    return {"title": data["tickets"][draw.choice(fitting)]["title"]} if fitting else None


def _ticket_of(data: Data, title: str) -> str:
    return next(key for key, one in data["tickets"].items() if one["title"] == title)


def _draw_blocked(data: Data, draw: random.Random) -> dict[str, Any] | None:
    fitting = [
        key
        for key in _open_tickets(data)
        if (waits := _waits(data, key)) and not any(_waits(data, blocker) for blocker in waits)
    ]
    return {"ticket": draw.choice(fitting)} if fitting else None


def _plan_blocked(data: Data, a: dict[str, Any]) -> list[Call]:
    blockers: list[Call] = [("close", {"ticket": key}) for key in _waits(data, a["ticket"])]
    return [("show", a), *blockers, ("close", a)]


def _draw_assign(data: Data, draw: random.Random) -> dict[str, Any] | None:
    free = _open_tickets(data)
    if not free:
        return None
    ticket = draw.choice(free)
    return {
        "ticket": ticket,
        "person": draw.choice([name for name in data["people"] if name != data["tickets"][ticket]["assignee"]]),
    }


def _draw_escalation(data: Data, draw: random.Random) -> dict[str, Any] | None:
    calm = [key for key in _open_tickets(data) if data["tickets"][key]["priority"] != "urgent"]
    lines = ("the customer called again", "it fails every morning", "two more people report it", "客户又打来电话")
    return {"ticket": draw.choice(calm), "comment": draw.choice(lines)} if calm else None


def _draw_new_ticket(data: Data, draw: random.Random) -> dict[str, Any] | None:
    taken = {one["title"] for one in data["tickets"].values()}
    fresh = [title for title in tickets.PROBLEMS if title not in taken]
    return {"title": draw.choice(fresh), "priority": draw.choice(tickets.PRIORITIES)} if fresh else None


TICKETS = (
    Family(
        "tickets.create",
        "tickets",
        _draw_new_ticket,
        lambda data, a: [("create", a)],
        ("(open|create) a ticket “{title}” with priority {priority}", "(report|file) “{title}” as a {priority} ticket"),
        ("(新建|提交)工单“{title}”，优先级{priority}", "把“{title}”(报|登记)成优先级为{priority}的工单"),
        pair("It is ticket {ticket}.", "工单号是{ticket}。"),
        last("ticket"),
        withheld={"priority": pair("(open|create) a ticket “{title}”", "(新建|提交)工单“{title}”")},
    ),
    Family(
        "tickets.assign",
        "tickets",
        _draw_assign,
        lambda data, a: [("assign", a)],
        ("(give|assign|hand) {ticket} to {person}", "let {person} (work on|take care of) {ticket}"),
        ("把{ticket}(交给|分配给){person}", "让{person}(处理|负责){ticket}"),
        pair("{person} works on {ticket} now.", "{ticket}现在由{person}处理。"),
        withheld={"person": pair("(give|assign) {ticket} to somebody", "把{ticket}(交给|分配给)一个同事")},
    ),
    Family(
        "tickets.status",
        "tickets",
        _draw_titled,
        lambda data, a: [("find", a), ("show", {"ticket": _ticket_of(data, a["title"])})],
        ("(find out|tell me) which priority the ticket “{title}” has", "(look up|check) the priority of “{title}”"),
        ("(查一下|告诉我)工单“{title}”的优先级", "看看“{title}”这个工单的(优先级|紧急程度)"),
        pair("Its priority is {priority}.", "优先级是{priority}。"),
        last("priority"),
    ),
    Family(
        "tickets.close",
        "tickets",
        _draw_titled,
        lambda data, a: [("find", a), ("close", {"ticket": _ticket_of(data, a["title"])})],
        ("close the ticket “{title}”", "(mark|set) the ticket about “{title}” as (done|closed)", "finish “{title}”"),
        ("(关闭|结束)工单“{title}”", "把“{title}”这个工单(关掉|结掉)"),
        pair("{ticket} is closed.", "{ticket}已关闭。"),
        last("ticket"),
    ),
    Family(
        "tickets.close_blocked",
        "tickets",
        _draw_blocked,
        _plan_blocked,
        (
            "close {ticket} and, before it, all that it waits for",
            "(finish|resolve) {ticket} together with (everything|all tickets) that must be closed first",
        ),
        ("关闭{ticket}，先把它等待的工单(都关掉|关闭)", "把{ticket}和它(依赖|等待)的工单都关闭"),
        pair("{ticket} is closed, and so is what it waited for.", "{ticket}及其等待的工单都已关闭。"),
    ),
    Family(
        "tickets.escalate",
        "tickets",
        _draw_escalation,
        lambda data, a: [("comment", a), ("prioritise", {"ticket": a["ticket"], "priority": "urgent"})],
        (
            "(note|write) “{comment}” under {ticket} and (make it|set it to) urgent",
            "add the comment “{comment}” to {ticket}, then raise it to urgent",
        ),
        ("在{ticket}下(写|加上)“{comment}”，再把它设为urgent", "给{ticket}加评论“{comment}”，然后(升|改)为urgent"),
        pair("{ticket} has the comment and is urgent now.", "{ticket}已加评论，现为urgent。"),
    ),
)
