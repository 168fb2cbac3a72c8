"""Every rule of a corpus as blocks: its counts, its histogram, and what it dropped, nearest to the threshold first."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from model.visible import flat, visible
from tasks.artifact import Artifact
from tasks.report import charts, figures, words
from tasks.report.blocks import (
    Block,
    Charts,
    Document,
    Excerpt,
    Fold,
    Headline,
    Pair,
    Prose,
    Section,
    Spark,
    Table,
    Verbatim,
)
from tasks.report.inspect.corpus.catalogue import explanation
from tasks.report.inspect.corpus.evidence import evidence, pieces
from tasks.report.inspect.corpus.overview import Inspection, Route, Rule, inspect
from tasks.report.inspect.corpus.rejects import Sample, Selection, heads
from tasks.report.rejects import STAGES

HEAD = 600  # characters of a text that are shown
OPEN = 3  # samples that stand outside a fold
Survivors = Mapping[str, tuple[str, str]]
"""(text's beginning, url) of the documents that stand for duplicates, by id."""


def page(artifact: Artifact, selection: Selection, count: int) -> Document | None:
    """The rules that `selection` asks for, a section each with `count` samples, after a table of all; None where
    nothing was dropped or judged by the one that it names."""
    found = inspect(artifact, selection, count)
    if selection.reason and found.rule(selection.reason) is None:
        return None
    rules = [_section(found, rule, _survivors(artifact, found)) for rule in found.rules]
    return _document(found, selection, [_index(found, selection), *rules])


def overview(artifact: Artifact, selection: Selection) -> Document:
    """The table alone, of the rules that refused something."""
    found = inspect(artifact, selection, 0)
    return _document(found, selection, [_index(found, selection, silent=False)])


def rule_section(artifact: Artifact, selection: Selection, count: int) -> Section | None:
    """The one rule that `selection` names; None where nothing was dropped or judged by it."""
    found = inspect(artifact, selection, count)
    rule = found.rule(selection.reason)
    return None if rule is None else _section(found, rule, _survivors(artifact, found))


def kept_section(rule: str, samples: Sequence[Sample], judged: int) -> Section:
    """Kept documents nearest to the threshold of one rule."""
    shown = [_sample(document, f"{at} of {judged:,}", {}) for at, document in enumerate(samples, start=1)]
    measured = Prose(f"Measured again on {judged:,} kept documents that it judges.")
    why = explanation(rule, "quality").why
    return Section("kept", flat(rule), why, [measured, *shown], group="kept documents nearest to its limit")


def _survivors(artifact: Artifact, found: Inspection) -> Survivors:
    samples = [reject for rejects in found.tally.nearest.values() for reject in rejects]
    return heads(artifact, [reject.survivor for reject in samples if reject.survivor], HEAD)


def _document(found: Inspection, selection: Selection, sections: Sequence[Section]) -> Document:
    s = found.artifact.statistics
    read = s.get("read", 0)
    narrowed = selection.narrowed()
    only = f" Only {', '.join(narrowed)}." if narrowed else ""
    whole = [
        (words.count(read), "documents read", f"{len(s.get('by_source', {}))} sources"),
        (words.count(s.get("documents", 0)), "kept", words.share(s.get("documents", 0) / max(read, 1))),
        (words.count(s.get("rejected", 0)), "rejected", words.share(s.get("rejected", 0) / max(read, 1))),
        (words.count(s.get("unreadable", 0)), "unreadable", words.share(s.get("unreadable", 0) / max(read, 1))),
    ]
    return Document(
        title="What curation dropped, and why",
        subtitle=f"`{flat(found.artifact.name)}` `{flat(found.artifact.fingerprint)}`.{visible(only)}",
        lead="Each rule with its threshold, where it comes from, how its measure is distributed, and the documents "
        "that it dropped, **those nearest to the threshold first**: there a rule is right or wrong. Marked in a text "
        "is what the rule objects to, as far as it stands in the text's beginning.",
        headline=Headline([] if narrowed else whole),
        sections=sections,
    )


def _index(found: Inspection, selection: Selection, silent: bool = True) -> Section:
    """Every rule by stage; without `silent` those alone that refused something."""
    rows: list[Sequence[str | Spark]] = []
    hidden = 0
    for (stage, unit), rules in itertools.groupby(found.rules, key=lambda rule: (rule.stage, rule.unit)):
        told = "lines taken out of documents, which drops none" if unit == "line" else STAGES.get(stage, "")
        group = []
        for rule in rules:
            routes = [route for route in rule.routes if silent or route.failed or not route.whole]
            routes = routes or list(rule.routes[: 1 if rule.dropped else 0])
            hidden += not routes
            group += [_row(rule, route, first=place == 0) for place, route in enumerate(routes)]
        if group:
            rows += [[f"**{words.unmarked(stage)}** {told}"], *group]
    caption = (
        "Dropped are the documents whose first reason a rule is (of a line rule the lines it takes out); alone are "
        "those that no other rule refuses, and that would be kept without it. The columns grow with the square root of "
        "the count; a line is the limit."
    )
    columns = ("rule", "route", "#judged", "#dropped", "#alone", "#limit", "distribution")
    blocks: list[Block] = [Table(columns, rows, caption), _stages(found)]
    masked = found.artifact.statistics.get("masked")
    if masked and not selection.narrowed():
        kinds = [(flat(kind), float(count), words.count(count), "accent") for kind, count in masked.items()]
        blocks.append(figures.bars(kinds, "Personal data and secrets replaced in documents that were kept.", "Masked"))
    if hidden:
        blocks.append(Prose(f"{hidden} more rules refused nothing."))
    blocks.append(Prose("`openk2 inspect RULE` shows what a rule dropped, nearest to its limit first."))
    return Section("index", "Every rule", "", blocks)


def _row(rule: Rule, route: Route, first: bool) -> list[str | Spark]:
    dropped = words.count(route.failed or 0) if rule.unit == "line" else words.count(rule.dropped) if first else ""
    return [
        f"[{words.unmarked(rule.name)}](#{key(rule)})" if first else "",
        Verbatim(flat(route.name)),
        words.count(route.judged),
        dropped,
        words.count(route.only),
        "–" if route.limit is None else words.figure(route.limit),
        Spark(route.edges, route.counts, *route.limits),
    ]


def _stages(found: Inspection) -> Block:
    """Dropped documents by stage, as bars."""
    dropped = Counter[str]()
    for rule in found.rules:
        dropped[rule.stage] += rule.dropped
    rows = [
        (flat(stage), float(count), f"{words.count(count)}, {STAGES.get(stage, '')}", "warm")
        for stage, count in dropped.items()
    ]
    if not rows:
        return Prose("Nothing of what was asked for was dropped.")
    return figures.bars(rows, "Dropped documents by the stage that dropped them, in the order of the stages.")


def _section(found: Inspection, rule: Rule, survivors: Survivors) -> Section:
    told = explanation(rule.name, rule.stage)
    field = f" Set by `{told.field}`." if told.field else ""
    summary = f"{told.why} {told.source.rstrip('.')}{'.' if told.source else ''}{field}".strip()
    samples = found.tally.nearest.get((rule.stage, rule.name), [])
    shown = [
        _sample(reject, f"{place} of {rule.dropped:,}", survivors) for place, reject in enumerate(samples, start=1)
    ]
    blocks = [*_charts(rule), *shown[:OPEN]]
    if rest := shown[OPEN:]:
        blocks.append(Fold(f"{len(rest)} more samples", rest))
    return Section(key(rule), flat(rule.name), summary, blocks, group=flat(rule.stage))


def _charts(rule: Rule) -> Iterator[Block]:
    drawn = []
    if rule.unit == "document":
        yield Prose(f"{words.count(rule.dropped)} documents have it as their first reason.")
    for route in rule.routes:
        counts = [f"The {words.count(rule.dropped)} dropped documents alone"]
        if route.judged is not None:
            counts = [f"{words.count(route.judged)} {route.unit}s judged", f"{words.count(route.failed or 0)} refused"]
        if route.only is not None:
            counts.append(f"{words.count(route.only)} by it alone")
        limit = "" if route.limit is None else f"; limit {words.figure(route.limit)}"
        refuses = f", refuses what lies {route.direction}" if route.direction else ""
        sentence = f"{', '.join(counts)}{limit}{refuses}."
        if len(route.counts) < 2:
            if route.judged is not None or route.limit is not None:
                yield Prose(f"{flat(route.name)}: {sentence}" if route.name else sentence)
            continue
        sentence += " The last column also counts everything beyond it." if route.whole else ""
        width = figures.HALF if len(rule.routes) > 1 else charts.WIDTH
        drawn.append(
            figures.histogram(route.edges, route.counts, "value", sentence, flat(route.name), *route.limits, width)
        )
    if len(drawn) > 1:
        yield Charts(drawn)
    else:
        yield from drawn


def _sample(reject: Sample, place: str, survivors: Survivors) -> Block:
    others = f" Also refused by {flat(', '.join(reject.others))}." if reject.others else ""
    note = f"{flat(reject.source)} · {flat(reject.url)} · {reject.id}.{others}"
    survivor = survivors.get(reject.survivor)
    if survivor is not None:
        text, url = survivor
        titles = (f"{place}, dropped: {_said(reject)}", f"kept: {flat(url)}")
        return Pair((Verbatim(titles[0]), Verbatim(titles[1])), (visible(reject.head), visible(text)), Verbatim(note))
    shown = visible(reject.head[:HEAD])
    found = evidence(reject.reason, shown, reject.value)
    return Excerpt(Verbatim(f"{place}: {_said(reject)}"), list(pieces(shown, found)), Verbatim(note))


def _said(reject: Sample) -> str:
    """The value that failed, in words."""
    if reject.survivor:
        similar = "" if reject.number is None else f"similarity {words.figure(reject.number)} "
        return f"{similar}with {reject.survivor[:12]}"
    value = flat(reject.value, 300) if reject.number is None else words.figure(reject.number)
    if reject.limit is None:
        return value
    side = "short of it" if reject.stage == "kept" else "past it"
    past = "" if reject.distance is None else f", {words.share(reject.distance)} {side}"
    return f"{value} against {words.figure(reject.limit)}{past}"


def key(rule: Rule) -> str:
    """A section's anchor."""
    return words.anchor(f"{rule.stage}-{rule.name}")
