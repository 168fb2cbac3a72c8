"""What was released, what it scores against the checkpoints before it, and what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.report import figures, words
from tasks.report.blocks import Block, Fold, Pair, Prose, Table, Verbatim
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything

NAMES = {"base": "base", "sft": "SFT", "rl": "RL", "bf16": "released, bf16", "int4": "released, INT4"}


def _release_summary(book: Book) -> str:
    s = book.stage("release").statistics
    ratio = s["bf16_bytes"] / max(s["int4_bytes"], 1)
    text = (
        f"A model of {words.short(s['parameters'])} parameters, {words.short(s['active_parameters'])} of them active "
        f"for a token, in Kimi K2's Hugging Face layout: {words.size(s['bf16_bytes'])} in bf16 and "
        f"{words.size(s['int4_bytes'])} in INT4, {ratio:.1f} times smaller."
    )
    verified = s.get("verification", {})
    if "transformers_difference" in verified:
        text += (
            " Read back through transformers, its logits differ from ours by "
            f"{verified['transformers_difference']:.0e} of the largest; the INT4 folder dequantises to exactly the "
            "weights that were trained."
        )
    return text


def _files(book: Book) -> Iterable[Block]:
    """The files of the release"""
    rows = [[part.key, words.size(part.bytes), f"`{part.sha256[:12]}`"] for part in book.stage("release").parts()]
    yield Fold(
        "The files",
        [Table(("file", "#size", "sha256"), rows, f"Under `{book.address(book.stage('release').uri)}/parts/`.")],
    )


def _evaluation_summary(book: Book) -> str:
    s = book.stage("evaluation").statistics
    text = (
        f"{len(s['models'])} checkpoints of the chain on the same {words.count(s['problems'])} held-out problems, "
        f"{words.count(s['samples'])} samples each, seed {s['seed']}."
    )
    for name, label in (("sft to rl", "Reinforcement learning changed"), ("bf16 to int4", "INT4 changed")):
        change = s.get("differences", {}).get(name, {}).get("sampled")
        if change:
            text += (
                f" {label} the sampled pass rate by {100 * change['value']:+.1f} points "
                f"({100 * change['low']:+.1f} to {100 * change['high']:+.1f})."
            )
    return text


def _models(book: Book) -> dict[str, Any]:
    """What was measured of each checkpoint, in the order of the chain."""
    models: dict[str, Any] = book.statistic("evaluation", "models")
    return {name: models[name] for name in NAMES if name in models}


def _rates(book: Book) -> Iterable[Block]:
    """Pass rates of the chain"""
    rows = []
    for name, model in _models(book).items():
        rate = model["pass_rate"]["sampled"]
        colour = "accent" if name in ("bf16", "int4") else "soft"
        rows.append((NAMES[name], rate["low"], rate["value"], rate["high"], words.share(rate["value"]), colour))
    yield figures.spans(rows, "Sampled pass rate with its 95 % interval over problems.", "Right replies")


def _table(book: Book) -> Iterable[Block]:
    """The measures side by side"""
    models = _models(book)
    rows = []
    for name, model in models.items():
        tools = model.get("tools") or {}
        rows.append(
            [
                NAMES[name],
                _estimate(model["pass_rate"]["greedy"]),
                _estimate(model["pass_rate"]["sampled"]),
                words.share(tools.get("trigger_f1")),
                words.share(tools.get("schema_accuracy")),
                words.share(tools.get("exact")),
            ]
        )
    columns = ("checkpoint", "#right, greedy", "#right, sampled", "#call trigger F1", "#valid schema", "#exact calls")
    caption = "Pass rates with 95 % intervals; tool calls at every assistant turn of held-out dialogues."
    yield Table(columns, rows, caption)


def _heldout(book: Book) -> Iterable[Block]:
    """Held-out loss of the chain"""
    models = _models(book)
    domains = sorted({domain for model in models.values() for domain in model["heldout"]})
    rows = []
    for name, model in models.items():
        losses = [model["heldout"].get(domain) for domain in domains]
        rows.append([NAMES[name], *(f"{one['nats']:.3f}" if one else words.NOTHING for one in losses)])
    caption = "Cross-entropy in nats per token of held-out text, by domain."
    yield Table(("checkpoint", *(f"#{domain}" for domain in domains)), rows, caption)


def _environments(book: Book) -> Iterable[Block]:
    """Pass rates by environment"""
    models = _models(book)
    of = [model["by_environment"] for model in models.values()]
    rows = [
        [words.name(name), *(words.share(rates[name]["sampled"]["value"]) for rates in of)]
        for name in sorted({name for rates in of for name in rates})
    ]
    if rows:
        heads = (f"#{NAMES[name]}" for name in models)
        yield Table(("sampled pass rate", *heads), rows)


def _samples(book: Book) -> Iterable[Block]:
    """What the model writes"""
    models = _models(book)
    released = models.get("int4") or list(models.values())[-1]
    base = models.get("base", {})
    before = {(sample["kind"], sample["prompt"]): sample for sample in base.get("samples", [])}
    for sample in released.get("samples", []):
        old = before.get((sample["kind"], sample["prompt"]), {})
        texts = (str(old.get("greedy", "")) or "(nothing)", str(sample.get("greedy", "")) or "(nothing)")
        note = Verbatim(f"{words.name(sample['kind'])}: {sample['prompt']} (greedy, as it comes)")
        yield Pair(("base model", "released, INT4"), texts, note)


def _limits(book: Book) -> Iterable[Block]:
    """What was not measured"""
    missing = book.optional("evaluation", "not_measured", default=[])
    if missing:
        yield Prose("**Not measured.** " + " ".join(missing))


def _estimate(found: Mapping[str, float]) -> str:
    return f"{words.share(found['value'])} ({100 * found['low']:.0f} to {100 * found['high']:.0f})"


RELEASE = Chapter("release", "Release", ("release",), _release_summary, (_files, everything("release")))
EVALUATION = Chapter(
    "evaluation",
    "Evaluation",
    ("evaluation",),
    _evaluation_summary,
    (_rates, _table, _heldout, _environments, _samples, _limits, everything("evaluation")),
)
