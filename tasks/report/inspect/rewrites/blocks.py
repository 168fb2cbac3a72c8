"""Rewrites as blocks, for their inspection and for the report: rates, checks, scores, source beside rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from model.visible import flat, visible
from tasks.artifact import Artifact
from tasks.report import figures, words
from tasks.report.blocks import Block, Chart, Compared, Heat, Score, Spark, Table, Verbatim
from tasks.report.inspect.rewrites.attempts import Attempt, Cell, Scores, Survey, known
from tasks.report.inspect.rewrites.difference import Piece, difference
from tasks.report.inspect.rewrites.diversity import diversity as measured
from tasks.report.inspect.rewrites.limits import Limit, Limits

LEGEND = (
    "Red: lost. Green: new. Blue, underlined: **copied** in a run of six or more words. On a ground (in a terminal "
    "without colours `[-lost-]` and `{+new+}`): a number, a name, a negation, a formula or code that differs, or what "
    "the check names. Common words are not marked."
)


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


def rate_table(title: str, cells: Mapping[str, Cell]) -> Table:
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


def checks(found: Survey, limits: Limits) -> Table:
    """One row a check: what reached it, what it refused, the typical score of that, and how its scores lie."""
    refused = found.whole().refused
    rows: list[list[str | Spark]] = []
    for name in known(found):
        scores, limit = found.scores.get(name, Scores()), limits.get(name)
        typical, count = scores.median(True), refused.get(name, 0)
        reached = scores.total() or count
        rows.append(
            [
                f"[{words.unmarked(name)}](#{words.anchor(f'check-{name}')})",
                words.count(reached),
                words.count(count),
                words.share(count / max(reached, 1)),
                "–" if typical is None else f"{typical:.2f}",
                (limit.words() or "–") + ("*" if limit.by_style or limit.by_detail else ""),
                Spark(*scores.bins(16), limit.least, limit.most),
            ]
        )
    caption = (
        "Typical: the median score of what it refused. Columns grow with the square root of the count. *: some styles "
        "or levels of detail have a threshold of their own, which stands beside each of their scores."
    )
    return Table(("check", "#reached", "#refused", "#share", "#typical", "#threshold", "scores"), rows, caption)


def diversity(artifact: Artifact) -> Iterator[Block]:
    """How different the accepted rewrites are from their sources, and those of one source from one another."""
    found = measured(artifact)
    several = f"{words.count(found.documents)} sources with several rewrites"
    rows = [
        ("runs of four words that the source does not have", found.new, words.share),
        (f"runs of four words shared with another rewrite ({several})", found.overlap, words.share),
        ("distance of the embeddings of two rewrites of a source", found.spread, "{:.2f}".format),
    ]
    known = [[name, shown(value)] for name, value, shown in rows if value is not None]
    caption = (
        "Rewrites of one source that share few runs and lie near each other say the same in other words; many shared "
        "runs (of which self-BLEU is made) are copies of one another, a great distance means that they say different "
        "things."
        if found.documents
        else ""
    )
    if known:
        yield Table(("how different the accepted rewrites are", "#mean"), known, caption)


def _share(cell: Cell | None) -> tuple[float, str] | None:
    if cell is None or not cell.segments:
        return None
    return cell.acceptance_rate, f"{words.share(cell.acceptance_rate)} of {words.count(cell.segments)}"


def histogram(limit: Limit, scores: Scores) -> Chart | None:
    """The scores of one check with its threshold; None where all are all or nothing."""
    edges, counts = scores.bins()
    if sum(count > 0 for count in counts) < 3:
        return None
    caption = f"Scores of the {words.count(scores.total())} attempts that reached it."
    if limit.by_style:
        bands = ", ".join(
            f"{words.name(words.unmarked(style))} {a:g} to {b:g}" for style, (a, b) in limit.by_style.items()
        )
        caption += f" Of their own: {bands}."
    return figures.histogram(edges, counts, "score", caption, "", limit.least, limit.most)


def compared(one: Attempt, limits: Limits, place: str, opened: bool) -> Compared:
    """One attempt as a block."""
    found = difference(visible(one.source_text), visible(one.rewrite_text), visible(one.why))
    verdict = "accepted" if one.accepted else f"refused: {flat(one.reason)}"
    manner = [one.style, one.perspective, one.detail]
    tried = f"attempt {one.attempt + 1}" + (f", candidate {one.candidate + 1}" if one.candidate else "")
    where = [place, *manner, one.domain, f"segment {one.index}, {tried}"]
    sentences = (("the source says", one.source_sentence), ("the rewrite says", one.rewrite_sentence))
    where += [f"{who}: {flat(said, 300)}" for who, said in sentences if said]
    why = f" – {flat(one.why, 300)}" if one.why else ""
    trace = (
        f"openk2 lineage {one.source_id} · prompt {one.prompt_hash} · engine {one.engine} · model {one.model} · seed "
        f"{one.seed} · {one.prompt_tokens:,} tokens in, {one.generated_tokens:,} out · ended: {one.finish or '–'}"
    )
    return Compared(
        title=Verbatim(f"{verdict}{why}"),
        remark=Verbatim(" · ".join(flat(part) for part in where if part)),
        titles=(f"source, {len(one.source_text):,} characters", f"rewrite, {len(one.rewrite_text):,} characters"),
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
    limit = limits.get(name).words(one.style, one.detail)
    plainly = not limit and score == 1 and name != one.reason
    return Score(flat(name), "" if plainly else f"{score:.2f}", limit, name != one.reason)


def _marks(piece: Piece) -> tuple[str, str]:
    kind = "" if piece.kind == "same" else piece.kind
    return piece.text, f"{kind} weighty" if piece.what else kind
