"""What an inspection looks like in a terminal of 80 columns. Nothing of a document reaches it but as plain text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from model.visible import flat, visible
from tasks.inspect import terminal
from tasks.inspect.corpus.catalogue import explanation, stage_sentence
from tasks.inspect.corpus.evidence import evidence, pieces
from tasks.inspect.corpus.overview import Inspection, Route, Rule
from tasks.inspect.corpus.rejects import Sample
from tasks.inspect.terminal import KEPT, REFUSED
from tasks.report import words

ROUTE = 7  # characters of a route's name in the overview
SPARK = 13  # cells of a histogram in the overview
HEAD = 420  # characters of a text that are shown
MARK = "black on yellow"


def overview(found: Inspection) -> Iterator[RenderableType]:
    """Every rule with its counts and a histogram, stage by stage."""
    s = found.artifact.statistics
    kept = s.get("documents", 0) / max(s.get("read", 0), 1)
    yield Text.assemble(
        (f"{flat(found.artifact.name)} {flat(found.artifact.fingerprint)}", "bold"),
        f": {s.get('read', 0):,} documents read, {s.get('documents', 0):,} kept ({words.share(kept)}), "
        f"{s.get('rejected', 0):,} rejected, {s.get('unreadable', 0):,} unreadable",
    )
    routes = any(route.name for rule in found.rules for route in rule.routes)
    silent = 0
    for (stage, unit), rules in itertools.groupby(found.rules, key=lambda rule: (rule.stage, rule.unit)):
        table = _table(routes, "out" if unit == "line" else "dropped")
        for rule in rules:
            active = [route for route in rule.routes if route.failed or not route.whole]
            active = active or list(rule.routes[: 1 if rule.dropped else 0])
            silent += not active
            for place, route in enumerate(active):
                gone = route.failed if unit == "line" else None if place else rule.dropped
                table.add_row(
                    Text(flat(rule.name)) if place == 0 else Text(""),
                    Text(flat(route.name)[:ROUTE], style="dim"),
                    _count(route.judged),
                    Text("") if gone is None else _count(gone),
                    _count(route.only),
                    Text("–" if route.limit is None else _limit(route.limit)),
                    sparkline(route, SPARK),
                )
        if table.row_count:
            what = "lines taken out of documents, which drops none" if unit == "line" else stage_sentence(stage)
            yield Text.assemble("\n", (flat(stage), "bold cyan"), (f"  {what}", "dim"))
            yield table
    yield Text.assemble(
        "\n",
        ("alone: refused by no other rule. ", "dim"),
        ("│", "bold yellow"),
        (" the limit, ", "dim"),
        ("refused", REFUSED),
        (" and ", "dim"),
        ("kept", KEPT),
        (" side; bars grow with the square root.", "dim"),
    )
    if masked := s.get("masked"):
        said = ", ".join(f"{flat(kind)} {count:,}" for kind, count in masked.items())
        yield Text(f"Personal data and secrets replaced: {said}.")
    if silent:
        yield Text(f"{silent} more rules refused nothing.", style="dim")
    if not s.get("rules"):
        yield Text("This corpus has no statistics by rule: the histograms show dropped documents alone.", style="dim")
    yield Text("`openk2 inspect RULE` shows what a rule dropped, nearest to its limit first.", style="dim")


def _table(routes: bool, gone: str) -> Table:
    """One look for all stages, so that columns stand under each other."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("rule", width=28, overflow="fold")
    for name, width in (("route", ROUTE if routes else 0), ("judged", 7), (gone, 7), ("alone", 5), ("limit", 5)):
        table.add_column(name if width else "", justify="right", width=width, no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _count(value: int | None) -> Text:
    return Text("–" if value is None else words.short(value) if value >= 10_000 else f"{value:,}")


def _limit(value: float) -> str:
    return words.short(value) if value >= 10_000 else words.figure(value)


def sparkline(route: Route, cells: int) -> Text:
    """A route's histogram."""
    above = route.direction == "above"
    least, most = (None, route.limit) if above else (route.limit, None)
    return terminal.sparkline(route.edges, route.counts, least, most, cells)


def rule_page(found: Inspection, rule: Rule, survivors: dict[str, tuple[str, str]]) -> Iterator[RenderableType]:
    """One rule: what it is, its numbers, and the samples nearest to its threshold."""
    told = explanation(rule.name, rule.stage)
    yield Text.assemble((flat(rule.name), "bold"), (f"  {flat(rule.stage)}", "cyan"))
    if told.why:
        yield Text(told.why)
    if told.source or told.field:
        yield Text("  ".join(part for part in (told.source, told.field) if part), style="dim")
    if rule.unit == "document":
        yield Text(f"{rule.dropped:,} documents have it as their first reason.")
    for route in rule.routes:
        yield _numbers(route)
        if line := sparkline(route, 48):
            yield Padding(line, (0, 0, 0, 2))
            ends = f"{words.figure(route.edges[0])} to {words.figure(route.edges[-1])}"
            whole = f"all {route.unit}s judged" if route.whole else "dropped documents alone"
            beyond = " and beyond" if route.open else ""
            yield Text(f"  {ends}{beyond}; {whole}", style="dim")
    samples = found.tally.nearest.get((rule.stage, rule.name), [])
    if not samples:
        yield Text("\nIt dropped nothing that fits.", style="dim")
    for place, reject in enumerate(samples, start=1):
        yield shown(reject, f"{place} of {rule.dropped:,}", survivors)


def kept_page(rule: str, samples: Sequence[Sample], judged: int) -> Iterator[RenderableType]:
    """Kept documents nearest to the threshold of one rule."""
    told = explanation(rule, "quality")
    yield Text.assemble((flat(rule), "bold"), ("  kept documents nearest to its limit", "cyan"))
    if told.why:
        yield Text(told.why)
    yield Text(f"Measured again on {judged:,} kept documents that it judges.", style="dim")
    for at, document in enumerate(samples, start=1):
        yield shown(document, f"{at} of {judged:,}", {})


def _numbers(route: Route) -> Text:
    said = []
    if route.judged is not None:
        said = [f"judged {route.judged:,} {route.unit}s", f"refused {route.failed or 0:,}"]
    if route.only is not None:
        said.append(f"alone {route.only:,}")
    if route.limit is not None:
        said.append(f"limit {words.figure(route.limit)}" + (f", refuses {route.direction}" if route.direction else ""))
    return Text((f"{flat(route.name)}: " if route.name else "") + " · ".join(said))


def shown(reject: Sample, place: str, survivors: dict[str, tuple[str, str]]) -> RenderableType:
    """One dropped document, or for a duplicate both documents side by side."""
    title = Text.assemble("\n", (f"{place}  ", "bold"), (said(reject), KEPT if reject.stage == "kept" else REFUSED))
    facts = Text.assemble((f"{flat(reject.source)}  {flat(reject.url)}  ", "dim"), (reject.id[:12], "dim cyan"))
    blocks: list[RenderableType] = [title, facts]
    if reject.others:
        blocks.append(Text(f"also refused by: {flat(', '.join(reject.others))}", style="dim"))
    survivor = survivors.get(reject.survivor)
    if survivor is not None:
        blocks.append(_side_by_side(reject, *survivor))
    elif reject.head:
        blocks.append(Padding(marked(reject.reason, reject.head[:HEAD], reject.value), (0, 0, 0, 2)))
    return Group(*blocks)


def said(reject: Sample) -> str:
    """The value that failed, in words."""
    if reject.survivor:
        similar = "" if reject.number is None else f"similarity {words.figure(reject.number)} "
        return f"{similar}with {reject.survivor[:12]}"
    value = flat(reject.value, 300) if reject.number is None else words.figure(reject.number)
    if reject.limit is None:
        return value
    side = "short of it" if reject.stage == "kept" else "past it"
    past = "" if reject.distance is None else f", {words.share(reject.distance)} {side}"
    extra = ""
    if reject.number is not None and (tail := flat(reject.value, 300)) and not _is_number(tail):
        extra = f" ({tail})"
    return f"{value} against {words.figure(reject.limit)}{past}{extra}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def marked(rule: str, head: str, value: str = "") -> Text:
    """A text's beginning with the evidence of `rule` marked."""
    text = visible(head)
    line = Text()
    for piece, is_evidence in pieces(text, evidence(rule, text, value)):
        line.append(_tight(piece), style=MARK if is_evidence else "")
    return line


def _tight(text: str) -> str:
    """Without blank lines, which a terminal has no room for."""
    return re.sub(r"\n(?:[ ]*\n)+", "\n", text)


def _side_by_side(reject: Sample, text: str, url: str) -> Table:
    table = Table(box=box.SIMPLE, expand=True, padding=(0, 1), show_edge=False)
    table.add_column(Text("dropped"), ratio=1, overflow="fold")
    table.add_column(Text(f"kept: {flat(url)}", overflow="fold"), ratio=1, overflow="fold")
    table.add_row(Text(_tight(visible(reject.head[:HEAD]))), Text(_tight(visible(text[:HEAD]))))
    return table
