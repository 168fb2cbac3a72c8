"""Dialogues: from those that were drawn to those that were kept, what each filter refused, who speaks in them, and one
of each kind with its rubric."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from model.storage import is_local
from tasks.agentic.dialogue import FILTERS, filter_of
from tasks.agentic.verdicts import read_verdicts, verdicts_file
from tasks.report import charts, words
from tasks.report.blocks import Block, Chart, Fold, Prose, Score, Table, Transcript, Turn, Verbatim
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything
from tasks.report.inspect.rows import first

SAID = 2000
"""Characters of a turn that are shown."""


def _summary(book: Book) -> str:
    s = book.stage("dialogues").statistics
    text = f"{words.count(s['dialogues'])} verifiable tasks, call dialogues and worlds passed their filters"
    if book.optional("dialogues", "tools"):
        text += f" ({words.count(s['tools'])} small tools, whose results come from really running them)"
    text += f"; {words.count(s['rejected'])} were rejected. The three splits go by problem, not by phrasing"
    return text + ": development stops and selects, test is looked at once."


def _funnel(book: Book) -> Iterable[Block]:
    """The way of the dialogues through the filters"""
    found = book.optional("dialogues", "funnel", default={})
    counts = sum((Counter(entry) for entry in found.values()), Counter[str]())
    drawn = left = counts["drawn"]
    if not drawn:
        return
    rows = [("drawn", [(1.0, "accent")], f"{words.count(drawn)} dialogues")]
    for name, title in {"passed_over": "other splits, twice", **FILTERS}.items():
        if not (count := counts[name]):
            continue
        left -= count
        colour = "soft" if name in ("passed_over", "choice") else "warm"
        said = f"−{words.count(count)} ({words.share(count / drawn)}), {words.count(left)} left"
        rows.append((title, [(left / drawn, "accent"), (count / drawn, colour)], said))
    rows.append(("kept", [(left / drawn, "accent")], f"{words.count(left)} ({words.share(left / drawn)})"))
    caption = (
        "Dialogues after each filter, in their order; what a filter refuses is at the end of its bar. Grey is what is "
        "no worse than the rest: problems of another split, dialogues that were there already, and plays of a task of "
        "which another was better."
    )
    yield Chart(charts.stacked(rows, ()), caption, "From drawn to kept", [(label, text) for label, _, text in rows])


def _reasons(book: Book) -> Iterable[Block]:
    """What the filters refused, and why"""
    filters: Mapping[str, Mapping[str, int]] = book.optional("dialogues", "filters", default={})
    by_filter: dict[str, dict[str, Counter[str]]] = {name: {} for name in FILTERS}
    for environment, reasons in filters.items():
        for reason, count in reasons.items():
            by_filter[filter_of(reason)].setdefault(reason, Counter())[words.name(environment)] += count
    rows: list[list[str]] = []
    for name, found in by_filter.items():
        if found:
            rows.append([f"{FILTERS[name]}: {words.count(sum(where.total() for where in found.values()))}"])
        for reason, where in sorted(found.items(), key=lambda item: (-item[1].total(), item[0])):
            told = ", ".join(f"{one} {words.count(count)}" for one, count in where.most_common())
            rows.append([Verbatim(reason), Verbatim(told), words.count(where.total())])
    if rows:
        yield Table(("filter and reason", "where", "#dialogues"), rows)


def _people(book: Book) -> Iterable[Block]:
    """People's verdicts"""
    root = book.steps[0].root
    if not is_local(root) or not (said := read_verdicts(verdicts_file(root))):
        return
    here = set(book.rows("dialogues", "dialogues/train").select("id").collect()["id"])
    left = set(book.stage("dialogues").manifest["config"].get("refused", ()))
    said = {one: verdict for one, verdict in said.items() if one in here | left}  # others are another recipe's
    if not said:
        return
    accepted, pending = (sum(one in here for one in said if said[one] == verdict) for verdict in ("accept", "reject"))
    waiting = f"; {words.count(pending)} more are rejected and leave with the next run" if pending else ""
    replaced = words.count(list(said.values()).count("reject") - pending)
    yield Prose(
        f"People have looked at {words.count(len(said))} dialogues (`openk2 review`): {words.count(accepted)} of those "
        f"that are trained on are accepted, {replaced} were rejected and replaced{waiting}."
    )


def _environments(book: Book) -> Iterable[Block]:
    """Dialogues by environment"""
    rows = []
    funnel = book.optional("dialogues", "funnel", default={})
    for name, entry in book.statistic("dialogues", "by_environment").items():
        train = entry.get("train", {})
        way = funnel.get(name, {})
        rows.append(
            [
                words.name(name),
                words.count(way.get("drawn")),
                words.count(sum(way.get(one, 0) for one in FILTERS) if way else None),
                words.count(train.get("dialogues", 0)),
                words.count(train.get("tokens", 0)),
                words.count(train.get("trained_tokens", 0)),
                *(words.count(entry.get(split, {}).get("dialogues", 0)) for split in ("development", "test")),
            ]
        )
    columns = ("drawn", "refused", "training dialogues", "tokens", "of them trained", "development", "test")
    yield Table(["environment", *(f"#{name}" for name in columns)], rows)


def _who(book: Book) -> Iterable[Block]:
    """Who speaks"""
    for title, key in (("Who plays the assistant", "players"), ("Who the user is", "personas")):
        if found := book.optional("dialogues", key):
            rows = [[Verbatim(name), words.count(count)] for name, count in found.items()]
            yield Fold(title, [Table((words.name(key.removesuffix("s")), "#dialogues"), rows)])


def _judge(book: Book) -> Iterable[Block]:
    """The judge against known verdicts"""
    found = book.optional("dialogues", "judge")
    if found:
        rows = [
            [name, words.count(one["dialogues"]), words.count(one["judged_rightly"])]
            for name, one in found["by_assistant"].items()
        ]
        shown = (
            f"{name} {found[name]['value']:.2f} ({found[name]['low']:.2f} to {found[name]['high']:.2f})"
            for name in ("accuracy", "kappa")
        )
        title = f"The judge on {words.count(found['answered'])} scripted dialogues: {', '.join(shown)}"
        yield Fold(title, [Table(("scripted assistant", "#dialogues", "#judged rightly"), rows)])


def _examples(book: Book) -> Iterable[Block]:
    """One dialogue of each kind"""
    yield Prose("One dialogue of each environment and assistant, and one that a filter refused there, with its rubric.")
    shown: list[tuple[str, bool, str, dict[str, Any]]] = []
    for group, good in (("dialogues/train", True), ("rejected/train", False)):
        if book.stage("dialogues").files(group):
            sample = first(book.files("dialogues", group), ["environment", "player"] if good else ["environment"], 1)
            shown += [(row["environment"], not good, row.get("player", ""), row) for row in sample]
    yield from (transcript(row, not refused) for _, refused, _, row in sorted(shown, key=lambda one: one[:3]))


def transcript(row: Mapping[str, Any], good: bool) -> Transcript:
    """A row of dialogues with its rubric, and what the filters said of it."""
    turns = []
    for message in json.loads(row["messages"]):
        calls = [
            f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls") or ()
        ]
        who = f"{message['role']} {message['name']}" if message.get("name") else str(message["role"])
        said = "\n".join([*([str(message["content"])] if message.get("content") else []), *calls])
        turns.append(Turn(Verbatim(who), [(said[:SAID] + ("…" if len(said) > SAID else ""), None)]))
    verdicts = json.loads(row.get("verdicts") or "{}") if good else {filter_of(row["reason"]): row["reason"]}
    scores = [Score(Verbatim(name), Verbatim(said), "", good) for name, said in verdicts.items()]
    people = [f"the assistant is a {row['player']}" if row.get("player") else "", row.get("persona") or ""]
    remark = "; the user is the ".join(one for one in people if one)
    title = f"{words.name(row['environment'])}: {'kept' if good else 'refused'}"
    return Transcript(Verbatim(title), Verbatim(remark), turns, scores, _rubric(row), good, open=False)


def _rubric(row: Mapping[str, Any]) -> Verbatim:
    rubric = json.loads(row.get("rubric") or "{}")
    calls = [
        f"{one['tool']}({json.dumps(one['arguments'], ensure_ascii=False)})" for one in rubric.get("checkpoints", ())
    ]
    parts = {
        "Rubric": "; ".join(rubric.get("criteria", ())),
        "expected calls": ", ".join(calls),
        "must be said": ", ".join(forms[0] for forms in rubric.get("says", ())),
    }
    return Verbatim(". ".join(f"{name}: {text}" for name, text in parts.items() if text))


CHAPTER = Chapter(
    "dialogues",
    "Dialogues",
    ("dialogues",),
    _summary,
    (_funnel, _reasons, _people, _environments, _who, _judge, _examples, everything("dialogues")),
)
