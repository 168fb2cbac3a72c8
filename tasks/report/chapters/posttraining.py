"""Post-training: supervised fine-tuning, reinforcement learning, INT4 quantisation-aware training."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.report import figures, words
from tasks.report.blocks import Block, Charts, Prose, Table
from tasks.report.book import Absent, Book, column
from tasks.report.chapter import Chapter, everything
from tasks.report.charts import Line


def _curves(book: Book, stage: str, panels: Iterable[tuple[str, str, str, str]], x: str) -> Iterable[Block]:
    """Small drawings of those (key, title, caption, colour) that the stage's updates record, all or some of them."""
    lines = book.events(stage, "update")
    drawn = []
    for key, title, caption, colour in panels:
        known = [line for line in lines if line.get(key) is not None]
        if not known:
            continue
        xs, ys = column(known, "step"), column(known, key)
        drawn.append(
            figures.smoothed(xs, ys, colour, x, caption, title, height=190, width=figures.HALF, x_format=words.figure)
        )
    if not drawn:
        raise Absent(f"the updates of `{stage}` record none of the figures this chart shows")
    yield Charts(drawn)


def _sft_summary(book: Book) -> str:
    s = book.stage("sft").statistics
    low, high = s["band"]
    text = (
        f"{words.count(s['updates'])} updates on {words.count(s['dialogues'])} dialogues; it ended because "
        f"{s['stopped_because']}. A family rests from when its pass rate is in the band ({words.share(low)} to "
        f"{words.share(high)}): more would leave reinforcement learning nothing to find out, less nothing to go by. "
        f"On development prompts **{words.share(s['pass_rate'])}** of the sampled replies are right"
    )
    tools = s.get("tools") or {}
    if tools.get("trigger_f1") is not None:
        text += f"; the trigger of tool calls has an F1 of **{tools['trigger_f1']:.2f}**"
    if s.get("text"):
        text += f"; the loss on held-out text moved by {s['text']['rise']:+.2f} nats from the base model's"
    return text + "."


def _sft_selection(book: Book) -> Iterable[Block]:
    """What RL trains on"""
    selection = book.optional("sft", "selection", default={})
    rows = [
        [words.name(name), words.share(entry["pass_rate"]), f"{entry['weight']:g}", entry["because"]]
        for name, entry in selection.items()
    ]
    if rows:
        yield Table(("family", "#sampled pass rate", "#weight in RL", "because"), rows, "By development prompts.")


def _sft_tools(book: Book) -> Iterable[Block]:
    """Tool calls"""
    tools = book.optional("sft", "tools", default={})
    rows = []
    groups = {**tools.get("by_environment", {}), **tools.get("by_unseen_tool", {})}
    for name, entry in ({"all known": tools, **groups} if tools else {}).items():
        f1 = words.NOTHING if entry["trigger_f1"] is None else f"{entry['trigger_f1']:.2f}"
        shares = [_with_interval(entry, key) for key in ("schema_accuracy", "exact")]
        rows.append([words.name(name), words.count(entry["turns"]), f1, *shares])
    if rows:
        columns = ("development dialogues", "#turns", "#trigger F1", "#valid schema", "#exact calls")
        caption = "Greedy, at every assistant turn, with 95 % intervals; last the tools that no training dialogue has."
        yield Table(columns, rows, caption)


def _with_interval(entry: Mapping[str, Any], key: str) -> str:
    value, interval = entry.get(key), entry.get(f"{key}_interval")
    if value is None or interval is None:
        return "–"
    return f"{words.share(value)} ({words.share(interval[0])} to {words.share(interval[1])})"


def _sft_loss(book: Book) -> Iterable[Block]:
    """SFT's loss"""
    panels = (
        ("loss", "Loss on replies", "Cross-entropy of the trained tokens.", "accent"),
        ("max_logit", "Largest attention logit", "S_max of each update.", "warm"),
    )
    yield from _curves(book, "sft", panels, "updates")


def _sft_rates(book: Book) -> Iterable[Block]:
    """Pass rates during SFT"""
    lines = book.events("sft", "evaluation")
    steps = column(lines, "step")
    rates = [line["by_environment"] for line in lines]
    names = sorted(set.intersection(*(set(each) for each in rates)))
    colours = itertools.cycle(("accent", "code", "knowledge", "math", "web", "warm"))
    series = [Line(words.name(name), steps, [each[name]["sampled"] for each in rates], next(colours)) for name in names]
    band = book.optional("sft", "band", default=[])
    marks = [(f"band from {words.share(band[0])}", band[0]), (f"to {words.share(band[1])}", band[1])] if band else []
    caption = "Right of sampled replies on development prompts; a family rests while it is in the band or above."
    yield figures.lines(
        series,
        "updates",
        caption,
        "Pass rate",
        height=230,
        marks=marks,
        y_format=words.percent,
        x_format=words.figure,
        y_range=(0.0, 1.0),
    )


def _rl_summary(book: Book) -> str:
    s = book.stage("rl").statistics
    before, after = s["before"], s["after"]
    rise = s["rise"]["sampled"]
    low, high = rise["interval"]
    verdict = "rose" if low > 0 else ("fell" if high < 0 else "did not change beyond chance")
    return (
        f"On {words.count(after['problems'])} held-out prompts the sampled pass rate {verdict}: "
        f"**{words.share(before['sampled'])} before, {words.share(after['sampled'])} after** "
        f"({100 * rise['rise']:+.1f} points, 95 % interval {100 * low:+.1f} to {100 * high:+.1f}; the same prompts, "
        f"seed {s['seed']}), after {words.count(s['iterations'])} iterations and {words.short(s['responses'])} "
        "responses. The reward is a verifier's: the answer is right or it is not."
    )


def _rl_rates(book: Book) -> Iterable[Block]:
    """Pass rates before and after RL"""
    s = book.stage("rl").statistics
    rows = [row for kind in ("sampled", "greedy") for row in _before_after(kind, s["before"], s["after"], kind)]
    caption = f"Held-out prompts, seed {s['seed']}, with 95 % intervals over prompts."
    yield figures.spans(rows, caption, "Before and after")
    before, after = s["before"]["by_environment"], s["after"]["by_environment"]
    if len(before) > 1 and "by_environment" not in s["rise"]:  # an older run, without the table below
        inner = [
            row for name in before for row in _before_after(words.name(name), before[name], after[name], "sampled")
        ]
        yield figures.spans(inner, "Sampled, by environment.", "By environment")


def _rl_rises(book: Book) -> Iterable[Block]:
    """Rises by environment"""
    s = book.stage("rl").statistics
    rises = s["rise"].get("by_environment", {})
    first, last = s["before"], s["after"]
    parts: list[tuple[str, Any, Any, Any]] = [
        (words.name(name), first["by_environment"][name], last["by_environment"][name], rise)
        for name, rise in rises.items()
    ]
    if len(parts) > 1:
        parts.append(("all", first, last, s["rise"]))
    rows = []
    for name, before, after, rise in parts:
        cells = [name, words.count(before["problems"])]
        for kind in ("sampled", "greedy"):
            cells += [f"{100 * before[kind]:.3g} to {words.percent(after[kind])}", _points(rise[kind])]
        rows.append(cells)
    if rows:
        columns = ("environment", "#problems", "#sampled", "#points", "#greedy", "#points")
        caption = (
            "Before and after on the same held-out prompts; points with the 95 % interval of the paired difference, "
            "bold where it is on one side of 0, as it is by chance in one of twenty."
        )
        yield Table(columns, rows, caption)


def _points(rise: Mapping[str, Any]) -> str:
    low, high = rise["interval"]
    text = f"{round(100 * rise['rise']):+d} ({round(100 * low)} to {round(100 * high)})"
    return f"**{text}**" if low > 0 or high < 0 else text


def _before_after(label: str, before: Mapping[str, Any], after: Mapping[str, Any], kind: str) -> list[tuple]:
    rows = []
    for when, entry, colour in (("before", before, "soft"), ("after", after, "accent")):
        value, (low, high) = entry[kind], entry[f"{kind}_interval"]
        rows.append((f"{label}, {when}", max(low, 0.0), value, min(high, 1.0), words.share(value), colour))
    return rows


def _rl_curves(book: Book) -> Iterable[Block]:
    """RL's curves"""
    panels = (
        ("reward", "Reward", "Mean reward of the responses drawn; harder prompts are drawn oftener.", "accent"),
        ("right", "Right responses", "Share of the drawn responses that the verifier accepts.", "code"),
        ("kl", "Distance", "Estimated KL of drawing and learning policy, nats a response.", "knowledge"),
        ("ptx_loss", "Loss on pretraining text", "The auxiliary loss against forgetting.", "warm"),
        ("dialogue_loss", "Loss on dialogues", "SFT's loss on what is not practised, or has tools.", "knowledge"),
        ("response_tokens", "Length", "Tokens of a response.", "web"),
        ("informative", "Informative prompts", "Share of prompts whose responses differ in reward.", "math"),
        (
            "critic_right",
            "Critic's agreement with the truth",
            "Share of comparisons with a known answer that it answers rightly.",
            "code",
        ),
        (
            "disagreement",
            "Mismatch",
            "Log-probabilities, generator against trainer: mean difference, nats a token.",
            "warm",
        ),
        ("temperature", "Temperature", "Of sampling.", "accent"),
    )
    yield from _curves(book, "rl", panels, "iterations")


def _rl_waits(book: Book) -> Iterable[Block]:
    """Waiting for verdicts"""
    timings = [line["timing"] for line in book.events("rl", "update")]
    idle = [timing["idle_seconds"] for timing in timings if "idle_seconds" in timing]  # older runs do not say
    if idle:
        part = sum(idle) / sum(timing["seconds"] for timing in timings)
        yield Prose(f"For {words.share(part)} of the iterations' time nothing could be sampled for want of a verdict.")


def _rl_heldout(book: Book) -> Iterable[Block]:
    """Held-out pass rate during RL"""
    lines = book.events("rl", "evaluation")
    points: dict[str, list[dict[str, Any]]] = {"development": [], "test": []}
    for line in lines:
        # metrics of before the split was written: test was measured at both ends, development in between
        points[line.get("split") or ("test" if line in (lines[0], lines[-1]) else "development")].append(line)
    watched, reported = points["development"], points["test"]
    if not watched:
        return
    series = [
        Line("development", column(watched, "step"), column(watched, "sampled")),
        Line("test", column(reported, "step"), column(reported, "sampled"), "warm", dots=True),
    ]
    ends = " and ".join(words.share(value) for value in column(reported, "sampled"))
    caption = (
        f"Sampled, on development prompts. Dots: on the prompts of test, which are others, before and after ({ends})."
    )
    options = {"height": 200, "y_format": words.percent, "x_format": words.figure}
    yield figures.lines(series, "iterations", caption, "Held-out pass rate", **options)


SFT = Chapter(
    "sft",
    "Supervised fine-tuning",
    ("sft",),
    _sft_summary,
    (_sft_tools, _sft_selection, _sft_rates, _sft_loss, everything("sft")),
)
RL = Chapter(
    "rl",
    "Reinforcement learning",
    ("rl",),
    _rl_summary,
    (_rl_rates, _rl_rises, _rl_curves, _rl_waits, _rl_heldout, everything("rl")),
)
