"""A measurement as blocks: for a page, for markdown, and for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from model.visible import flat, visible
from tasks.rephrase.calibration.figures import Figures, Outcome, Point, Share, limit, share, sides
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.calibration.pairs import DEFECTS, FAITHFUL, KINDS
from tasks.report import figures, words
from tasks.report.blocks import Block, Document, Fold, Headline, Pair, Section, Table, Verbatim
from tasks.report.charts import Line

MOST = 12
"""Failures of a kind that the page shows, and rows of domains."""
LANGUAGES = 4
"""Languages that have a column of their own."""


def overview(found: Outcome) -> Document:
    """The figures."""
    whole = found.whole
    sources = len({result.row.source for result in found.results})
    cards = [
        (_value(whole.faithful), "faithful rewrites accepted", _interval(whole.faithful)),
        (_value(whole.defects), "defects refused", _interval(whole.defects)),
        (_area(whole.balanced), "balanced accuracy", "the mean of the two"),
        *([(_area(whole.auc), f"AUC of `{found.learned}`", "0.5 tells nothing, 1 everything")] if whole.auc else []),
        (f"{found.milliseconds:.0f}", "CPU-milliseconds a pair", "every check asked"),
    ]
    return Document(
        title="How well the alignment check tells a faithful rewrite from one with a defect",
        subtitle=f"{flat(found.pairs)}: {words.count(sources)} sources, {words.count(len(found.results))} rewrites.",
        lead="Shares of the whole check, as configured, with their Wilson 95 % intervals.",
        headline=Headline(cards),
        sections=[_kinds(found), _curve(found), _checks(found), _domains(found), *_real(found)],
    )


def page(found: Outcome) -> Document:
    """The figures, and what goes wrong of pairs that may be read."""
    shown = overview(found)
    sections = []
    for kind in KINDS:
        section = failures(found.results, kind, MOST)
        if section.blocks:
            fold = Fold(f"{len(section.blocks)} to read", section.blocks)
            sections.append(Section(section.key, section.title, section.summary, [fold], group="What goes wrong"))
    return Document(shown.title, shown.subtitle, shown.lead, shown.headline, [*shown.sections, *sections])


def failures(results: Sequence[Result], kind: str, count: int) -> Section:
    """The faithful rewrites that are refused, or the defects of `kind` that pass, source beside rewrite; none of the
    test set, which whoever improves the check does not read."""
    asked = [result for result in results if result.row.kind == kind and result.row.part != "test"]
    wrong = [result for result in asked if result.accepted != result.row.faithful]
    outcome = "passes" if kind in DEFECTS else "is refused"
    summary = f"{len(wrong)} of {len(asked)}: {KINDS[kind]}."
    return Section(
        f"failures-{kind}", f"{kind.capitalize()} that {outcome}", summary, [_sample(r) for r in wrong[:count]]
    )


def _kinds(found: Outcome) -> Section:
    whole, languages = found.whole, list(found.by("language").items())[:LANGUAGES]
    groups = [whole, *(some for _, some in languages)] if len(languages) > 1 else [whole]
    learned = whole.auc is not None

    def row(name: str, of: Callable[[Figures], Share | None], area: float | None = None) -> list[str]:
        shares = [of(some) for some in groups]
        return [
            name,
            str(shares[0].of) if shares[0] else "–",
            *map(_brief, shares),
            *([_area(area)] if learned else []),
        ]

    def of_kind(kind: str) -> list[str]:
        return row(kind, lambda some: some.kinds.get(kind), whole.areas.get(kind))

    rows = [
        ["per cent accepted"],
        row("**all faithful**", lambda some: some.faithful),
        *(of_kind(kind) for kind in whole.kinds if kind not in DEFECTS),
        ["per cent refused"],
        row("**all defects**", lambda some: some.defects, whole.auc),
        *(of_kind(kind) for kind in whole.kinds if kind in DEFECTS),
        ["mean of the two"],
        ["balanced accuracy", "", *(_area(some.balanced) for some in groups), *([""] if learned else [])],
    ]
    spans = [
        (kind, low, some.value or 0.0, high, _value(some), "warm" if kind in DEFECTS else "accent")
        for kind, some in whole.kinds.items()
        for low, high in [some.interval]
    ]
    drawn = figures.spans(spans, "Accepted of what is faithful, refused of each kind of defect.")
    names = [f"#{flat(name, 20)}" for name, _ in languages] if len(groups) > 1 else []
    table = Table(
        ("", "#rewrites", "#all", *names, *(["#AUC"] if learned else [])),
        rows,
        f"With 95 % intervals. AUC is the chance that a faithful rewrite has a higher `{found.learned}` than one with "
        "the defect."
        if learned
        else "With 95 % intervals.",
    )
    return Section("kinds", "By kind", "", [drawn, table])


def _curve(found: Outcome) -> Section:
    configured = limit(found.learned, found.config)
    if not all(sides(found.results)):
        return Section("threshold", "The threshold", "A curve needs faithful rewrites and defects.")
    if not any(verdict.check == found.learned for result in found.results for verdict in result.verdicts):
        told = f"`{found.learned}` was not asked: `rephrase.alignment.{found.learned}_model` names no model."
        return Section("threshold", "The threshold", told)
    points = [point for point in found.curve() if point.faithful.value is not None and point.defects.value is not None]
    (now,) = found.curve([configured])
    line = Line("other thresholds", [_x(point) for point in points[::-1]], [_y(point) for point in points[::-1]])
    drawn = figures.lines(
        [line, Line(f"configured: {configured:g}", [_x(now)], [_y(now)], "warm")],
        "defects accepted",
        f"Faithful rewrites accepted (upwards) against defects accepted, over every `{found.threshold}`; "
        "the other checks are as configured.",
        x_format=words.percent,
        y_format=words.percent,
        y_range=(0.0, 1.0),
    )
    rows = [
        [
            f"**{point.threshold:g}** configured" if point.threshold == configured else f"{point.threshold:g}",
            _told(point.faithful),
            _told(point.defects),
            _area(point.balanced),
        ]
        for point in found.table
    ]
    columns = (f"#{found.threshold}", "#faithful accepted", "#defects accepted", "#balanced accuracy")
    caption = "A higher threshold costs segments and lets less through."
    return Section("threshold", "The threshold", "", [drawn, Table(columns, rows, caption)])


def _checks(found: Outcome) -> Section:
    rows = [
        [
            f"`{check.check}`",
            words.plain(limit(check.check, found.config)),
            *map(_percent, (check.faithful, check.faithful_alone, check.defects, check.defects_alone)),
        ]
        for check in found.checks
    ]
    columns = ("check", "limit", "#of faithful", "#alone", "#of defects", "#alone")
    caption = (
        "Per cent that each check refuses; *alone* is what no other check refuses: of the faithful its price, of the "
        "defects its worth. Checks that refuse nothing are left out."
    )
    return Section("checks", "Refused by", "", [Table(columns, rows, caption)])


def _domains(found: Outcome) -> Section:
    groups, learned = list(found.by("domain").items()), found.whole.auc is not None
    rows = [
        [Verbatim(flat(name, 40)), _told(some.faithful), _told(some.defects), *([_area(some.auc)] if learned else [])]
        for name, some in groups[:MOST]
    ]
    left = f" {len(groups) - MOST} smaller domains are left out." if len(groups) > MOST else ""
    columns = ("domain", "#faithful accepted", "#defects refused", *(["#AUC"] if learned else []))
    return Section("domains", "By domain", "", [Table(columns, rows, f"The largest first.{left}")])


def _real(found: Outcome) -> list[Section]:
    if not found.real:
        return []
    accepted = share(found.real, lambda result: result.accepted)
    refused = Counter(check for result in found.real for check in result.refused_by)
    told = f" Refused by {', '.join(f'{name} {count}' for name, count in refused.most_common())}." if refused else ""
    summary = (
        f"Segments of {flat(found.corpus)} beside themselves, all of which must pass every check but `copied`: "
        f"{_told(accepted)} do.{told}"
    )
    return [Section("real", "Real text", summary)]


def _sample(result: Result) -> Block:
    row = result.row
    refusals = "; ".join(f"{verdict.check}: {verdict.why}" for verdict in result.verdicts if not verdict.passed)
    title = "faithful rewrite" if row.kind == FAITHFUL else f"rewrite, {row.kind}"
    scored = next((f"{one.check} {one.score:.2f}" for one in result.verdicts if one.check == result.learned), "")
    told = [row.id, row.domain, scored, row.wrong, refusals]
    note = " · ".join(flat(part, 300) for part in told if part)
    return Pair((Verbatim("source"), Verbatim(title)), (visible(row.source), visible(row.rewrite)), Verbatim(note))


def _x(point: Point) -> float:
    return point.defects.value or 0.0


def _y(point: Point) -> float:
    return point.faithful.value or 0.0


def _told(share: Share | None) -> str:
    if share is None or share.value is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.1f} % ({100 * low:.0f}–{100 * high:.0f}; {share.of})"


def _brief(share: Share | None) -> str:
    if share is None or share.value is None:
        return "–"
    low, high = share.interval
    return f"{100 * share.value:.1f} ({100 * low:.0f}–{100 * high:.0f})"


def _percent(share: Share) -> str:
    return "–" if share.value is None else f"{100 * share.value:.1f}" if share.count else "·"


def _value(share: Share) -> str:
    return "–" if share.value is None else f"{100 * share.value:.1f} %"


def _interval(share: Share) -> str:
    low, high = share.interval
    return f"{100 * low:.0f} to {100 * high:.0f} %, of {share.of}"


def _area(area: float | None) -> str:
    return "–" if area is None else f"{area:.3f}"
