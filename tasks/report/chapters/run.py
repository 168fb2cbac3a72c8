"""The run itself: time and cost by stage, the lineage graph, versions and configuration."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import yaml

from model.visible import escape
from tasks.artifact import Artifact, NotReady, Step
from tasks.report import figures, words
from tasks.report.blocks import Block, Code, Fold, Graph, Table
from tasks.report.book import Book
from tasks.report.chapter import Chapter
from training.ranges import BLOCK, DIGEST

# What a stage is measured in: (statistic, unit), bytes where none is named.
WORK = {
    "sources": ("bytes", ""),
    "corpus": ("documents", "documents"),
    "rewrites": ("segments", "segments"),
    "tokens": ("tokens", "tokens"),
    "base": ("tokens", "tokens"),
    "dialogues": ("dialogues", "dialogues"),
    "sft": ("tokens", "tokens"),
    "rl": ("response_tokens", "tokens"),
}


def _time_summary(book: Book) -> str:
    manifests = [book.stage(name).manifest for name in book.done]
    total = sum(manifest["seconds"] for manifest in manifests)
    money = sum(manifest["cost"].get("money", 0.0) for manifest in manifests)
    text = f"{len(manifests)} of {len(book.steps)} steps are complete, {words.duration(total)} of work in all"
    longest = max(manifests, key=lambda manifest: manifest["seconds"], default=None)
    if longest and total:
        text += f"; the longest is {longest['name']} ({words.share(longest['seconds'] / total)})"
    again = [manifest["name"] for manifest in manifests if manifest["attempts"] > 1]
    text += f"; {', '.join(again)} took more than one attempt" if again else ""
    return text + (f". It cost {money:,.2f} at the price set for this machine." if money else ".")


def _times(book: Book) -> Iterable[Block]:
    """Time and cost by stage"""
    if not book.done:
        return
    rows = [
        (name, seconds, words.duration(seconds), "accent")
        for name, seconds in ((name, book.stage(name).manifest["seconds"]) for name in book.done)
    ]
    yield figures.bars(rows, "Wall time of each step, over all its attempts.", "Time")
    table = []
    for name in book.done:
        artifact = book.stage(name)
        manifest = artifact.manifest
        seconds = manifest["seconds"]
        done, unit = _work(book, name)
        cost = manifest["cost"]
        table.append(
            [
                name,
                words.duration(seconds),
                _amount(done, unit) if done else "–",
                f"{_amount(done / seconds, unit)}/s" if done and seconds else "–",
                words.size(_on_disk(artifact)),
                words.count(manifest["attempts"]),
                f"{cost['money']:,.4f}" if cost.get("money") else "–",
                manifest["finished"][:16].replace("T", " "),
            ]
        )
    columns = ("step", "#time", "#work", "#rate", "#on disk", "#attempts", "#cost", "#finished (UTC)")
    yield Table(columns, table)


def _on_disk(artifact: Artifact) -> int:
    """Bytes of its files, with those that a part lists: shards, their indices and their blocks' digests may be many
    thousands."""
    size = sum(part.bytes for part in artifact.parts())
    if artifact.name == "tokens":
        for path in artifact.files("shards"):
            table = pl.read_parquet(path, columns=["bytes", "index_bytes"])
            blocks = (table["bytes"] + BLOCK - 1) // BLOCK
            size += int((table["bytes"] + table["index_bytes"] + blocks * DIGEST).sum())
    return size


def _accounts(book: Book) -> Iterable[Block]:
    """Where the rows of each step went"""
    found = [(name, book.stage(name).manifest.get("accounts")) for name in book.done]
    rows = [
        [name, accounts["unit"], *(words.count(accounts[fate]) for fate in ("in", "out", "rejected", "dropped"))]
        for name, accounts in found
        if accounts
    ]
    if rows:
        yield Table(("step", "rows", "#in", "#out", "#rejected", "#dropped"), rows)


def _work(book: Book, name: str) -> tuple[float, str]:
    key, unit = WORK.get(name, ("", ""))
    value = book.optional(name, key) if key else None
    return (float(value), unit) if isinstance(value, int | float) else (0.0, "")


def _amount(value: float, unit: str) -> str:
    return f"{words.short(value)} {unit}" if unit else words.size(value)


def _lineage_summary(book: Book) -> str:
    return (
        "Every step has a fingerprint over its version, its configuration and its inputs' fingerprints; equal "
        "fingerprints are equal bytes. `openk2 lineage ID` goes further, from a token span to its document and licence."
    )


def _graph(book: Book) -> Iterable[Block]:
    """The lineage graph"""
    caption = (
        "Each step with its fingerprint and time. Dashed: gates (green where passed) and what has not run yet. Edges "
        "that follow from others are left out."
    )
    yield Graph(draw(book), mermaid(book), caption)


def reduced(steps: list[Step]) -> dict[str, list[str]]:
    """The direct inputs of each step, without those that another input already rests on."""
    parents = {step.name: [parent.name for parent in step.inputs] for step in steps}

    def above(name: str) -> set[str]:
        found: set[str] = set()
        for parent in parents.get(name, []):
            found |= {parent} | above(parent)
        return found

    return {
        name: [parent for parent in direct if not any(parent in above(other) for other in direct if other != parent)]
        for name, direct in parents.items()
    }


def draw(book: Book) -> str:
    """The graph as SVG: one row per depth, gates beside what they judge."""
    edges = reduced(book.steps)
    depth: dict[str, int] = {}
    for step in book.steps:  # inputs come before what reads them
        gate = step.name.endswith("-gate")
        above = [depth[parent] for parent in edges[step.name] if parent in depth]
        depth[step.name] = max(above, default=-1) + (0 if gate else 1)
    rows: dict[int, list[Step]] = {}
    for step in book.steps:
        rows.setdefault(depth[step.name], []).append(step)
    wide, tall, gap, beside = 168, 44, 26, 36
    spans = {row: len(members) * (wide + beside) - beside for row, members in rows.items()}
    width = max(spans.values()) + 8  # with room for strokes, as above and below
    place: dict[str, tuple[float, float]] = {}
    for row, members in rows.items():
        names = [step.name.removesuffix("-gate") for step in members]
        members.sort(key=lambda step: (names.index(step.name.removesuffix("-gate")), step.name.endswith("-gate")))
        for column, step in enumerate(members):
            place[step.name] = ((width - spans[row]) / 2 + column * (wide + beside), row * (tall + gap) + 4)
    out = []
    for name, parents in edges.items():
        for parent in parents:
            if parent in place:
                out.append(_edge(place[parent], place[name], wide, tall))
    for step in book.steps:
        out.append(_node(book, step, place[step.name], wide, tall))
    height = (max(rows) + 1) * (tall + gap)
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(out)}</svg>'


def _edge(start: tuple[float, float], end: tuple[float, float], wide: int, tall: int) -> str:
    if start[1] == end[1]:  # a gate stands beside what it judges
        y = start[1] + tall / 2
        a, b = sorted((start[0], end[0]))
        return f'<path class="edge" d="M{a + wide:.0f},{y:.0f} L{b:.0f},{y:.0f}"/>'
    x1, y1, x2, y2 = start[0] + wide / 2, start[1] + tall, end[0] + wide / 2, end[1]
    turn = max(y1, y2 - 30)  # straight down beside the rows between, then over
    middle = (turn + y2) / 2
    curve = f"C{x1:.0f},{middle:.0f} {x2:.0f},{middle:.0f} {x2:.0f},{y2:.0f}"
    return f'<path class="edge" d="M{x1:.0f},{y1:.0f} L{x1:.0f},{turn:.0f} {curve}"/>'


def _node(book: Book, step: Step, place: tuple[float, float], wide: int, tall: int) -> str:
    x, y = place
    kinds = ["node"]
    if book.has(step.name):
        note = f"{book.stage(step.name).fingerprint[:10]} · {words.duration(book.stage(step.name).manifest['seconds'])}"
        kinds += ["gate"] if step.name.endswith("-gate") else []
    elif book.blocked(step.name):
        kinds, note = [*kinds, "blocked"], "failed: the run stopped here"
    else:
        kinds, note = [*kinds, "missing"], "not run yet"
    middle = x + wide / 2
    return (
        f'<rect class="{" ".join(kinds)}" x="{x:.0f}" y="{y:.0f}" width="{wide}" height="{tall}" rx="5"/>'
        f'<text x="{middle:.0f}" y="{y + 19:.0f}" text-anchor="middle">{escape(step.name)}</text>'
        f'<text class="hash" x="{middle:.0f}" y="{y + 35:.0f}" text-anchor="middle">{escape(note)}</text>'
    )


def mermaid(book: Book) -> str:
    """The same graph for markdown."""
    lines = ["graph TD"]
    for step in book.steps:
        note = book.stage(step.name).fingerprint[:10] if book.has(step.name) else "not run yet"
        lines.append(f'  {step.name}["{step.name}<br/>{note}"]')
    lines += [f"  {parent} --> {name}" for name, parents in reduced(book.steps).items() for parent in parents]
    return "\n".join(lines)


def _settings_summary(book: Book) -> str:
    return "Every literal that bears identity, by step, and the versions of the libraries that shape the bytes."


def _versions(book: Book) -> Iterable[Block]:
    """Versions"""
    found: dict[str, set[str]] = {}
    for name in book.done:
        for package, number in book.stage(name).manifest["versions"].items():
            found.setdefault(package, set()).add(number)
    rows = [[package, ", ".join(sorted(numbers))] for package, numbers in sorted(found.items())]
    yield Table(("library", "version"), rows)


def _configuration(book: Book) -> Iterable[Block]:
    """Configuration"""
    for step in book.steps:
        text = yaml.safe_dump(step.config.literals(), sort_keys=False, allow_unicode=True).strip()
        yield Fold(f"`{step.name}` {_fingerprint(step)}", [Code(text)])


def _fingerprint(step: Step) -> str:
    try:
        return step.fingerprint
    except NotReady:
        return "(no fingerprint before its sources are fetched)"


TIME = Chapter("time", "Time and cost", (), _time_summary, (_times, _accounts))
LINEAGE = Chapter("lineage", "Lineage", (), _lineage_summary, (_graph,))
SETTINGS = Chapter("settings", "Versions and configuration", (), _settings_summary, (_versions, _configuration))
