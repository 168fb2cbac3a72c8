"""Pretraining: loss and learning rate by stage, held-out loss by domain, MuonClip's telemetry, the experts' load."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from tasks.report import charts, figures, words
from tasks.report.blocks import Block, Chart, Charts, Fold, Table
from tasks.report.book import Book, column
from tasks.report.chapter import Chapter, everything
from tasks.report.chapters.corpus import colour
from tasks.report.charts import Band, Line

TOKENS = "training tokens"


def _summary(book: Book) -> str:
    lines = book.events("base", "update")
    losses = charts.smooth(column(lines, "loss"))
    size = book.optional("base", "parameters"), book.optional("base", "active_parameters")
    model = f"A model of {words.short(size[0])} parameters, {words.short(size[1])} active, read " if all(size) else ""
    tokens, stages = column(lines, "tokens")[-1], [stage["name"] for stage in stages_of(lines)]
    text = (
        f"{model}{words.short(tokens)} tokens in {words.count(len(lines))} updates through {len(stages)} stages "
        f"({', '.join(stages)}): training loss {losses[0]:.2f} to **{losses[-1]:.3f}** nats a token."
    )
    clipped = sum(column(lines, "clipped_heads"))
    top = max(column(lines, "max_logit"))
    tau = _tau(book)
    text += f" The largest attention logit was {top:.1f}"
    text += f" (tau {tau:g})" if tau else ""
    text += f", and QK-Clip scaled {words.count(clipped)} heads back." if clipped else ", so QK-Clip had nothing to do."
    return text + _ranks(book)


def _ranks(book: Book) -> str:
    """On how many ranks the run ended, in which layout, and how often it went round a spike."""
    ranks, spikes = book.optional("base", "ranks"), book.optional("base", "rollbacks")
    text = ""
    if ranks:
        layout = book.optional("base", "layout") or {}
        cut = ", ".join(f"{axis} {size}" for axis, size in layout.items() if size > 1)
        text += f" It ended on {words.count(ranks)} rank{'s' if ranks > 1 else ''}{f' ({cut})' if cut else ''}."
    if spikes is not None:
        text += f" Spikes that it went round: {len(spikes)}."
    return text


def stages_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stages in their order: name, first and last token count, and their updates."""
    found, begun = [], 0
    for name, group in groupby(lines, key=lambda line: line.get("stage", "training")):
        updates = list(group)
        found.append({"name": name, "start": begun, "end": updates[-1]["tokens"], "updates": updates})
        begun = updates[-1]["tokens"]
    return found


def bands(lines: list[dict[str, Any]]) -> list[Band]:
    return [Band(stage["name"], stage["start"], stage["end"]) for stage in stages_of(lines)]


def _loss(book: Book) -> Iterable[Block]:
    """Loss and learning rate"""
    lines = book.events("base", "update")
    xs, stages = column(lines, "tokens"), bands(lines)
    caption = "Cross-entropy in nats per token of each update (pale) and its running mean. Shades are the stages."
    yield figures.smoothed(
        xs, column(lines, "loss"), "accent", TOKENS, caption, "Training loss", bands=stages, height=300
    )
    rates = [Line("learning rate", xs, column(lines, "learning_rate"), "warm")]
    yield figures.lines(rates, TOKENS, "The learning rate of each update.", "Learning rate", bands=stages, height=170)


def _heldout(book: Book) -> Iterable[Block]:
    """Held-out loss by domain"""
    lines = book.events("base", "evaluation")
    updates = book.events("base", "update")
    tokens = {line["step"]: line["tokens"] for line in updates}
    domains = sorted({domain for line in lines for domain in line["losses"]})
    series = []
    for domain in domains:
        known = [line for line in lines if domain in line["losses"]]
        xs = [tokens.get(line["step"], line["step"]) for line in known]
        series.append(Line(domain, xs, [line["losses"][domain] for line in known], colour(domain)))
    caption = (
        "Cross-entropy on documents that were never trained on, by domain. A stage with longer windows cuts them into "
        "other samples: its losses do not compare with those of the stage before."
    )
    yield figures.lines(series, TOKENS, caption, "Held-out loss", bands=bands(updates), height=280)
    last = {stage: list(group)[-1] for stage, group in groupby(lines, key=lambda line: line.get("stage", ""))}
    rows = [
        [domain, *(f"{line['losses'][domain]:.3f}" if domain in line["losses"] else "–" for line in last.values())]
        for domain in domains
    ]
    yield Table(("held-out loss after", *(f"#{stage}" for stage in last)), rows)


def _stage_table(book: Book) -> Iterable[Block]:
    """The stages in numbers"""
    rows = []
    for stage in stages_of(book.events("base", "update")):
        updates = stage["updates"]
        seconds = sum(column(updates, "timing.seconds"))
        tokens = stage["end"] - stage["start"]
        rates = column(updates, "learning_rate")
        rows.append(
            [
                stage["name"],
                words.count(len(updates)),
                words.short(tokens),
                f"{rates[0]:.2g} to {rates[-1]:.2g}",
                f"{charts.smooth(column(updates, 'loss'))[-1]:.3f}",
                words.duration(seconds),
                words.short(tokens / seconds) if seconds else "–",
            ]
        )
    yield Table(("stage", "#updates", "#tokens", "#learning rate", "#loss at its end", "#time", "#tokens/s"), rows)


def _clip(book: Book) -> Iterable[Block]:
    """QK-Clip: the largest attention logits"""
    lines = book.events("base", "update")
    xs, top, stages = column(lines, "tokens"), column(lines, "max_logit"), bands(lines)
    tau = _tau(book)
    # a threshold far above would flatten the curve: the summary names it
    marks = [(f"tau = {tau:g}", tau)] if tau and tau < 4 * max(top) else []
    caption = (
        "S_max: the largest attention logit over all layers, heads and samples of each update, as softmax sees it."
    )
    series = [Line("largest logit", xs, top)]
    yield figures.lines(series, TOKENS, caption, "QK-Clip telemetry", height=230, bands=stages, marks=marks)
    layers = list(zip(*column(lines, "max_logit_by_layer"), strict=True))
    strips = charts.heat([(f"layer {place}", values) for place, values in enumerate(layers)], TOKENS, max(top))
    tops = [(f"layer {place}", words.figure(max(values))) for place, values in enumerate(layers)]
    yield Chart(
        strips, f"S_max of each layer over the run; the deepest colour is {max(top):.1f}.", "S_max by layer", tops
    )
    clipped = column(lines, "clipped_heads")
    if not any(clipped):
        return
    caption = "Heads whose query and key rows were scaled back after the update."
    series = [Line("clipped heads", xs, clipped, "warm")]
    yield figures.lines(series, TOKENS, caption, "Clipped heads", height=170, bands=stages)
    clips = book.events("base", "heads")[-1].get("clips") or []
    if any(value for layer in clips for value in layer):
        rows = [[f"layer {place}", *(words.count(value) for value in layer)] for place, layer in enumerate(clips)]
        columns = ("clips", *(f"#head {place}" for place in range(len(clips[0]))))
        yield Fold("How often each head was clipped", [Table(columns, rows)])


def _tau(book: Book) -> float | None:
    """QK-Clip's threshold, where the configuration names it."""
    optimizer = book.stage("base").manifest["config"].get("optimizer")
    tau = optimizer.get("tau") if isinstance(optimizer, dict) else None
    return float(tau) if tau else None


def _health(book: Book) -> Iterable[Block]:
    """Expert load, update size, gradient norm, throughput"""
    lines = book.events("base", "update")
    xs = column(lines, "tokens")

    def small(key: str, title: str, caption: str, colour: str, **options: Any) -> Chart:
        values = column(lines, key)
        return figures.smoothed(xs, values, colour, TOKENS, caption, title, height=190, width=figures.HALF, **options)

    load = "Tokens of the busiest expert over the mean of its layer: 1 is perfect balance."
    rms = "Root mean square of Muon's updates before the learning rate: 0.2 is AdamW's; 0 would mean that none ran."
    yield Charts(
        [
            small("expert_load_max", "Expert load", load, "code", marks=[("balanced", 1.0)]),
            small("update_rms", "Update RMS", rms, "knowledge", marks=[("", 0.2)]),
            small("gradient_norm", "Gradient norm", "Before clipping.", "warm"),
            small("timing.tokens_per_second", "Throughput", "Training tokens per second.", "web"),
        ]
    )


CHAPTER = Chapter(
    "pretraining",
    "Pretraining",
    ("base",),
    _summary,
    (_loss, _stage_table, _heldout, _clip, _health, everything("base")),
)
