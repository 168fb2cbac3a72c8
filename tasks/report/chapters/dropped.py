"""What curation dropped, where and why: the way through the stages, the rules, duplicates, hits, the unreadable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from tasks.report import charts, figures, rejects, words
from tasks.report.blocks import Block, Chart, Fold, Table, Verbatim
from tasks.report.book import Book
from tasks.report.inspect.corpus.rejects import heads
from tasks.report.inspect.rows import row_groups

STAGE_COLOURS = {
    "quality": "warm",
    "dedup": "knowledge",
    "language": "code",
    "licence": "bad",
    "decontamination": "bad",
}
KEPT = "accent"
SHOWN = 14  # rules drawn; the rest is in a table
CLUSTERS = 8
HITS = 40
NAMED = 100  # unreadable records that are named on the page; all are in the rejected rows


def flow(book: Book) -> Iterable[Block]:
    """The way of the documents through the stages"""
    read, kept = book.statistic("corpus", "read"), book.statistic("corpus", "documents")
    lost = Counter[str]()
    for drop in rejects.drops(book.stage("corpus")):
        lost[drop.stage] += drop.documents
    if not read:
        return
    rows = [("read", [(1.0, KEPT)], f"{words.count(read)} documents")]
    left = read
    for stage, count in lost.items():
        left -= count
        said = f"−{words.count(count)} ({words.share(count / read)}), {words.count(left)} left"
        rows.append((stage, [(left / read, KEPT), (count / read, "warm")], said))
    rows.append(("kept", [(kept / read, KEPT)], f"{words.count(kept)} ({words.share(kept / read)})"))
    caption = (
        "Documents after each stage, in the order in which they pass; what a stage drops is at the end of its "
        "bar. What drops at `read` could not be read."
    )
    said_of = [(label, text) for label, _, text in rows]
    yield Chart(charts.stacked(rows, ()), caption, "From read to kept", said_of)
    yield from _shares(book)


def _shares(book: Book) -> Iterable[Block]:
    """Kept and dropped by stage, for every domain and every source."""
    sources: Mapping[str, Mapping[str, Any]] = book.statistic("corpus", "by_source")
    by_source: dict[str, Counter[str]] = {}
    for drop in rejects.drops(book.stage("corpus")):
        by_source.setdefault(drop.source, Counter())[drop.stage] += drop.documents
    by_domain: dict[str, Counter[str]] = {}
    for name, entry in sources.items():
        group = by_domain.setdefault(str(entry.get("domain", "")), Counter())
        for counts in (by_source.setdefault(name, Counter()), group):
            counts["kept"] += entry["documents"]
        group.update({stage: count for stage, count in by_source[name].items() if stage != "kept"})
    present = {stage for counts in by_source.values() for stage, count in counts.items() if count and stage != "kept"}
    order = ["kept", *sorted(present, key=lambda stage: (rejects.place(stage), stage))]
    paint = {stage: KEPT if stage == "kept" else STAGE_COLOURS.get(stage, "soft") for stage in order}
    key = list({paint[stage]: ", ".join(s for s in order if paint[s] == paint[stage]) for stage in order}.items())
    for title, groups in (("By domain", by_domain), ("By source", by_source)):
        rows = []
        for name, counts in sorted(groups.items(), key=lambda item: (-item[1].total(), item[0])):
            total = max(counts.total(), 1)
            shares = [(counts[stage] / total, paint[stage]) for stage in order]
            text = f"{words.share(counts['kept'] / total)} of {words.count(total)}"
            rows.append((name[:30] or "–", shares, text))
        if rows:
            yield figures.stacked(
                rows, [(name, colour) for colour, name in key], "Share kept, of documents read.", title
            )


def reasons(book: Book) -> Iterable[Block]:
    """What was rejected and why"""
    counts: dict[str, int] = book.statistic("corpus", "rejected_by_reason")
    if not counts:
        return
    total = max(sum(counts.values()), 1)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rules: dict[str, Any] = book.statistic("corpus", "rules")
    alone = _alone(rules)
    rows = []
    for name, value in ordered[:SHOWN]:
        only = f" · {words.count(alone[name])} by it alone" if name in alone else ""
        rows.append((words.name(name), value, f"{words.count(value)} · {words.share(value / total)}{only}", "warm"))
    more = f" {len(ordered) - SHOWN} rarer reasons are in the tables below." if len(ordered) > SHOWN else ""
    meant = " By it alone: documents that no other rule refuses." if alone else ""
    yield figures.bars(
        rows, f"Rejected documents by the rule that refused them first.{meant}{more}", "Rejected, by reason"
    )
    if rules:
        yield Fold(f"All {len(rules)} rules with their thresholds", [_rules(rules)])
    yield Fold("Samples of what was rejected, two for each reason", [_samples(book)])


def _alone(rules: Mapping[str, Mapping[str, Any]]) -> Counter[str]:
    """Documents that one rule alone refuses, over its routes."""
    found = Counter[str]()
    for record in rules.values():
        found[record["rule"]] += record["only"]
    return found


def _rules(rules: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [
            words.name(record["rule"]),
            record["route"],
            f"{record['direction']} {words.plain(record['limit'])}",
            *(words.count(record[name]) for name in ("judged", "failed", "only")),
        ]
        for record in rules.values()
    ]
    caption = "Refused: on the wrong side of the limit, whether or not another rule came first."
    return Table(("rule", "route", "refuses", "#judged", "#refused", "#by it alone"), rows, caption)


def _samples(book: Book) -> Table:
    names = ["reason", "source", "text_head", "value", "stage"]
    sample = pl.DataFrame()
    for frame in row_groups(book.files("corpus", "rejected"), names):  # the whole table may not fit into memory
        both = pl.concat([sample, frame.select(names)]) if sample.height else frame.select(names)
        sample = both.sort(names).group_by("reason", maintain_order=True).head(2).select(names)
    sample = sample.head(160)
    shown = [
        [row["stage"], words.name(row["reason"]), head(row["value"], 24), row["source"], head(row["text_head"])]
        for row in sample.iter_rows(named=True)
    ]
    return Table(("stage", "reason", "value", "source", "the text begins"), shown)


def head(text: str | None, most: int = 120) -> Verbatim:
    """The first `most` characters of a text on one line, no markup of which counts."""
    return Verbatim(" ".join((text or "").split())[:most])


def personal(book: Book) -> Iterable[Block]:
    """Personal data that was replaced"""
    if kinds := book.statistic("corpus", "masked"):
        yield figures.counted(kinds, "Personal data and secrets replaced by placeholders, by kind.", "Replaced")


def contamination(book: Book) -> Iterable[Block]:
    """What overlaps evaluation sets"""
    if not book.stage("corpus").parts("contamination"):
        return
    hits = book.rows("corpus", "contamination")
    by_set = (
        hits.group_by("set")
        .agg(pl.col("url").n_unique().alias("documents"), pl.col("item").n_unique().alias("items"))
        .sort("documents", "set", descending=[True, False])
        .collect()
    )
    rows = [[Verbatim(name), words.count(documents), words.count(items)] for name, documents, items in by_set.rows()]
    caption = "Documents that share a run of words with an item of an evaluation set, dropped or cut."
    yield Table(("evaluation set", "#documents", "#items"), rows, caption)
    sample = hits.sort("share", "set", "item", "url", descending=[True, False, False, False]).head(HITS).collect()
    found = [
        [
            Verbatim(f"{row['set']} {row['item']}"),
            words.share(row["share"]),
            Verbatim(row["url"]),
            head(row["passage"], 240),
        ]
        for row in sample.iter_rows(named=True)
    ]
    yield Fold(
        "Which item, where, and the words that they share",
        [Table(("item", "#share of it", "document", "the passage in the document"), found)],
    )


def duplicates(book: Book) -> Iterable[Block]:
    """What was there twice"""
    cut: dict[str, dict[str, int]] = book.optional("corpus", "cut", default={})
    if any(cut.values()):
        yield Table(
            ("what was cut out of documents that stay", "#passages", "#characters"),
            [
                [words.name(name), words.count(count), words.count(cut["characters"].get(name, 0))]
                for name, count in sorted(cut["passages"].items())
            ],
            "Passages that stand elsewhere in the corpus too, by how that was found.",
        )
    largest = rejects.clusters(book.stage("corpus"), CLUSTERS)
    if largest:
        texts = heads(book.stage("corpus"), [name for name, _ in largest], 400)
        rows = [[f"`{name}`", words.count(count), head(texts.get(name, ("",))[0])] for name, count in largest]
        caption = "The documents that stand for the most others. `openk2 lineage ID` tells where one comes from."
        yield Fold("The largest clusters", [Table(("survivor", "#stands for", "its text begins"), rows, caption)])


def unreadable(book: Book) -> Iterable[Block]:
    """What could not be read, by name"""
    count = book.statistic("corpus", "unreadable")
    if not count:
        return
    named = rejects.unreadable(book.stage("corpus"), NAMED)
    by_source = Counter[str]()
    for drop in rejects.drops(book.stage("corpus")):
        if drop.stage == "read":
            by_source[drop.source] += drop.documents
    said = ", ".join(f"{name} {words.count(number)}" for name, number in by_source.most_common())
    rows = [[Verbatim(url), head(why, 200)] for url, why in named]
    rest = f" The first {len(rows)} by name; the others are in the rejected rows." if count > len(rows) else ""
    yield Fold(
        f"{words.count(count)} records could not be read" + (f": {said}" if said else ""),
        [Table(("record", "why"), rows, f"Counted, named and left out; everything else was processed.{rest}")],
    )
