"""A calibration for reading in a terminal: what the stack keeps and refuses, by kind, by check, by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tasks.rephrase.calibration.cases import TRUE
from tasks.rephrase.calibration.figures import TARGET_TRUE, TARGETS, Figures, Share
from tasks.rephrase.calibration.measure import Result

SHORT = {
    "number_swap": "num",
    "unit_swap": "unit",
    "negation": "neg",
    "entity_swap": "name",
    "dropped_sentence": "drop",
    "added_sentence": "add",
    "relation": "rel",
    "formula": "form",
    "code": "code",
}


def stack(halves: dict[str, Figures]) -> Table:
    """Acceptance of true pairs and recall of each kind, a column a half, beside what is promised."""
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.add_column("the whole stack", no_wrap=True)
    table.add_column("promised", justify="right")
    for name in halves:
        table.add_column(name, justify="right")
        table.add_column("95 %", justify="right", style="dim")
        table.add_column("of", justify="right", style="dim")
    _row(table, "true pairs accepted", TARGET_TRUE, [found.acceptance for found in halves.values()])
    kinds = list(dict.fromkeys(kind for found in halves.values() for kind in found.recall))
    for kind in kinds:
        shares = [found.recall.get(kind, Share(0, 0)) for found in halves.values()]
        _row(table, f"{kind} refused", TARGETS.get(kind), shares)
    _row(table, "accepted that is true", None, [found.precision for found in halves.values()])
    return table


def checks(found: Figures) -> Table:
    """What each check refuses of the true pairs and of each kind; dim where it is nothing."""
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("true", justify="right")
    table.add_column("alone", justify="right")
    for kind in found.recall:
        table.add_column(SHORT.get(kind, kind), justify="right")
    for check in found.checks:
        cells = [_percent(check.rejects_true, wrong=True), _percent(check.alone_true, wrong=True)]
        table.add_row(check.check, *cells, *(_percent(share) for share in check.rejects.values()))
    return table


def areas(found: Figures) -> Table:
    """The area under the curve of each check's score, per kind; left out where no score tells anything."""
    table = Table(box=None, pad_edge=False)
    table.add_column("AUC of scores", no_wrap=True)
    for kind in found.recall:
        table.add_column(SHORT.get(kind, kind), justify="right")
    for check in found.checks:
        if any(abs((area or 0.5) - 0.5) >= 0.02 for area in check.auc.values()):
            table.add_row(check.check, *(_area(area) for area in check.auc.values()))
    return table


def groups(found: Figures) -> Table:
    """Acceptance of true pairs by style, domain and language."""
    table = Table(box=None, pad_edge=False)
    table.add_column("true pairs by")
    table.add_column("")
    table.add_column("accepted", justify="right")
    table.add_column("95 % interval", justify="right", style="dim")
    for name, values in found.by.items():
        for place, (value, share) in enumerate(values.items()):
            table.add_row(name if place == 0 else "", value, f"{share.count} of {share.of}", _interval(share))
    return table


def failures(results: Sequence[Result], kind: str, count: int) -> Iterator[RenderableType]:
    """The refused true pairs, or the corruptions of `kind` that pass, source beside rewrite."""
    wrong = [result for result in results if result.case.kind == kind and result.accepted != (kind == TRUE)]
    yield Text(f"{len(wrong)} of {sum(result.case.kind == kind for result in results)} '{kind}' go wrong")
    for result in wrong[:count]:
        case = result.case
        told = "; ".join(f"{v.check}: {v.why}" for v in result.verdicts if not v.passed) if kind == TRUE else case.why
        table = Table(box=None, pad_edge=False, show_header=False, title_justify="left")
        table.title = f"[bold]{escape(case.id)}[/bold] [dim]{escape(case.style)}[/dim] [yellow]{escape(told)}[/yellow]"
        table.add_column(ratio=1, overflow="fold")
        table.add_column(ratio=1, overflow="fold")
        table.add_row(Text(case.source), Text(case.rewrite))
        yield table
        yield Text("")


def _row(table: Table, name: str, target: float | None, shares: Sequence[Share]) -> None:
    cells: list[str | Text] = []
    for share in shares:
        value = share.value
        colour = "" if target is None or value is None else "green" if value >= target else "bold red"
        cells += [
            Text("–" if value is None else f"{100 * value:.1f} %", style=colour),
            _interval(share),
            str(share.of),
        ]
    table.add_row(name, "" if target is None else f"{100 * target:.0f} %", *cells)


def _interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.0f}–{100 * high:.0f}" if share.of else ""


def _percent(share: Share, wrong: bool = False) -> Text:
    if not share.of or not share.count:
        return Text("·" if share.of else "", style="dim")
    value = 100 * share.count / share.of
    return Text(f"{value:.1f}", style=("red" if value > 1 else "yellow") if wrong else "")


def _area(area: float | None) -> Text:
    if area is None:
        return Text("")
    return Text(f"{area:.2f}", style="dim" if abs(area - 0.5) < 0.02 else "")
