"""What people ask for with a calendar."""

from __future__ import annotations

import random
from typing import Any

from training.rl.worlds import calendar
from training.rl.worlds.families.family import Call, Data, Family, last, pair


def _free_start(data: Data, draw: random.Random, date: str, minutes: int, but: str = "") -> int | None:
    """A start time that collides with no event."""
    start = draw.randrange(calendar.OPENS, calendar.CLOSES - minutes, 15)
    rest = {"events": {key: one for key, one in data["events"].items() if key != but}}
    return start if calendar.first_free(rest, date, minutes, start) == start else None


def _draw_event(data: Data, draw: random.Random) -> dict[str, Any] | None:
    taken = {one["title"] for one in data["events"].values()}
    title = draw.choice([title for title in calendar.TITLES if title not in taken])
    date, minutes = draw.choice(calendar.DATES), draw.choice((30, 45, 60, 90))
    start = _free_start(data, draw, date, minutes)
    if start is None:
        return None
    return {"title": title, "date": date, "start": calendar.clock(start), "minutes": minutes}


def _draw_title(data: Data, draw: random.Random) -> dict[str, Any] | None:
    return {"title": draw.choice(sorted(one["title"] for one in data["events"].values()))} if data["events"] else None


def _event_of(data: Data, title: str) -> str:
    return next(key for key, one in data["events"].items() if one["title"] == title)


def _draw_move(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _draw_title(data, draw)
    if drawn is None:
        return None
    event = _event_of(data, drawn["title"])
    date = draw.choice(calendar.DATES)
    start = _free_start(data, draw, date, data["events"][event]["minutes"], event)
    if start is None or (data["events"][event]["date"], data["events"][event]["start"]) == (date, start):
        return None
    return drawn | {"date": date, "start": calendar.clock(start)}


def _draw_guest(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _draw_title(data, draw)
    if drawn is None:
        return None
    guests = data["events"][_event_of(data, drawn["title"])]["guests"]
    return drawn | {"guest": draw.choice([name for name in calendar.GUESTS if name not in guests])}


def _draw_slot(data: Data, draw: random.Random) -> dict[str, Any] | None:
    drawn = _draw_event(data, draw)
    return drawn and {name: drawn[name] for name in ("title", "date", "minutes")}


def _plan_slot(data: Data, a: dict[str, Any]) -> list[Call]:
    start = calendar.first_free(data, a["date"], a["minutes"])
    assert start is not None
    return [
        ("free", {"date": a["date"], "minutes": a["minutes"]}),
        ("create", {**a, "start": calendar.clock(start)}),
    ]


def _found_event(data: Data, a: dict[str, Any], function: str, *names: str) -> list[Call]:
    event = {"event": _event_of(data, a["title"]), **{name: a[name] for name in names}}
    return [("find", {"title": a["title"]}), (function, event)]


CALENDAR = (
    Family(
        "calendar.day",
        "calendar",
        lambda data, draw: (
            {"date": draw.choice(sorted(one["date"] for one in data["events"].values()))} if data["events"] else None
        ),
        lambda data, a: [("day", a)],
        (
            "(tell|show) me (what is planned for|all events on) {date}",
            "(list|read out) my (events|appointments) of {date}",
        ),
        ("(看看|告诉我){date}有什么安排", "列出{date}的(日程|活动)"),
        pair("On {date} you have: {titles}.", "{date}的安排：{titles}。"),
        lambda results: {"titles": [event["title"] for event in results[-1]["events"]]},
    ),
    Family(
        "calendar.create",
        "calendar",
        _draw_event,
        lambda data, a: [("create", a)],
        (
            "(enter|put) {title} on {date} at {start} for {minutes} minutes (in my calendar|)",
            "(book|plan) {minutes} minutes of {title} for {date}, {start}",
        ),
        (
            "在{date}的{start}(安排|加上){title}，{minutes}分钟",
            "(添加|新建)日程{title}：{date}，{start}，{minutes}分钟",
        ),
        pair("{title} is entered for {date} at {start}.", "{title}已安排在{date}的{start}。"),
        withheld={
            "start": pair(
                "(enter|put) {title} on {date} for {minutes} minutes", "在{date}(安排|加上){title}，{minutes}分钟"
            ),
            "date": pair(
                "(enter|put) {title} at {start} for {minutes} minutes", "在{start}(安排|加上){title}，{minutes}分钟"
            ),
        },
    ),
    Family(
        "calendar.move",
        "calendar",
        _draw_move,
        lambda data, a: _found_event(data, a, "move", "date", "start"),
        ("(move|shift|reschedule) {title} to {date} at {start}", "let {title} begin on {date} at {start} (instead|)"),
        ("把{title}(改|移|挪)到{date}的{start}", "让{title}在{date}的{start}开始"),
        pair("{title} is now on {date} at {start}.", "{title}已改到{date}的{start}。"),
        withheld={"start": pair("(move|shift) {title} to {date}", "把{title}(改|移)到{date}")},
    ),
    Family(
        "calendar.cancel",
        "calendar",
        _draw_title,
        lambda data, a: _found_event(data, a, "cancel"),
        ("(cancel|drop|remove) {title}", "take {title} (off|out of) my calendar"),
        ("(取消|删掉){title}", "把{title}从日历里(去掉|删除)"),
        pair("{title} is cancelled.", "{title}已取消。"),
    ),
    Family(
        "calendar.invite",
        "calendar",
        _draw_guest,
        lambda data, a: _found_event(data, a, "invite", "guest"),
        ("invite {guest} to {title}", "(add|put) {guest} (to|on) the guests of {title}", "ask {guest} to {title}"),
        ("(邀请|请){guest}参加{title}", "把{guest}加到{title}的(客人|名单)里"),
        pair("{guest} is invited to {title}.", "已邀请{guest}参加{title}。"),
        withheld={"guest": pair("invite (somebody|a friend) to {title}", "(邀请|叫)一个人参加{title}")},
    ),
    Family(
        "calendar.first_free",
        "calendar",
        _draw_slot,
        _plan_slot,
        (
            "(find|take) the first free {minutes} minutes on {date} (for|and book them for) {title}",
            "(enter|put) {title} on {date} as early as {minutes} minutes are free",
        ),
        ("在{date}找最早的{minutes}分钟空闲，(安排|加上){title}", "{date}一有{minutes}分钟空就(安排|加上){title}"),
        pair("{title} is on {date} at {start}.", "{title}安排在{date}的{start}。"),
        last("start"),
    ),
)
