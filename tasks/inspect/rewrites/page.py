"""Rewrites as one HTML page that loads nothing and runs nothing: rates, every check with its scores, and source beside
rewrite with what differs marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tasks.artifact import Artifact
from tasks.inspect.rewrites.attempts import Attempt, Cell, Scores, Selection, Survey, known, survey
from tasks.inspect.rewrites.difference import Piece, difference
from tasks.inspect.rewrites.limits import Limit, Limits, sentence
from tasks.inspect.rewrites.terminal import ACTIONS, threshold
from tasks.inspect.rewrites.whole import Whole
from tasks.inspect.visible import flat, visible
from tasks.report import figures, html, words
from tasks.report.blocks import (
    Block,
    Chart,
    Choice,
    Code,
    Compared,
    Document,
    Filters,
    Headline,
    Heat,
    Prose,
    Score,
    Section,
    Table,
    Verbatim,
)

OPEN = 2
"""Samples of each check that stand open."""
LEGEND = (
    "Red: lost. Green: new. Blue, dotted: **copied** in a run of six or more words. On a ground: a number, a name, a "
    "negation, a formula or code that differs, or what the check names. Common words are not marked."
)


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


def rates(found: Survey) -> Iterator[Block]:
    """Acceptance, retries and fallbacks by style and by domain."""
    domains = list(found.by(1))
    rows = []
    for style, cell in found.by(0).items():
        own = [found.cells.get((style, domain)) for domain in domains]
        cells = [_share(one) for one in [*own, cell]]
        rows.append((Verbatim(flat(words.name(style)) or "–"), cells))
    if len(rows) > 1:
        whole = [*found.by(1).values(), found.whole()]
        rows.append((Verbatim("all"), [_share(one) for one in whole]))
    columns = [*(Verbatim(flat(domain) or "–") for domain in domains), Verbatim("all")]
    if rows:
        caption = "Accepted share of the attempts, and how many attempts that is of."
        yield Heat("accepted, by style and domain", columns, rows, caption)
    for place, title in ((0, "style"), (1, "domain")):
        yield rate_table(title, found.by(place))


def rate_table(title: str, cells: dict[str, Cell]) -> Table:
    """One row a style or a domain."""
    columns = (title, "#attempts", "#accepted", "#at first", "#retried", "#given up", "#original kept", "#documents")
    rows = [
        [
            Verbatim(flat(words.name(name)) or "–"),
            words.count(cell.segments),
            *map(words.share, (cell.acceptance_rate, cell.first_rate, cell.retry_rate, cell.fallback_rate)),
            words.count(cell.fallbacks),
            words.count(cell.documents),
        ]
        for name, cell in cells.items()
    ]
    caption = (
        "Accepted: of the attempts. At first: of the segments at their first attempt. Given up: no attempt passed; the "
        "original stands in the document (original kept), or the document was dropped."
        if title == "style"
        else ""
    )
    return Table(columns, rows, caption)


def _share(cell: Cell | None) -> tuple[float, str] | None:
    if cell is None or not cell.segments:
        return None
    return cell.acceptance_rate, f"{words.share(cell.acceptance_rate)} of {words.count(cell.segments)}"


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
        said.append(f"set by `{_plain(limit.where)}`")
    blocks: list[Block] = [Prose(f"{', '.join(said)}.")]
    if chart := histogram(name, limit, scores):
        blocks.append(chart)
    blocks += [
        compared(one, limits, f"{place} of {words.count(count)}", opened=place <= OPEN)
        for place, one in enumerate(found.nearest.get(name, []), start=1)
    ]
    return Section(_key("check", name), flat(name), sentence(name), blocks, group="Checks")


def histogram(name: str, limit: Limit, scores: Scores, width: int = 0) -> Chart | None:
    """The scores of one check with its threshold; None where all are all or nothing."""
    edges, counts = scores.bins()
    if sum(count > 0 for count in counts) < 3:
        return None
    least, most = limit.least, limit.most
    refused = "below" if least is not None else "above" if most is not None else ""
    caption = f"Scores of the {words.count(scores.total())} attempts that reached it."
    if limit.by_style:
        bands = ", ".join(f"{words.name(_plain(style))} {a:g} to {b:g}" for style, (a, b) in limit.by_style.items())
        caption += f" Of their own: {bands}."
    options = {"width": width} if width else {}
    return figures.histogram(
        edges,
        counts,
        "score",
        caption,
        f"{flat(words.name(name))}" if width else "",
        limit=least if least is not None else most,
        refused=refused,
        ceiling=most if least is not None else None,
        **options,
    )


def compared(one: Attempt, limits: Limits, place: str, opened: bool) -> Compared:
    """One attempt as a block."""
    found = difference(visible(one.source), visible(one.rewrite), visible(one.why))
    verdict = "accepted" if one.accepted else f"refused: {flat(one.reason)}"
    where = [place, one.style, one.domain, f"segment {one.index}, attempt {one.attempt + 1}"]
    why = f" – {flat(one.why, 300)}" if one.why else ""
    trace = (
        f"openk2 lineage {one.source_id} · prompt {one.prompt_hash} · engine {one.engine} · model {one.model} · seed "
        f"{one.seed} · {one.prompt_tokens:,} tokens in, {one.generated_tokens:,} out · ended: {one.finish or '–'}"
    )
    return Compared(
        title=Verbatim(f"{verdict}{why}"),
        remark=Verbatim(" · ".join(flat(part) for part in where if part)),
        titles=(f"source, {len(one.source):,} characters", f"rewrite, {len(one.rewrite):,} characters"),
        halves=([_marks(piece) for piece in found.source], [_marks(piece) for piece in found.rewrite]),
        scores=[_score(one, limits, name, score) for name, score in one.scores.items()],
        note=Verbatim(flat(trace)),
        good=one.accepted,
        tags=(
            ("style", flat(one.style)),
            ("domain", flat(one.domain)),
            ("check", flat(one.reason)),
            ("verdict", "accepted" if one.accepted else "refused"),
        ),
        open=opened,
    )


def _score(one: Attempt, limits: Limits, name: str, score: float | None) -> Score:
    if score is None:
        return Score(flat(name), "", "", None)
    limit = threshold(limits.get(name), one.style)
    plainly = not limit and score == 1 and name != one.reason
    return Score(flat(name), "" if plainly else f"{score:.2f}", limit, name != one.reason)


def _marks(piece: Piece) -> tuple[str, str]:
    kind = "" if piece.kind == "same" else piece.kind
    return piece.text, f"{kind} weighty" if piece.what else kind


def _key(kind: str, name: str) -> str:
    return f"{kind}-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _plain(text: str) -> str:
    """A name as text of our own: no markup can stand in it."""
    return re.sub(r"[^\w .:/-]", "?", flat(text))
