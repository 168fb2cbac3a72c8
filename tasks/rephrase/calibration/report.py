"""A calibration as blocks: for a page, for markdown, and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from model.visible import flat, visible
from tasks.rephrase.calibration.cases import TRUE
from tasks.rephrase.calibration.corruptions import KINDS
from tasks.rephrase.calibration.figures import ALL, TARGET_TRUE, TARGETS, Share
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.calibration.outcome import REPORTED, Outcome
from tasks.report import figures, words
from tasks.report.blocks import Block, Chart, Charts, Document, Fold, Headline, Pair, Section, Table, Verbatim
from tasks.report.charts import Line

READ = "tune"
"""The half whose failures may be read: the other stays unseen by whoever improves a check."""

MOST = 12
"""Failures of a kind that the page shows."""

NAMES = {"tune": "tune half", "test": "test half", "corpus": "real text"}


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
"""Kinds of corruption as heads of narrow columns."""


def page(found: Outcome) -> Document:
    """All of it: tables, curves, and what goes wrong of the tune half."""
    return _document(found, [*_tables(found), _scores(found), *_failures(found)])


def tables(found: Outcome) -> Document:
    """The tables alone."""
    return _document(found, _tables(found))


def overview(found: Outcome, half: str, whole: bool) -> Document:
    """The stack, and what one half says of each check. Not `whole`: cases were asked up to their first refusal, which
    says nothing of single checks."""
    single = [_checks(found, half), _thresholds(found)] if whole and half in found.groups else []
    return _document(found, [_stack(found, whole), *single, _groups(found)])


def failures(results: Sequence[Result], kind: str, half: str, count: int) -> Section:
    """The refused true rewrites, or the corruptions of `kind` that pass, source beside rewrite."""
    asked = [result for result in results if result.case.kind == kind]
    wrong = [result for result in asked if result.accepted != (kind == TRUE)]
    title = "True rewrites that are refused" if kind == TRUE else f"{kind.replace('_', ' ').capitalize()} that passes"
    summary = f"{len(wrong)} of {len(asked)} of the {half} half."
    return Section(f"failures-{kind}", title, summary, [_sample(result) for result in wrong[:count]])


def _document(found: Outcome, sections: Sequence[Section]) -> Document:
    reported = found.groups.get(REPORTED) or next(iter(found.groups.values()))
    pairs = len({result.case.id for result in found.results})
    cards = [
        (_value(reported.acceptance), "true rewrites accepted", f"{100 * TARGET_TRUE:.0f} % promised"),
        *(
            (_value(reported.recall[kind]), f"{kind.replace('_', ' ')} refused", f"{100 * target:.0f} % promised")
            for kind, target in TARGETS.items()
            if kind in reported.recall
        ),
    ]
    broken = f" **Not kept: {'; '.join(found.broken)}.**" if found.broken else ""
    if REPORTED in found.groups and not found.broken:
        broken = " Every promise is kept."
    if found.left_out:
        broken = (
            f" Left out: {', '.join(found.left_out)}, which ask the network. What is promised of corruptions holds for "
            "the whole stack and was not judged."
        )
    real = f", and {len({r.case.id for r in found.real})} segments of {flat(found.corpus)}" if found.real else ""
    return Document(
        title="How well the alignment check tells a faithful rewrite from a corrupted one",
        subtitle=f"{words.count(pairs)} pairs, {words.count(len(found.results))} cases{real}.",
        lead="Every figure is of the whole stack without NLI and judge unless it says otherwise, with its Wilson 95 % "
        f"interval. Thresholds are chosen on the tune half; promises are held to on the **test half**.{broken}",
        headline=Headline(cards),
        sections=sections,
    )


def _tables(found: Outcome) -> list[Section]:
    return [
        _stack(found),
        *(_checks(found, name) for name in found.groups if name != READ),
        _thresholds(found),
        _groups(found),
    ]


def _stack(found: Outcome, whole: bool = True) -> Section:
    rows = [
        ["true rewrites accepted", f"{100 * TARGET_TRUE:.0f} %", *_cells(found, lambda f: f.acceptance, TARGET_TRUE)]
    ]
    for kind in KINDS:
        if any(kind in some.recall for some in found.groups.values()):
            target = TARGETS.get(kind)
            told = "" if target is None else f"{100 * target:.0f} %"
            cells = _cells(found, lambda f, kind=kind: f.recall.get(kind, Share(0, 0)), target)
            rows.append([f"{kind.replace('_', ' ')} refused", told, *cells])
    for kind in KINDS:
        if any(kind in some.clean for some in found.groups.values()):
            cells = _cells(found, lambda f, kind=kind: f.clean.get(kind, Share(0, 0)), None)
            rows.append([f"{kind.replace('_', ' ')}, where the true rewrite passes", "", *cells])
    rows.append(["refused that is corrupted (precision)", "", *_cells(found, lambda f: f.precision, None)])
    if whole:
        rows.append(["AUC", "", *(_area(some.auc[ALL]) for some in found.groups.values())])
    columns = ("", "#promised", *(f"#{NAMES[name]}" for name in found.groups))
    blocks: list[Block] = [Table(columns, rows, "Share, its 95 % interval, and of how many.")]
    reported = found.groups.get(REPORTED)
    if reported:
        spans = [("true accepted", *_span(reported.acceptance), "accent")]
        spans += [
            (kind.replace("_", " "), *_span(share), "warm") for kind, share in reported.recall.items() if share.of
        ]
        blocks.insert(0, figures.spans(spans, "The test half: accepted of true rewrites, refused of each corruption."))
    return Section("stack", "The whole stack", "", blocks)


def _checks(found: Outcome, name: str) -> Section:
    some = found.groups[name]
    kinds = list(some.recall)
    rows = [
        [
            f"`{check.check}`",
            _percent(check.rejects_true),
            _percent(check.alone_true),
            _percent(check.precision),
            *(_percent(check.rejects[kind]) for kind in kinds),
        ]
        for check in some.checks
        if not check.idle
    ]
    head = [f"#{SHORT.get(kind, kind)}" for kind in kinds]
    idle = [check.check for check in some.checks if check.idle]
    silent = f" Nothing is refused by {', '.join(idle)}." if idle else ""
    refused = Table(
        ("check", "#true", "#alone", "#prec.", *head),
        rows,
        "Per cent that each check refuses: of the true rewrites, of those that no other check refuses, and of each "
        f"kind of corruption. Precision (prec.) is the share of corruptions among what it refuses.{silent}",
    )
    areas = Table(
        ("check", "#all", *head),
        [
            *(
                [f"`{check.check}`", *(_area(check.auc[kind]) for kind in (ALL, *kinds))]
                for check in some.checks
                if check.tells
            ),
            ["**stack**", *(_area(some.auc[kind]) for kind in (ALL, *kinds))],
        ],
        "Area under the curve: the chance that a true rewrite scores higher than a corrupted one; 0.5 tells nothing. "
        "The stack's score is the least, over the checks, of the share of true rewrites that score no higher. Left out "
        "are checks whose score tells nothing apart.",
    )
    return Section(f"checks-{name}", f"Each check, {NAMES[name]}", "", [refused, areas])


def _thresholds(found: Outcome) -> Section:
    rows = [
        [
            f"`{tuned.threshold.name}`" if place == 0 else "",
            kind,
            f"{value:g}",
            _percent(refused["tune"][0]),
            _percent(refused["test"][0]),
            _percent(refused["test"][1]),
        ]
        for tuned in found.tuned
        for place, (kind, value, refused) in enumerate(
            (("configured", tuned.configured, tuned.before), ("chosen", tuned.chosen, tuned.after))
        )
    ]
    caption = (
        f"Chosen is the strictest value that refuses at most {100 * found.budget:g} % of the true rewrites of the tune "
        "half. Per cent refused by the threshold alone."
    )
    columns = ("threshold", "", "#value", "#true, tune", "#true, test", "#corrupted, test")
    return Section("thresholds", "Thresholds", "", [Table(columns, rows, caption)])


def _groups(found: Outcome) -> Section:
    names = [name for name in found.groups if name != "corpus"]
    rows = []
    for group in ("style", "domain", "language"):
        values = sorted({value for name in names for value in found.groups[name].by[group]})
        for place, value in enumerate(values):
            shares = [found.groups[name].by[group].get(value, Share(0, 0)) for name in names]
            rows.append([group if place == 0 else "", Verbatim(flat(value)), *(_told(share) for share in shares)])
    columns = ("true rewrites by", "", *(f"#{NAMES[name]}" for name in names))
    return Section("groups", "Acceptance of true rewrites", "", [Table(columns, rows)])


def _scores(found: Outcome) -> Section:
    """How the scores of the checks that give a number are distributed."""
    drawn = [chart for tuned in found.tuned if (chart := _curve(found, tuned.threshold.check, tuned.configured))]
    unique = {chart.title: chart for chart in drawn}
    summary = "Share of the test half that scores at most so much: true rewrites, and each kind of corruption pale."
    return Section("scores", "Scores", summary, [Charts(list(unique.values()))] if unique else [])


def _curve(found: Outcome, check: str, configured: float) -> Chart | None:
    series = []
    for kind in (*KINDS, TRUE):
        scores = sorted(
            score
            for result in found.results
            if result.case.kind == kind and result.case.half == REPORTED and (score := result.score(check)) is not None
        )
        if len(scores) > 1 and scores[0] < scores[-1]:
            ys = [(place + 1) / len(scores) for place in range(len(scores))]
            colour = "accent" if kind == TRUE else "warm"
            series.append(Line("true" if kind == TRUE else kind, scores, ys, colour, faint=kind != TRUE))
    if not series or series[-1].label != "true":
        return None
    caption = f"Configured: {configured:g}."
    return figures.lines(
        series, "score", caption, check, width=figures.HALF, x_format=words.figure, y_format=words.percent
    )


def _failures(found: Outcome) -> Iterator[Section]:
    mine = [result for result in found.results if result.case.half == READ]
    for kind in (TRUE, *KINDS):
        if any(result.case.kind == kind for result in mine):
            section = failures(mine, kind, READ, MOST)
            fold = [Fold(f"{len(section.blocks)} to read", section.blocks)] if section.blocks else []
            yield replace(section, blocks=fold, group="What goes wrong")


def _sample(result: Result) -> Block:
    case = result.case
    titles = (Verbatim("source"), Verbatim("rewrite" if case.faithful else "corrupted rewrite"))
    # why a true rewrite is refused, or what was done to a corrupted one
    refusals = "; ".join(f"{verdict.check}: {verdict.why}" for verdict in result.verdicts if not verdict.passed)
    why = flat(refusals if case.faithful else case.why, 300)
    note = Verbatim(f"{flat(case.id)} · {flat(case.style)} · {why}")
    return Pair(titles, (visible(case.source), visible(case.rewrite)), note)


def _cells(found: Outcome, of, target: float | None) -> list[str]:
    return [_told(of(some), target) for some in found.groups.values()]


def _told(share: Share, target: float | None = None) -> str:
    if share.value is None:
        return "–"
    low, high = share.interval
    mark = "" if target is None else "✓ " if share.value >= target else "✗ "
    return f"{mark}{100 * share.value:.1f} % ({100 * low:.0f}–{100 * high:.0f}; {share.of})"


def _span(share: Share) -> tuple[float, float, float, str]:
    low, high = share.interval
    return low, share.value or 0.0, high, f"{_value(share)} of {share.of}"


def _value(share: Share) -> str:
    return "–" if share.value is None else f"{100 * share.value:.1f} %"


def _percent(share: Share) -> str:
    return "–" if share.value is None else "·" if not share.count else f"{100 * share.value:.1f}"


def _area(area: float | None) -> str:
    return "–" if area is None else f"{area:.3f}"
