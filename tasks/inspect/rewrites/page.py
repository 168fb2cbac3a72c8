"""Rewrites as one HTML page that loads nothing and runs nothing: rates, every check with its scores, and source beside
rewrite with what differs marked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from model.visible import flat, visible
from tasks.artifact import Artifact
from tasks.inspect.rewrites.attempts import Cell, Scores, Selection, Survey, known, survey
from tasks.inspect.rewrites.blocks import LEGEND, compared, histogram, plain, rates
from tasks.inspect.rewrites.limits import Limits, sentence
from tasks.inspect.rewrites.terminal import ACTIONS, threshold
from tasks.inspect.rewrites.whole import Whole
from tasks.report import html, words
from tasks.report.blocks import (
    Block,
    Choice,
    Code,
    Document,
    Filters,
    Headline,
    Prose,
    Section,
    Verbatim,
)

OPEN = 2
"""Samples of each check that stand open."""


def build(artifact: Artifact, limits: Limits, selection: Selection, count: int, accepted: bool = False) -> str:
    """The page over what `selection` asks for: `count` refused attempts of every check, nearest to its threshold first,
    and of every style `count` accepted ones, lowest margin first (`accepted`: these alone)."""
    found = survey(artifact, selection, 0 if accepted else count, 0 if selection.check else count, styles=True)
    return html.page(_document(artifact, found, limits, selection))


def build_document(artifact: Artifact, limits: Limits, wholes: Sequence[Whole]) -> str:
    """The page of one document: every segment with its attempts, and the joined text."""
    first = wholes[0]
    actions = [segment.action for whole in wholes for segment in whole.segments]
    tried = [one for whole in wholes for segment in whole.segments for one in segment.attempts]
    figures_ = [
        (words.count(len(wholes)), "rewrites", f"{sum(bool(whole.rewrite_id) for whole in wholes)} accepted"),
        (words.count(len(actions)), "segments", f"{actions.count('rewritten')} rewritten"),
        (words.count(len(tried)), "attempts", f"{sum(one.accepted for one in tried)} accepted"),
    ]
    facts = " · ".join(f"{name} {flat(value)}" for name, value in first.facts)
    return html.page(
        Document(
            title="One document, rewritten",
            subtitle=Verbatim(f"{flat(first.source_id)} {facts}"),
            lead=LEGEND,
            headline=Headline(figures_),
            sections=[_whole(whole, limits) for whole in wholes],
        )
    )


def _whole(whole: Whole, limits: Limits) -> Section:
    blocks: list[Block] = []
    for segment in whole.segments:
        said = ACTIONS.get(segment.action, ("", flat(segment.action)))[1]
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
    return Section(_key("style", whole.style), flat(words.name(whole.style)), summary, blocks)


def _document(artifact: Artifact, found: Survey, limits: Limits, selection: Selection) -> Document:
    whole = found.whole()
    narrowed = [f"{name} {value}" for name in ("check", "style", "domain") if (value := getattr(selection, name))]
    only = f" Only {', '.join(narrowed)}." if narrowed else ""
    checks = [name for name in known(found) if not selection.check or name == selection.check]
    rest = [_accepted(found, limits)] if found.nearest.get("") else []
    return Document(
        title="What was rewritten, and what was refused",
        subtitle=Verbatim(visible(f"{artifact.name} {artifact.fingerprint}.{only}")),
        lead="Each check with its threshold, how its scores are distributed, and source beside rewrite, **those "
        "nearest to the threshold first**: there a check is right or wrong.",
        headline=Headline(headline(whole)),
        sections=[
            Section("rates", "Rates", "", list(rates(found))),
            *rest,
            *(_check(found, limits, name) for name in checks),
        ],
        filters=_filters(found, checks),
    )


def headline(whole: Cell) -> list[tuple[str, str, str]]:
    """The rates of a whole artifact as large numbers."""
    first = f"{words.share(whole.first_rate)} of the segments at first"
    return [
        (words.share(whole.acceptance_rate), "of the attempts accepted", f"{words.count(whole.segments)}; {first}"),
        (words.share(whole.retry_rate), "of the segments retried", f"{words.count(whole.asked)} segments"),
        (words.share(whole.fallback_rate), "of the segments given up", f"{words.count(whole.failed)} segments"),
        (words.count(whole.documents), "documents accepted", f"{words.count(whole.fallbacks)} segments not rewritten"),
    ]


def _filters(found: Survey, checks: Sequence[str]) -> Filters:
    refused = found.whole().refused
    values = (
        ("style", "style", [flat(name) for name in found.by(0)]),
        ("domain", "domain", [flat(name) for name in found.by(1) if name]),
        ("check", "refused by", [flat(name) for name in checks if refused.get(name)]),
        ("verdict", "verdict", ["accepted", "refused"]),
    )
    return Filters([Choice(key, label, those) for key, label, those in values if len(those) > 1])


def _accepted(found: Survey, limits: Limits) -> Section:
    attempts = found.nearest[""]
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
    if threshold(limit):
        said.append(f"threshold {threshold(limit)}")
    if limit.where:
        said.append(f"set by `{plain(limit.where)}`")
    blocks: list[Block] = [Prose(f"{', '.join(said)}.")]
    if chart := histogram(name, limit, scores):
        blocks.append(chart)
    blocks += [
        compared(one, limits, f"{place} of {words.count(count)}", opened=place <= OPEN)
        for place, one in enumerate(found.nearest.get(name, []), start=1)
    ]
    return Section(_key("check", name), flat(name), sentence(name), blocks, group="Checks")


def _key(kind: str, name: str) -> str:
    return f"{kind}-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
