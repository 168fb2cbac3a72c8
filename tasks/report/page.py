"""The report: one page a person reads after a run, and the same as markdown, from manifests alone.

html, markdown = build_report(graph(request).newest())
publish_report(graph(request).newest(), "data")     # and keeps data/report.html beside the artifacts
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from model import storage
from model.config import Config
from tasks.artifact import Artifact, Step
from tasks.report import html, markdown, words
from tasks.report.blocks import Document, Headline, Problem
from tasks.report.book import Absent, Book, NotRun, column
from tasks.report.chapter import safely
from tasks.report.chapters import (
    corpus,
    dialogues,
    gates,
    mix,
    posttraining,
    pretraining,
    release,
    rewrites,
    rollouts,
    run,
    suites,
    tokens,
    tools,
)
from tasks.report.charts import smooth

VERSION = 9  # raise it where the same inputs give other bytes (tasks/code.py)

CHAPTERS = (
    corpus.CHAPTER,
    gates.CHAPTER,
    rewrites.CHAPTER,
    mix.CHAPTER,
    tokens.CHAPTER,
    pretraining.CHAPTER,
    tools.CHAPTER,
    dialogues.CHAPTER,
    posttraining.SFT,
    posttraining.RL,
    rollouts.CHAPTER,
    release.RELEASE,
    release.EVALUATION,
    suites.CHAPTER,
    run.TIME,
    run.LINEAGE,
    run.SETTINGS,
)


class ReportConfig(Config):
    """The report has no literals of its own: what it shows decides what it is."""


def build_report(steps: Sequence[Step]) -> tuple[str, str]:
    """(html, markdown) of the recipe's steps, whatever of them is published; never raises for what is missing."""
    document = compose(Book(steps))
    return html.page(document), markdown.markdown(document)


def publish_report(steps: Sequence[Step], root: str) -> Artifact:
    """Write the page and the markdown anew and publish them, with a copy at `{root}/report.html`.

    Anew, since a gate that failed since or a stage that was made again changes the page and no fingerprint.
    """
    done = set(Book(steps).done)
    inputs = tuple(step for step in steps if step.name in done)
    step = Step.of("report", "tasks.report.page", ReportConfig(), root, inputs)
    step.begin(alone=False)  # `openk2 report` waits for no run
    page, text = build_report(steps)
    step.put("page", ".html", lambda path: path.write_text(page, encoding="utf-8"))
    step.put("markdown", ".md", lambda path: path.write_text(text, encoding="utf-8"))
    statistics = {"steps": len(steps), "complete": len(step.inputs), "bytes": len(page.encode())}
    artifact = step.publish(statistics, ["page", "markdown"])
    storage.write(f"{root.rstrip('/')}/report.html", page.encode())
    return artifact


def compose(book: Book) -> Document:
    """The report as blocks."""
    finished = [book.stage(name).manifest["finished"] for name in book.done]
    when = f"Last step finished {max(finished).replace('T', ' ').removesuffix('Z')} UTC. " if finished else ""
    return Document(
        title="From documents to a model: one run of the K2 recipe",
        subtitle=f"{when}{len(book.done)} of {len(book.steps)} steps complete.",
        lead=_lead(book),
        headline=Headline(_figures(book)),
        sections=[chapter.write(book) for chapter in CHAPTERS],
    )


def _lead(book: Book) -> str:
    if not book.done:
        return "Nothing has been run yet: `openk2 run` begins with the sources."
    found = safely(lambda book: filter(book.blocked, gates.names(book)), book, "the gates that stopped the run")
    blocked = [name for name in found if isinstance(name, str)]  # the chapter of the gates says what cannot be read
    stopped = f" **{', '.join(blocked)} stopped the run.**" if blocked else ""
    return f"Every number on this page comes from the records that the stages left behind.{stopped}"


Figure = tuple[str, str, str]


def _figures(book: Book) -> list[Figure]:
    """The headline: what can be said so far. A figure that cannot be made is left out: its chapter says why."""
    makers = (_text, _accepted, _tokens, _loss, _rate, _size, _expectations, _time)
    found = [figure for maker in makers for figure in safely(maker, book, f"the headline's {maker.__name__[1:]}")]
    return [figure for figure in found if not isinstance(figure, Problem)]


def _told(book: Book, name: str, statistic: str) -> str:
    return words.count(book.optional(name, statistic, default=0))


def _text(book: Book) -> Iterable[Figure]:
    if book.has("corpus"):
        s = book.stage("corpus").statistics
        remark = f"{words.count(s.get('documents', 0))} documents, {len(s.get('by_source', {}))} sources"
        yield words.size(s.get("bytes", 0)), "curated text", remark


def _accepted(book: Book) -> Iterable[Figure]:
    if (rate := book.optional("rewrites", "acceptance_rate")) is not None:
        yield words.share(rate), "rewrites accepted", f"of {_told(book, 'rewrites', 'segments')} attempts"


def _tokens(book: Book) -> Iterable[Figure]:
    if (count := book.optional("tokens", "tokens")) is not None:
        yield words.short(count), "training tokens", f"vocabulary {_told(book, 'tokens', 'vocabulary')}"


def _loss(book: Book) -> Iterable[Figure]:
    try:
        losses = smooth(column(book.events("base", "update"), "loss"))
    except (Absent, NotRun):
        return
    yield f"{losses[-1]:.3f}", "training loss, nats", f"from {losses[0]:.2f}"


def _rate(book: Book) -> Iterable[Figure]:
    before, after = (book.optional("rl", when, "sampled") for when in ("before", "after"))
    if before is not None and after is not None:
        remark = f"from {words.share(before)} after SFT, seed {book.optional('rl', 'seed', default=words.NOTHING)}"
        yield words.share(after), "held-out pass rate after RL", remark


def _size(book: Book) -> Iterable[Figure]:
    if (size := book.optional("release", "int4_bytes")) is not None:
        whole = words.size(book.optional("release", "bf16_bytes", default=0))
        yield words.size(size), "INT4 release", f"{whole} in bf16"


def _expectations(book: Book) -> Iterable[Figure]:
    names = gates.names(book)
    if judged := [one for _, expectations, _ in gates.verdicts(book) for one in expectations]:
        remark = f"{sum(map(book.has, names))} of {len(names)} gates passed"
        yield f"{sum(one['success'] for one in judged)} of {len(judged)}", "expectations hold", remark


def _time(book: Book) -> Iterable[Figure]:
    manifests = [book.stage(name).manifest for name in book.done]
    money = sum(manifest["cost"].get("money", 0.0) for manifest in manifests)
    remark = f"cost {money:,.2f}" if money else f"{len(manifests)} steps"
    seconds = sum(manifest["seconds"] for manifest in manifests)
    yield words.duration(seconds), "time of all steps", remark
