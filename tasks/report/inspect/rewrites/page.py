"""An inspection of rewrites: rates, every check with its scores, and source beside rewrite with what differs marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from model.visible import flat, visible
from tasks.artifact import Artifact
from tasks.report import words
from tasks.report.blocks import (
    Block,
    Choice,
    Code,
    Document,
    Headline,
    Prose,
    Section,
    Verbatim,
)
from tasks.report.inspect.rewrites.attempts import Cell, Scores, Selection, Survey, known, survey
from tasks.report.inspect.rewrites.blocks import LEGEND, checks, compared, diversity, histogram, rates
from tasks.report.inspect.rewrites.limits import SENTENCES, Limits
from tasks.report.inspect.rewrites.whole import Whole

OPEN = 2
"""Samples of each check that stand open."""
ACTIONS = {
    "rewritten": "rewritten",
    "original": "no attempt passed: the original stands in the document",
    "block": "code, table or formula: kept as it is",
    "refused": "no attempt passed, and the document was dropped",
}
"""What became of a segment, in words."""


def page(artifact: Artifact, selection: Selection, count: int, accepted: bool = False) -> Document:
    """What `selection` asks for: `count` refused attempts of every check, nearest to its threshold first, and of every
    style `count` accepted ones, lowest margin first (`accepted`: these alone)."""
    limits = Limits.of(artifact)
    found = survey(artifact, selection, 0 if accepted else count, 0 if selection.check else count, styles=True)
    checked = [name for name in known(found) if not selection.check or name == selection.check]
    rest = [_accepted(found, limits)] if found.nearest.get("") else []
    sections = [_rates(artifact, found, limits), *rest, *(_check(found, limits, name) for name in checked)]
    return _document(artifact, found, selection, sections, _choices(found, checked))


def overview(artifact: Artifact, selection: Selection) -> Document:
    """The rates and the checks alone."""
    found = survey(artifact, selection)
    return _document(artifact, found, selection, [_rates(artifact, found, Limits.of(artifact))])


def check_section(artifact: Artifact, selection: Selection, count: int) -> Section:
    """The check that `selection` names: what it refused, nearest to its threshold first."""
    section = _check(survey(artifact, selection, count), Limits.of(artifact), selection.check)
    return replace(section, blocks=[Prose(LEGEND), *section.blocks])


def accepted_section(artifact: Artifact, selection: Selection, count: int) -> Section:
    """Accepted segments, those that only just passed first."""
    return _accepted(survey(artifact, selection, 0, count), Limits.of(artifact))


def whole_document(artifact: Artifact, wholes: Sequence[Whole]) -> Document:
    """One document: every segment with its attempts, and the joined text."""
    limits = Limits.of(artifact)
    first = wholes[0]
    actions = [segment.action for whole in wholes for segment in whole.segments]
    tried = [one for whole in wholes for segment in whole.segments for one in segment.attempts]
    figures_ = [
        (words.count(len(wholes)), "rewrites", f"{sum(bool(whole.rewrite_id) for whole in wholes)} accepted"),
        (words.count(len(actions)), "segments", f"{actions.count('rewritten')} rewritten"),
        (words.count(len(tried)), "attempts", f"{sum(one.accepted for one in tried)} accepted"),
    ]
    facts = " · ".join(f"{name} {flat(value)}" for name, value in first.facts)
    return Document(
        title="One document, rewritten",
        subtitle=Verbatim(f"{flat(first.source_id)} {facts}"),
        lead=LEGEND,
        headline=Headline(figures_),
        sections=[_whole(whole, limits) for whole in wholes],
    )


def _whole(whole: Whole, limits: Limits) -> Section:
    actions = [segment.action for segment in whole.segments]
    counts = ", ".join(f"{actions.count(action)} {action}" for action in ACTIONS if action in actions)
    blocks: list[Block] = [Prose(f"{len(actions)} segments: {counts}." if counts else "Nothing was attempted.")]
    for segment in whole.segments:
        said = ACTIONS.get(segment.action, words.unmarked(segment.action))
        blocks.append(Prose(f"**Segment {segment.index}**: {said}."))
        for number, one in enumerate(segment.attempts, start=1):
            place = f"attempt {number} of {len(segment.attempts)}"
            blocks.append(compared(one, limits, place, opened=one.accepted or number == len(segment.attempts)))
        if not segment.attempts:
            blocks.append(Code(visible(segment.source) or "(its text is in the corpus)"))
    if whole.text:
        blocks += [Prose("**The joined text**"), Code(visible(whole.text))]
    name = f"rewrite {whole.rewrite_id}" if whole.rewrite_id else "not accepted"
    summary = Verbatim(f"{flat(name)}. openk2 lineage {flat(whole.rewrite_id or whole.source_id)}")
    return Section(words.anchor(f"style-{whole.style}"), flat(words.name(whole.style)), summary, blocks)


def _document(
    artifact: Artifact, found: Survey, selection: Selection, sections: Sequence[Section], choices: Sequence[Choice] = ()
) -> Document:
    narrowed = [f"{name} {value}" for name in ("check", "style", "domain") if (value := getattr(selection, name))]
    only = f" Only {', '.join(narrowed)}." if narrowed else ""
    return Document(
        title="What was rewritten, and what was refused",
        subtitle=Verbatim(visible(f"{artifact.name} {artifact.fingerprint}.{only}")),
        lead="Each check with its threshold, how its scores are distributed, and source beside rewrite, **those "
        "nearest to the threshold first**: there a check is right or wrong.",
        headline=Headline(_headline(found.whole())),
        sections=sections,
        choices=choices,
    )


def _rates(artifact: Artifact, found: Survey, limits: Limits) -> Section:
    if not found.whole().segments:
        return Section("rates", "Rates", "No attempt was made that fits: there is nothing to look at.")
    more = Prose(
        "`openk2 inspect rewrites CHECK` shows what a check refused, nearest to its threshold first; `--accepted` what "
        "passed, lowest margin first."
    )
    return Section("rates", "Rates", "", [*rates(found), checks(found, limits), *diversity(artifact), more])


def _headline(whole: Cell) -> list[tuple[str, str, str]]:
    """The rates of a whole artifact as large numbers."""
    first = f"{words.share(whole.first_rate)} of the segments at first"
    return [
        (words.share(whole.acceptance_rate), "of the attempts accepted", f"{words.count(whole.segments)}; {first}"),
        (words.share(whole.retry_rate), "of the segments retried", f"{words.count(whole.asked)} segments"),
        (words.share(whole.fallback_rate), "of the segments given up", f"{words.count(whole.failed)} segments"),
        (words.count(whole.documents), "documents accepted", f"{words.count(whole.fallbacks)} segments not rewritten"),
    ]


def _choices(found: Survey, checks: Sequence[str]) -> list[Choice]:
    refused = found.whole().refused
    values = (
        ("style", "style", [flat(name) for name in found.by(0)]),
        ("domain", "domain", [flat(name) for name in found.by(1) if name]),
        ("check", "refused by", [flat(name) for name in checks if refused.get(name)]),
        ("verdict", "verdict", ["accepted", "refused"]),
    )
    return [Choice(key, label, those) for key, label, those in values if len(those) > 1]


def _accepted(found: Survey, limits: Limits) -> Section:
    attempts = found.nearest.get("", [])
    summary = f"What every check let through, those that only just passed first. {LEGEND}"
    total = words.count(found.whole().accepted)
    blocks = [
        compared(one, limits, f"{place} of {total}", opened=place <= 2 * OPEN)
        for place, one in enumerate(attempts, start=1)
    ]
    return Section("accepted", "Accepted", summary, blocks, group="Samples")


def _check(found: Survey, limits: Limits, name: str) -> Section:
    limit, scores = limits.get(name), found.scores.get(name, Scores())
    count = found.whole().refused.get(name, 0)
    typical = scores.median(True)
    said = [f"**{words.count(count)}** refused of {words.count(max(scores.total(), count))} that reached it"]
    if typical is not None:
        said.append(f"{typical:.2f} is the typical score of those")
    if limit.words():
        said.append(f"threshold {limit.words()}")
    if limit.field:
        said.append(f"set by `{words.unmarked(limit.field)}`")
    blocks: list[Block] = [Prose(f"{', '.join(said)}.")]
    by_style = [(cell.refused.get(name, 0), style) for style, cell in found.by(0).items()]
    if refused := ", ".join(
        f"{words.unmarked(style)} {words.count(n)}" for n, style in sorted(by_style, reverse=True) if n
    ):
        blocks.append(Prose(f"Refused by style: {refused}."))
    if chart := histogram(limit, scores):
        blocks.append(chart)
    blocks += [
        compared(one, limits, f"{place} of {words.count(count)}", opened=place <= OPEN)
        for place, one in enumerate(found.nearest.get(name, []), start=1)
    ]
    return Section(words.anchor(f"check-{name}"), flat(name), SENTENCES.get(name, ""), blocks, group="Checks")
