"""Synthetic tools: how many, what they cover, what was refused, and one of them whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from model.visible import flat
from tasks.report import figures, words
from tasks.report.blocks import Block, Code, Fold, Prose, Table, Verbatim
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything
from tasks.report.chapters.dialogues import transcript
from tasks.report.projection import plane
from training.draw import draw

DRAWN = 700
"""Tools on the map: more would be one grey cloud, and their page slow."""
COLOURS = 12
SHOWN = 160
"""Characters of a call and its answer."""


def _summary(book: Book) -> str:
    s = book.stage("tools").statistics
    return (
        f"**{words.count(s['tools'])} tools** on {words.count(s['domains'])} state models in "
        f"{len(s['by_category'])} categories, each called as one should and as one should not "
        f"({words.count(s['calls'])} calls). Of {words.count(s['candidates'])} candidates "
        f"{words.count(s['rejected'])} were refused."
    )


def _map(book: Book) -> Iterable[Block]:
    """The map of the tools"""
    frame = book.rows("tools", "tools").select("name", "category", "domain", "entity", "parameters").collect()
    order = sorted(range(frame.height), key=lambda row: draw("map", 0, frame["name"][row]))[:DRAWN]
    frame = frame[sorted(order)]
    places = plane([_about(row) for row in frame.to_dicts()])
    names = sorted(set(frame["category"]))
    colours = {name: f"k{number % COLOURS}" for number, name in enumerate(names)}
    rows = zip(places.tolist(), frame["name"], frame["category"], strict=True)
    points = [(x, y, f"{name} ({category})", colours[category]) for (x, y), name, category in rows]
    caption = (
        f"{words.count(len(points))} of the tools by what they are about: domain, entity, arguments and choices "
        "(hashed words, principal components, t-SNE). What is alike lies together. Rest the pointer on a point to read "
        "its name."
    )
    yield figures.scatter(points, [(words.name(name), colours[name]) for name in names], caption, "What they cover")


def _about(tool: Mapping[str, str]) -> str:
    """The words of a tool that say what it is about; its verbs would put all that count or list together."""
    properties = json.loads(tool["parameters"])["properties"]
    choices = [str(value) for schema in properties.values() for value in schema.get("enum", ())]
    return " ".join([tool["domain"], tool["entity"], *properties, *choices])


def _counts(book: Book) -> Iterable[Block]:
    """Tools by category"""
    s = book.stage("tools").statistics
    names = sorted(s["by_category"])
    rows = [
        (words.name(name), count, words.count(count), f"k{names.index(name) % COLOURS}")
        for name, count in s["by_category"].items()
    ]
    yield figures.bars(rows, "Tools that were kept, by category.", "By category")


def _refused(book: Book) -> Iterable[Block]:
    """Candidates that were refused"""
    reasons = book.statistic("tools", "rejected_by_reason")
    if reasons:
        caption = "Candidates that broke a rule, by the first that they broke."
        yield figures.counted(reasons, caption, "Refused, by rule", "warm")


def _example(book: Book) -> Iterable[Block]:
    """One tool"""
    columns = ("name", "description", "parameters", "arguments", "result", "origin")
    tool = book.rows("tools", "tools").select(columns).head(1).collect().row(0, named=True)
    declared = {"name": tool["name"], "description": tool["description"], "parameters": json.loads(tool["parameters"])}
    yield Fold(
        "One tool, as a model is shown it, and a call that was made",
        [
            Code(json.dumps(declared, indent=1, ensure_ascii=False), f"Written by a {tool['origin']}."),
            Code(f"{tool['name']}({tool['arguments']})\n{tool['result']}", "Its result on a state of the domain."),
        ],
    )


def _servers(book: Book) -> Iterable[Block]:
    """Tools of real servers"""
    s = book.optional("tools", "servers")
    if not s:
        return
    counts = s["tools"], s["calls"], sum(s["refused"].values())
    told = "{} tools of servers that really ran, {} of their answers ({} errors): real dialogues are made of them."
    yield Prose(told.format(*map(words.count, counts)))
    yield from _left_out(s)


def _called(book: Book) -> Iterable[Block]:
    """Real tools that were called"""
    s = book.optional("real-tools", "servers")
    if not s:
        return
    yield Prose(
        f"{words.count(s['tools'])} tools of real servers were listed and called in the sandbox on this machine, "
        f"{words.count(s['calls'])} times in {book.stage('real-tools').manifest['seconds']:.0f} s; "
        f"{words.count(sum(s['refused'].values()))} calls ended in an error. Nothing is trained on their answers."
    )
    calls = book.rows("real-tools", "server_calls").collect()
    rows = []
    for tool in book.rows("real-tools", "server_tools").collect().to_dicts():
        made = calls.filter(function=tool["function"])
        first = made.row(0, named=True)
        said = flat(f"{first['arguments']} gives {first['result']}", SHOWN)
        errors = made.filter(made["error"] != "").height
        rows.append([Verbatim(tool["function"]), Verbatim(tool["package"]), Verbatim(tool["licence"]),
                     words.count(made.height), words.count(errors), Verbatim(said)])  # fmt: skip
    if rows:
        yield Table(("tool", "package", "licence", "#calls", "#errors", "its first call"), rows)
    yield from _left_out(s)


def _dialogues(book: Book) -> Iterable[Block]:
    """Dialogues with real tools"""
    s = book.optional("real-tools", "dialogues")
    if not s or not s["drawn"]:
        return
    refused = "".join(f"; {words.count(count)} because {reason}" for reason, count in s["refused"].items())
    yield Prose(
        f"Of {words.count(s['drawn'])} dialogues that were drawn around these calls {words.count(s['twice'])} were "
        f"there already, {words.count(sum(s['refused'].values()))} broke their rubric{refused}, and "
        f"{words.count(s['kept'])} were kept. One of each follows. The results are what the servers really answered."
    )
    rows = book.rows("real-tools", "server_dialogues").collect().to_dicts()
    for good in (True, False):
        yield from [transcript(row, good) for row in rows if (row["reason"] == "") == good][:1]


def _left_out(s: Mapping[str, Any]) -> Iterable[Block]:
    if s["left_out"]:
        rows = [[Verbatim(name), Verbatim(why)] for name, why in s["left_out"].items()]
        yield Table(("server", "why it was left out"), rows)


def _card(book: Book) -> Iterable[Block]:
    """The data card"""
    artifact = book.stage("tools")
    page = book.address(f"{artifact.uri}/{artifact.parts('card')[0].path}")
    yield Prose(f"Who wrote them, under which terms, and what became of the candidates: the [data card]({page}).")


EVERYTHING = tuple(map(everything, ("tools", "real-tools")))
CHAPTER = Chapter(
    "tools",
    "Tools",
    ("tools",),
    _summary,
    (_map, _counts, _refused, _example, _servers, _called, _dialogues, _card, *EVERYTHING),
)
