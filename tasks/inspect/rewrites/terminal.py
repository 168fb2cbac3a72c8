"""Rewrites in a terminal: rates, checks, and source beside rewrite with what differs coloured.

Side by side where there is room, one over the other where there is not. Without colours what differs and is of weight
(numbers, names, negations, formulas, code) stands in `[-lost-]` and `{+new+}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from model.visible import flat, visible
from tasks.artifact import Artifact
from tasks.inspect.rewrites.attempts import Attempt, Cell, Scores, Survey, known
from tasks.inspect.rewrites.difference import Piece, difference
from tasks.inspect.rewrites.limits import ENGINE, Limit, Limits, sentence
from tasks.inspect.rewrites.whole import Whole
from tasks.inspect.terminal import KEPT, REFUSED, sparkline
from tasks.report import words

BESIDE = 100
"""Columns from which source and rewrite stand side by side."""
CUT = 1_400
"""Characters of a text that a sample shows; `--document` shows all."""
STYLES = {"same": "", "copied": "cyan", "lost": "red", "new": "green"}
WEIGHTY = {"lost": "bold white on red", "new": "bold black on green"}
ACTIONS = {
    "rewritten": (KEPT, "rewritten"),
    "original": ("yellow", "no attempt passed: the original stands in the document"),
    "block": ("dim", "code, table or formula: kept as it is"),
    "refused": (REFUSED, "no attempt passed, and the document was dropped"),
}


def overview(found: Survey, artifact: Artifact, limits: Limits) -> Iterator[RenderableType]:
    """Rates by style and by domain, and every check with what it refused."""
    whole = found.whole()
    yield Text.assemble(
        (f"{flat(artifact.name)} {flat(artifact.fingerprint)}", "bold"),
        f": {whole.segments:,} attempts at {whole.asked:,} segments, {whole.accepted:,} accepted "
        f"({words.share(whole.acceptance_rate)} of the attempts, {words.share(whole.final_rate)} of the segments); "
        f"{whole.documents:,} documents",
    )
    if not whole.segments:
        yield Text("No attempt was made that fits: there is nothing to look at.", style="dim")
        return
    for place, title in ((0, "style"), (1, "domain")):
        yield Text("")
        yield _rates(title, found.by(place), whole if place == 0 else None)
    yield Text(
        "accepted: of the attempts. first: of the segments at their first attempt. retried: asked for again. "
        "given up: no attempt passed. original: of those, kept as they were in an accepted document.",
        style="dim",
    )
    yield Text("")
    yield _checks(found, limits)
    yield Text.assemble(
        ("typical: the median of what it refused. ", "dim"),
        ("│", "bold yellow"),
        (" the threshold, ", "dim"),
        ("refused", REFUSED),
        (" and ", "dim"),
        ("passed", KEPT),
        (" side; bars grow with the square root.", "dim"),
    )
    yield Text(
        "`openk2 inspect rewrites CHECK` shows what a check refused, nearest to its threshold first; `--accepted` what "
        "passed, lowest margin first.",
        style="dim",
    )


def _rates(title: str, cells: Mapping[str, Cell], whole: Cell | None) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column(Text(title, style="bold cyan"), min_width=19, max_width=24, overflow="fold")
    for name in ("attempts", "accepted", "first", "retried", "given up", "original", "docs"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    rows = [*cells.items(), *([("all", whole)] if whole and len(cells) > 1 else [])]
    for name, cell in rows:
        rates = (cell.acceptance_rate, cell.first_rate, cell.retry_rate, cell.fallback_rate)
        said = [words.share(rate) for rate in rates]
        counts = [f"{cell.fallbacks:,}", f"{cell.documents:,}"]
        table.add_row(
            Text(flat(name) or "–"), f"{cell.segments:,}", *said, *counts, style="bold" if name == "all" else ""
        )
    return table


def _checks(found: Survey, limits: Limits) -> Table:
    refused = found.whole().refused
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column(Text("check", style="bold cyan"), min_width=19, max_width=24, overflow="fold")
    for name in ("reached", "refused", "share", "typical", "threshold"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in known(found):
        scores, limit = found.scores.get(name, Scores()), limits.get(name)
        typical, count = scores.median(True), refused.get(name, 0)
        reached = scores.total()
        table.add_row(
            Text(flat(name), style="" if count else "dim"),
            f"{reached:,}" if name != ENGINE else f"{count:,}",
            Text(f"{count:,}", style=REFUSED if count else "dim"),
            words.share(count / max(reached or count, 1)),
            "–" if typical is None else f"{typical:.2f}",
            threshold(limit) or "–",
            sparkline(*scores.bins(16), limit.least, limit.most, 16),
        )
    return table


def threshold(limit: Limit, style: str = "", detail: str = "") -> str:
    """A check's threshold in words: `≥ 0.75`, `≤ 0.5`, `0.5 to 1.8`; empty where it has none."""
    least, most = limit.of(style, detail)
    if least is not None and most is not None:
        return f"{least:g} to {most:g}"
    return f"≥ {least:g}" if least is not None else f"≤ {most:g}" if most is not None else ""


def check_page(found: Survey, limits: Limits, check: str) -> Iterator[RenderableType]:
    """One check: what it refuses, its scores, and what it refused, nearest to its threshold first."""
    limit, scores = limits.get(check), found.scores.get(check, Scores())
    yield Text(flat(check), style="bold")
    if told := sentence(check):
        yield Text(told)
    if limit.where:
        bands = "".join(f", {flat(style)} {a:g} to {b:g}" for style, (a, b) in limit.by_style.items())
        yield Text(f"{threshold(limit)}, set by {flat(limit.where)}{bands}", style="dim")
    count = found.whole().refused.get(check, 0)
    by_style = [(cell.refused.get(check, 0), name) for name, cell in found.by(0).items()]
    said = ", ".join(f"{flat(name)} {times:,}" for times, name in sorted(by_style, reverse=True) if times)
    yield Text(
        f"{scores.total():,} attempts reached it, {count:,} were refused by it" + (f": {said}." if said else ".")
    )
    edges, counts = scores.bins(48)
    if line := sparkline(edges, counts, limit.least, limit.most, 48):
        yield Padding(line, (0, 0, 0, 2))
        yield Text(
            f"  {words.figure(edges[0])} to {words.figure(edges[-1])}, all attempts that reached it", style="dim"
        )
    yield from _samples(found.nearest.get(check, []), limits, count)


def accepted_page(found: Survey, limits: Limits) -> Iterator[RenderableType]:
    """Accepted segments, those that only just passed first."""
    total = found.whole().accepted
    yield Text(f"{total:,} accepted segments, those that only just passed first.", style="bold")
    yield from _samples(found.nearest.get("", []), limits, total)


def _samples(attempts: Sequence[Attempt], limits: Limits, total: int) -> Iterator[RenderableType]:
    if not attempts:
        yield Text("\nNothing that fits.", style="dim")
        return
    yield legend()
    for place, attempt in enumerate(attempts, start=1):
        yield Sample(attempt, limits, f"{place} of {total:,}")


def legend() -> RenderableType:
    """What the colours mean."""
    pieces = [("lost", "lost"), ("new", "new"), ("copied", "copied")]
    said = Text.assemble("\n", *(part for name, kind in pieces for part in ((name, STYLES[kind]), "  ")))
    said.append("weighs", style=WEIGHTY["lost"])
    said.append("  ")
    said.append("more", style=WEIGHTY["new"])
    said.append("  a number, name, negation, formula or code; common words are not marked", style="dim")
    return said


class Sample:
    """One attempt, laid out for the width it is given."""

    def __init__(self, attempt: Attempt, limits: Limits, place: str, cut: int = CUT, whole: bool = False) -> None:
        self.attempt, self.limits, self.place, self.cut, self.whole = attempt, limits, place, cut, whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        one = self.attempt
        verdict = (f"refused: {flat(one.reason)}", REFUSED) if not one.accepted else ("accepted", KEPT)
        title = Text.assemble("\n", (f"{self.place}  ", "bold"), (verdict[0], f"bold {verdict[1]}"))
        if one.why:
            title.append(f"  {flat(one.why, 300)}", style=verdict[1])
        yield title
        where = [] if self.whole else [one.style, one.perspective, one.detail, one.domain, f"segment {one.index}"]
        yield Text(" · ".join(flat(part) for part in [*where, f"attempt {one.attempt + 1}"] if part), style="dim")
        yield texts(one, options.max_width, plain(console), self.cut)
        yield verdicts(one, self.limits)
        yield trace(one)


def plain(console: Console) -> bool:
    """Whether `console` shows no colours."""
    return console.no_color or console.color_system is None


def texts(one: Attempt, width: int, uncoloured: bool, cut: int) -> RenderableType:
    """Source and rewrite, side by side where `width` columns allow it."""
    found = difference(visible(one.source), visible(one.rewrite), visible(one.why))
    halves = [marked(side, uncoloured, cut) for side in (found.source, found.rewrite)]
    if not one.rewrite.strip():
        halves[1] = Text("(empty)", style="dim")
    titles = (f"source, {len(one.source):,} characters", f"rewrite, {len(one.rewrite):,} characters")
    if width >= BESIDE:
        table = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), show_edge=False, header_style="dim")
        for title in titles:
            table.add_column(Text(title), ratio=1, overflow="fold")
        table.add_row(*halves)
        return Padding(table, (0, 0, 0, 1))
    blocks: list[RenderableType] = []
    for title, half in zip(titles, halves, strict=True):
        blocks += [Text(title, style="dim underline"), Padding(half, (0, 0, 0, 2))]
    return Group(*blocks)


def marked(pieces: Sequence[Piece], uncoloured: bool, cut: int = 0) -> Text:
    """Pieces as coloured text, at most `cut` characters where given."""
    line = Text(overflow="fold")
    left = cut or sum(len(piece.text) for piece in pieces)
    for piece in pieces:
        text = piece.text[:left]
        left -= len(text)
        if uncoloured and piece.what and text:
            text = f"[-{text}-]" if piece.kind == "lost" else f"{{+{text}+}}"
        line.append(text, style=WEIGHTY[piece.kind] if piece.what else STYLES[piece.kind])
        if left <= 0:
            break
    if cut and sum(len(piece.text) for piece in pieces) > cut:
        line.append(" …", style="dim")
    return line


def verdicts(one: Attempt, limits: Limits) -> RenderableType:
    """Every check's score beside its threshold; those of all or nothing that passed only by name."""
    chips: list[Text] = []
    plainly, ahead = [], []
    for name, score in one.scores.items():
        limit = threshold(limits.get(name), one.style, one.detail)
        refused = name == one.reason
        if score is None:
            ahead += [] if refused else [flat(name)]
        elif refused or limit or score != 1:
            colour = REFUSED if refused else KEPT
            said = f"{'✗' if refused else '✓'} {flat(name)} {score:.2f}"
            chips.append(Text.assemble((said, colour), (f" ({limit})" if limit else "", "dim")))
        else:
            plainly.append(flat(name))
    rows: list[tuple[str, RenderableType]] = [("scores", Columns(chips, padding=(0, 2)))] if chips else []
    rows += [(title, Text(", ".join(names))) for title, names in (("passed", plainly), ("not reached", ahead)) if names]
    grid = Table.grid(padding=(0, 1))
    for title, block in rows:
        grid.add_row(Text(title, style="dim"), block, style="" if title == "scores" else "dim")
    return Padding(grid, (0, 0, 0, 2))


def trace(one: Attempt) -> RenderableType:
    """Where it comes from: enough for `openk2 lineage`."""
    tokens = f", {one.prompt_tokens:,} tokens in and {one.generated_tokens:,} out, ended: {flat(one.finish) or '–'}"
    said = (
        f"prompt {flat(one.prompt_hash)}  engine {flat(one.engine)}  model {flat(one.model)}  seed {one.seed}{tokens}\n"
        f"openk2 lineage {flat(one.source_id)}"
    )
    return Padding(Text(said, style="dim"), (0, 0, 0, 2))


def document(whole: Whole, limits: Limits) -> Iterator[RenderableType]:
    """One document whole: every segment with its attempts, then the joined text."""
    name = f"{flat(whole.rewrite_id)} " if whole.rewrite_id else ""
    yield Text.assemble(
        (f"rewrite {name}" if name else "not accepted ", "bold" if name else f"bold {REFUSED}"),
        (f"of {flat(whole.source_id)}  {flat(whole.style)}  {flat(whole.domain)}", "bold"),
    )
    if whole.facts:
        yield Text("  ".join(f"{title} {flat(value)}" for title, value in whole.facts), style="dim")
    actions = [segment.action for segment in whole.segments]
    counts = ", ".join(f"{actions.count(action)} {action}" for action in ACTIONS if action in actions)
    yield Text(f"{len(whole.segments)} segments: {counts}." if counts else "Nothing was attempted.")
    yield legend()
    for segment in whole.segments:
        colour, said = ACTIONS.get(segment.action, ("", flat(segment.action)))
        yield Text.assemble("\n", (f"── segment {segment.index}  ", "bold"), (said, colour))
        for number, one in enumerate(segment.attempts, start=1):
            yield Sample(one, limits, f"attempt {number} of {len(segment.attempts)}", 0, whole=True)
        if not segment.attempts:
            yield Padding(Text(visible(segment.source) or "(its text is in the corpus)", style="dim"), (0, 0, 0, 2))
    if whole.text:
        yield Text("\n── the joined text", style="bold")
        yield Padding(Text(visible(whole.text)), (0, 0, 0, 2))
    yield Text(f"\nopenk2 lineage {flat(whole.rewrite_id or whole.source_id)}", style="dim")
