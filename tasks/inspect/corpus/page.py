"""An inspection as one HTML page that loads nothing: a section a rule, with its histogram and its samples in folds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from model.visible import flat, visible
from tasks.artifact import Artifact
from tasks.inspect.corpus.catalogue import explanation, stage_sentence
from tasks.inspect.corpus.evidence import evidence, pieces
from tasks.inspect.corpus.overview import Inspection, Route, Rule, inspect
from tasks.inspect.corpus.rejects import Sample, Selection, heads
from tasks.inspect.corpus.terminal import said
from tasks.report import figures, html, words
from tasks.report.blocks import Block, Charts, Document, Excerpt, Fold, Headline, Pair, Prose, Section, Table, Verbatim

HEAD = 600  # characters of a text that are shown
OPEN = 3  # samples that stand outside a fold


def build(artifact: Artifact, selection: Selection, count: int) -> str:
    """The page over the rules that `selection` asks for, with `count` samples of each."""
    found = inspect(artifact, selection, count)
    samples = [reject for rejects in found.tally.nearest.values() for reject in rejects]
    survivors = heads(artifact, [reject.survivor for reject in samples if reject.survivor], HEAD)
    return html.page(_document(found, selection, survivors))


def _document(found: Inspection, selection: Selection, survivors: dict[str, tuple[str, str]]) -> Document:
    s = found.artifact.statistics
    read = s.get("read", 0)
    narrowed = [
        f"{name} {value}" for name in ("reason", "stage", "source", "language") if (value := getattr(selection, name))
    ]
    only = f" Only {', '.join(narrowed)}." if narrowed else ""
    figures_ = [
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
        headline=Headline(figures_),
        sections=[_index(found), *(_section(found, rule, survivors) for rule in found.rules)],
    )


def _index(found: Inspection) -> Section:
    rows = []
    stage = ""
    for rule in found.rules:
        for place, route in enumerate(rule.routes):
            rows.append(
                [
                    Verbatim(flat(rule.stage)) if rule.stage != stage else "",
                    f"[{_plain(rule.name)}](#{key(rule)})" if place == 0 else "",
                    Verbatim(flat(route.name)),
                    _number(route.judged),
                    words.count(rule.dropped) if place == 0 else "",
                    _number(route.only) + (" lines" if rule.unit == "line" and route.only else ""),
                    "–" if route.limit is None else words.figure(route.limit),
                ]
            )
            stage = rule.stage
    caption = (
        "Dropped are the documents whose first reason a rule is; alone are those that no other rule refuses, and that "
        "would be kept without it."
    )
    columns = ("stage", "rule", "route", "#judged", "#dropped", "#alone", "#limit")
    blocks: list[Block] = [_stages(found), Table(columns, rows, caption)]
    if masked := found.artifact.statistics.get("masked"):
        kinds = [(flat(kind), float(count), words.count(count), "accent") for kind, count in masked.items()]
        blocks.append(figures.bars(kinds, "Personal data and secrets replaced in documents that were kept.", "Masked"))
    return Section("index", "Every rule", "", blocks)


def _stages(found: Inspection) -> Block:
    """Dropped documents by stage, as bars."""
    dropped = Counter[str]()
    for rule in found.rules:
        dropped[rule.stage] += rule.dropped
    rows = [
        (flat(stage), float(count), f"{words.count(count)}, {stage_sentence(stage)}", "warm")
        for stage, count in dropped.items()
    ]
    return figures.bars(rows, "Dropped documents by the stage that dropped them, in the order of the stages.")


def _section(found: Inspection, rule: Rule, survivors: dict[str, tuple[str, str]]) -> Section:
    told = explanation(rule.name, rule.stage)
    field = f" Set by `{told.field}`." if told.field else ""
    summary = f"{told.why} {told.source.rstrip('.')}{'.' if told.source else ''}{field}".strip()
    samples = found.tally.nearest.get((rule.stage, rule.name), [])
    blocks = [*_charts(rule), *(_sample(reject, survivors) for reject in samples[:OPEN])]
    if rest := samples[OPEN:]:
        blocks.append(Fold(f"{len(rest)} more samples", [_sample(reject, survivors) for reject in rest]))
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
            if route.judged is not None:
                yield Prose(f"{flat(route.name)}: {sentence}")
            continue
        sentence += " The last column also counts everything beyond it." if route.open else ""
        drawn.append(_histogram(route, sentence, len(rule.routes) > 1))
    if len(drawn) > 1:
        yield Charts(drawn)
    else:
        yield from drawn


def _histogram(route: Route, caption: str, half: bool):
    width = {"width": figures.HALF} if half else {}
    return figures.histogram(
        route.edges,
        route.counts,
        "value",
        caption,
        flat(route.name),
        limit=route.limit,
        refused=route.direction,
        **width,
    )


def _sample(reject: Sample, survivors: dict[str, tuple[str, str]]) -> Block:
    others = f" Also refused by {flat(', '.join(reject.others))}." if reject.others else ""
    note = f"{flat(reject.source)} · {flat(reject.url)} · {reject.id}.{others}"
    survivor = survivors.get(reject.survivor)
    if survivor is not None:
        text, url = survivor
        titles = (f"dropped: {said(reject)}", f"kept: {flat(url)}")
        return Pair((Verbatim(titles[0]), Verbatim(titles[1])), (visible(reject.head), visible(text)), Verbatim(note))
    shown = visible(reject.head[:HEAD])
    found = evidence(reject.reason, shown, reject.value)
    return Excerpt(Verbatim(said(reject)), list(pieces(shown, found)), Verbatim(note))


def key(rule: Rule) -> str:
    """A section's anchor."""
    return re.sub(r"[^a-z0-9]+", "-", f"{rule.stage}-{rule.name}".lower()).strip("-")


def _plain(text: str) -> str:
    """A name as text of our own: no markup can stand in it."""
    return re.sub(r"[^\w .:/-]", "?", flat(text))


def _number(value: int | None) -> str:
    return "–" if value is None else words.count(value)
