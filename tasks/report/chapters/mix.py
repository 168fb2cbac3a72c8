"""What every document is worth, how far that can be believed, and how often each part of the corpus is read and why."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.report import charts, figures, words
from tasks.report.blocks import Block, Chart, Charts, Fold, Prose, Table, Verbatim
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything
from tasks.report.chapters.corpus import colour

SHOWN = 40
"""Rows of the mix that stand on the page; the whole table is a part of the artifact."""
SOURCES = 12
"""Sources whose histograms are drawn."""


def _summary(book: Book) -> str:
    text = ""
    if book.has("scores"):
        auc = book.optional("scores", "auc")
        count = words.count(book.statistic("scores", "documents"))
        if auc is None:
            lack = book.optional("scores", "unscored", default="no classifier was asked for")
            text = f"{lack[0].upper()}{lack[1:]}: {count} documents are unscored. "
        else:
            text = (
                f"A linear classifier over hashed n-grams scored {count} documents. On held-out examples, from files "
                f"that it never saw, it tells the wanted from the unwanted with an area under the ROC curve of "
                f"**{auc:.3f}** (0.5 is chance) and says probabilities that are "
                f"{words.share(book.statistic('scores', 'calibration_error'))} off in the mean. "
            )
    if book.has("mix"):
        s = book.stage("mix").statistics
        text += (
            f"The mix reads {words.short(s['tokens'])} tokens of {words.short(s['available'])} there are, no text more "
            f"than {s['epochs_most']:.3g} times"
        )
        text += f", and leaves {words.count(s['left_out'])} documents out" if s["left_out"] else ""
        text += ". Tokens are estimated, and held-out documents are still among them."
    return text


def _domains(book: Book) -> Iterable[Block]:
    """The mix by domain"""
    if not book.has("mix"):
        return
    domains = book.statistic("mix", "by_domain")
    rows = [
        (
            name,
            entry["share"],
            f"{words.share(entry['share'])} · asked {words.share(entry['asked'])} · {entry['epochs']:.3g} epochs",
            colour(name),
        )
        for name, entry in sorted(domains.items(), key=lambda item: -item[1]["share"])
    ]
    caption = "Share of each domain in the training tokens, what was asked for, and how often its text is read."
    yield figures.bars(rows, caption, "The mix by domain")


def _table(book: Book) -> Iterable[Block]:
    """The mix and its reasons"""
    if not book.has("mix"):
        return
    rows = book.rows("mix", "table").collect().sort("tokens", descending=True, maintain_order=True).to_dicts()
    cells = [
        [
            row["domain"],
            row["source"],
            row["language"],
            row["licence"],
            row["bucket"],
            words.count(row["documents"]),
            words.short(row["available"]),
            words.share(row["asked"]),
            f"{row['epochs']:.3g}",
            words.share(row["share"]),
            Verbatim(row["reason"]),
        ]
        for row in rows
    ]
    columns = (
        *("domain", "source", "language", "licence", "quality", "#documents", "#tokens"),
        *("#asked", "#epochs", "#share", "why"),
    )
    more = f" {len(cells) - SHOWN} smaller rows stand in its part `table`." if len(cells) > SHOWN else ""
    caption = (
        "Every group of documents: what it has, the share that was asked for it had there been no cap, how often it is "
        f"read, and why.{more}"
    )
    yield Fold("Every row of the mix, with its reason", [Table(columns, cells[:SHOWN], caption)])


def _reliability(book: Book) -> Iterable[Block]:
    """Whether the classifier's probabilities can be believed"""
    if book.optional("scores", "auc") is None:
        return
    rows = book.statistic("scores", "reliability")
    said, so = [row["said"] for row in rows], [row["so"] for row in rows]
    drawn = charts.lines(
        [charts.Line("as said", [0.0, 1.0], [0.0, 1.0], faint=True), charts.Line("observed", said, so)],
        "probability that was said",
        y_format=words.percent,
        x_format=words.percent,
        y_range=(0.0, 1.0),
        width=figures.HALF,
    )
    data = [(words.percent(row["said"]), f"{words.percent(row['so'])} of {row['examples']}") for row in rows]
    caption = (
        "Share of wanted examples against the probability said, both sides weighing the same; pale: where they agree."
    )
    buckets, least = book.statistic("scores", "by_bucket"), book.stage("scores").manifest["config"].get("buckets", {})
    total = max(sum(entry["documents"] for entry in buckets.values()), 1)
    bars = [
        (
            name,
            entry["documents"],
            f"{words.count(entry['documents'])} · {words.share(entry['documents'] / total)}",
            "accent",
        )
        for name, entry in sorted(buckets.items(), key=lambda item: -least.get(item[0], -1.0))
    ]
    yield Charts(
        [
            Chart(drawn, caption, "Reliability", data),
            figures.bars(bars, "Documents of the corpus by bucket.", "Quality buckets", figures.HALF),
        ]
    )


def _histograms(book: Book) -> Iterable[Block]:
    """Quality by source"""
    held = book.optional("scores", "histograms")
    if not held:
        return
    ordered = sorted(held.items(), key=lambda item: (-sum(item[1]), item[0]))[:SOURCES]
    # each source's own distribution, so that a small one can be compared with a large one
    rows = [(source, [count / max(sum(bins), 1) for count in bins]) for source, bins in ordered]
    drawn = charts.heat(rows, "quality, from 0 to 1", max(max(bins) for _, bins in rows))
    means = [
        (source, f"mean {sum(share * (at + 0.5) / len(bins) for at, share in enumerate(bins)):.2f}")
        for source, bins in rows
    ]
    yield Chart(drawn, "How the documents of each source are spread over the scale.", "Quality by source", means)


def _telling(book: Book) -> Iterable[Block]:
    """What the classifier has learned"""
    told = book.optional("scores", "telling")
    if not told:
        return
    for side, title in (("positive", "speak for a text"), ("negative", "speak against it")):
        rows = [
            [
                Verbatim(" / ".join(entry["ngrams"])),
                f"{entry['weight']:+.2f}",
                words.share(entry["positives"]),
                words.share(entry["negatives"]),
            ]
            for entry in told[side]
        ]
        columns = ("n-gram", "#weight", "#positives with it", "#negatives with it")
        caption = "By weight times frequency. Several n-grams in a row share a hash."
        yield Fold(f"The n-grams that {title}", [Table(columns, rows, caption)])


def _judge(book: Book) -> Iterable[Block]:
    """The language model's grades"""
    s = book.optional("scores", "judge")
    if not s:
        return
    grades = ", ".join(f"{axis} {value:.2f}" for axis, value in s["means"].items()) or "none"
    itself, other = s["itself"], s["classifier"]
    yield Prose(
        f"A language model graded {words.count(s['graded'])} of {words.count(s['asked'])} sampled documents from 0 to "
        f"5 ({words.count(s['refused'])} refused, {words.count(s['unparsable'])} answers without grades): {grades} in "
        f"the mean. Asked again in another order about {words.count(itself['documents'])} of them, "
        f"{_share(itself['same'])} of its grades were the same. Its rank correlation with the classifier is "
        f"{_correlation(other['spearman'])} over {words.count(other['documents'])} documents, with itself "
        f"{_correlation(itself['spearman'])}."
    )


def _share(value: float | None) -> str:
    return "no share" if value is None else words.share(value)


def _correlation(value: float | None) -> str:
    return "undefined (too few, or all the same)" if value is None else f"{value:+.2f}"


CHAPTER = Chapter(
    "mix",
    "Quality and mix",
    ("scores", "mix"),
    _summary,
    (
        *(_domains, _table, _reliability, _histograms, _telling, _judge),
        *(everything("scores"), everything("mix")),
    ),
)
