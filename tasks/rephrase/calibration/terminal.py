"""A calibration for reading in a terminal: what the stack keeps and refuses, by kind, by check, by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from model.visible import visible
from tasks.rephrase.calibration.cases import TRUE
from tasks.rephrase.calibration.figures import ALL, TARGET_TRUE, TARGETS, Figures, Share
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.calibration.outcome import Outcome

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
"""Kinds as heads of narrow columns."""


def overview(found: Outcome, half: str, whole: bool = True) -> Iterator[RenderableType]:
    """All tables: the stack on both halves and on real text, the checks on one half, thresholds, groups. Not `whole`:
    cases were asked up to their first refusal, which says nothing of single checks."""
    pairs = len({result.case.id for result in found.results})
    yield f"{pairs} pairs, {len(found.results)} cases" + (
        f"; {len({result.case.id for result in found.real})} segments of {found.corpus}, {len(found.real)} cases"
        if found.real
        else "; no corpus is published, so no real text was asked"
    )
    yield ""
    yield stack(found.groups, whole, promised=not found.left_out)
    if half in found.groups:
        figures = found.groups[half]
        if whole:
            yield from _single(figures, half)
        yield ""
        yield groups(figures)
    if found.tuned and whole:
        yield ""
        limit = f" that refuse at most {100 * found.budget:g} % of the tune half's true pairs"
        yield Text.assemble(("Thresholds", "bold"), limit)
        yield thresholds(found)
    yield ""
    for sentence in found.broken:
        yield Text(f"Broken on the test half: {sentence}", style="red")
    if found.left_out:
        yield (
            f"Left out: {', '.join(found.left_out)}, which ask the network. What is promised of corruptions holds for "
            "the whole stack and was not judged: run without --cheap for that."
        )
    elif not found.broken and "test" in found.groups:
        yield Text("Every promise holds on the test half.", style="green")


def _single(figures: Figures, half: str) -> Iterator[RenderableType]:
    yield ""
    told = f" on the {half} half: per cent refused (stack*: where the true rewrite passes)"
    yield Text.assemble(("Each check", "bold"), told)
    yield checks(figures)
    if idle := [check.check for check in figures.checks if check.idle]:
        yield Text(f"nothing refused by {', '.join(idle)}", style="dim")
    yield ""
    yield Text.assemble(("AUC", "bold"), " of scores; left out is what tells nothing apart")
    yield areas(figures)


def stack(groups: dict[str, Figures], whole: bool = True, promised: bool = True) -> Table:
    """Acceptance of true pairs and recall of each kind, a column a half, beside what is promised of it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("the whole stack", no_wrap=True)
    table.add_column("promised", justify="right")
    for name in groups:
        table.add_column(name, justify="right")
        table.add_column("95 %", justify="right", style="dim", no_wrap=True)
        table.add_column("of", justify="right", style="dim")
    _row(table, "true pairs accepted", TARGET_TRUE, [found.acceptance for found in groups.values()])
    for kind in dict.fromkeys(kind for found in groups.values() for kind in found.recall):
        shares = [found.recall.get(kind, Share(0, 0)) for found in groups.values()]
        _row(table, f"{kind} refused", TARGETS.get(kind) if promised else None, shares)
    _row(table, "refused that is corrupted", None, [found.precision for found in groups.values()])
    if whole:
        cells = [cell for found in groups.values() for cell in (_area(found.auc[ALL]), "", "")]
        table.add_row("AUC", "", *cells)
    return table


def checks(found: Figures) -> Table:
    """What each check refuses of the true pairs, alone and with others, and of each kind; the last row is the stack,
    asked only of pairs whose true rewrite passes."""
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    for name in ("true", "alone", "prec.", *(SHORT.get(kind, kind) for kind in found.recall)):
        table.add_column(name, justify="right", no_wrap=True)
    for check in found.checks:
        if check.idle:
            continue
        cells = [_percent(check.rejects_true, wrong=True), _percent(check.alone_true, wrong=True)]
        table.add_row(
            check.check, *cells, _percent(check.precision), *(_percent(share) for share in check.rejects.values())
        )
    clean = [_percent(share) for share in found.clean.values()]
    table.add_row("stack*", "", "", "", *clean, style="bold")
    return table


def areas(found: Figures) -> Table:
    """The area under the curve of each check's score, per kind."""
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("all", justify="right")
    for kind in found.recall:
        table.add_column(SHORT.get(kind, kind), justify="right")
    for check in found.checks:
        if check.tells:
            table.add_row(check.check, _area(check.auc[ALL]), *(_area(check.auc[kind]) for kind in found.recall))
    table.add_row("stack", _area(found.auc[ALL]), *(_area(found.auc[kind]) for kind in found.recall), style="bold")
    return table


def groups(found: Figures) -> Table:
    """Acceptance of true pairs by style, domain and language, and by which check they were refused first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("true pairs by")
    table.add_column("")
    table.add_column("accepted", justify="right")
    table.add_column("95 %", justify="right", style="dim")
    for name, values in found.by.items():
        for place, (value, share) in enumerate(values.items()):
            table.add_row(name if place == 0 else "", visible(value), f"{share.count} of {share.of}", _interval(share))
    for place, (check, count) in enumerate(found.refused_by.items()):
        table.add_row("first refused by" if place == 0 else "", check, f"{count} refused", "")
    return table


def thresholds(found: Outcome) -> Table:
    """Each threshold as configured and as chosen, with the true pairs and the corruptions that it refuses."""
    table = Table(box=None, pad_edge=False)
    table.add_column("threshold", no_wrap=True)
    table.add_column("")
    for name in ("value", "true, tune", "true, test", "corrupted, test"):
        table.add_column(name, justify="right")
    for tuned in found.tuned:
        rows = (("configured", tuned.configured, tuned.before), ("chosen", tuned.chosen, tuned.after))
        for place, (name, value, refused) in enumerate(rows):
            true = [_percent(refused[half][0], wrong=True) for half in ("tune", "test")]
            head = tuned.threshold.name if place == 0 else ""
            table.add_row(head, name, f"{value:g}", *true, _percent(refused["test"][1]))
    return table


def failures(results: Sequence[Result], kind: str, count: int) -> Iterator[RenderableType]:
    """The refused true pairs, or the corruptions of `kind` that pass, source beside rewrite."""
    asked = [result for result in results if result.case.kind == kind]
    wrong = [result for result in asked if result.accepted != (kind == TRUE)]
    yield f"{len(wrong)} of {len(asked)} {'true pairs are refused' if kind == TRUE else f'{kind} pass'}"
    for result in wrong[:count]:
        case = result.case
        table = Table(box=None, pad_edge=False, show_header=False, title_justify="left", expand=True)
        table.title = Text.assemble((case.id, "bold"), " ", (case.style, "dim"), " ", (visible(said(result)), "yellow"))
        table.add_column(ratio=1, overflow="fold")
        table.add_column(ratio=1, overflow="fold")
        table.add_row(Text(visible(case.source)), Text(visible(case.rewrite)))
        yield ""
        yield table


def said(result: Result) -> str:
    """Why a true pair is refused, or what was done to a corrupted one."""
    if not result.case.faithful:
        return result.case.why
    return "; ".join(f"{verdict.check}: {verdict.why}" for verdict in result.verdicts if not verdict.passed)


def _row(table: Table, name: str, target: float | None, shares: Sequence[Share]) -> None:
    cells: list[str | Text] = []
    for share in shares:
        value = share.value
        colour = "" if target is None or value is None else "green" if value >= target else "bold red"
        told = Text("–" if value is None else f"{100 * value:.1f} %", style=colour)
        cells += [told, _interval(share), str(share.of)]
    table.add_row(name, "" if target is None else f"{100 * target:.0f} %", *cells)


def _interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.0f}–{100 * high:.0f}" if share.of else ""


def _percent(share: Share, wrong: bool = False) -> Text:
    if not share.count:
        return Text("·" if share.of else "", style="dim")
    value = 100 * share.count / share.of
    told = f"{value:.1f}" if wrong or value < 9.95 else f"{value:.0f}"
    return Text(told, style=("red" if value > 1 else "yellow") if wrong else "")


def _area(area: float | None) -> Text:
    if area is None:
        return Text("")
    return Text(f"{area:.2f}", style="dim" if abs(area - 0.5) < 0.02 else "")
