"""The schedule of a preset as blocks: tables, the learning rate over the run and over each stage, the windows."""

from __future__ import annotations

from expectations.config import TokensGate
from flows.stage_plan import MOSTLY, Schedule, mix_words, number, rate_words
from flows.tables import amount
from tasks.report import figures, words
from tasks.report.blocks import Chart, Charts, Document, Headline, Prose, Section, Table
from tasks.report.charts import Band, Line
from training.schedule import StagePlan, unmeasured_words, unread_words

POINTS = 64  # of a stage's curve


def document(schedule: Schedule, stages: StagePlan) -> Document:
    """All of it, for a page or a terminal."""
    last = schedule.stages[-1]
    return Document(
        title=f"The stages of {schedule.preset}",
        subtitle=f"`openk2 plan stages --preset {schedule.preset}`",
        lead="Borders are counts of tokens; the update that crosses one belongs to the stage it starts in, and an "
        "update runs at the rate of the tokens consumed when it is done.",
        headline=Headline(
            [
                (words.count(schedule.updates), "updates", f"{len(schedule.stages)} stages"),
                (amount(last.tokens_so_far), "tokens", f"{words.count(schedule.tokens)} in whole updates"),
                (words.count(last.shards_so_far), "shards", f"of {words.size(schedule.shard_bytes, binary=True)}"),
            ]
        ),
        sections=[
            Section("lengths", "How long each stage is", "", [_lengths(schedule)]),
            Section("updates", "What an update of it does", "", [_updates(schedule), *map(Prose, _mixes(schedule))]),
            Section("rate", "Learning rate", "", [_rate(schedule, stages), Charts(_each(schedule, stages))]),
            Section("window", "Sequence and window", "", [_window(schedule)]),
            Section("corpus", "How often the corpus is read", "", list(map(Prose, _reading(schedule)))),
        ],
    )


def _lengths(schedule: Schedule) -> Table:
    rows = [
        [
            line.name,
            *(words.count(each) for each in (line.updates, line.updates_alone, line.first_update, line.last_update)),
            *(amount(each) for each in (line.tokens, line.tokens_so_far)),
            words.count(line.samples),
            words.count(line.shards_so_far),
        ]
        for line in schedule.stages
    ]
    columns = ("stage", "#updates", "#alone", "#first", "#last", "#tokens", "#Σ tokens", "#sequences", "#Σ shards")
    caption = "Alone: its tokens over those of an update. Σ: from the start of the run to the border as configured."
    return Table(columns, rows, caption)


def _updates(schedule: Schedule) -> Table:
    rows = [
        [
            line.name,
            *(words.count(each) for each in (line.sequence_length, line.batch)),
            amount(line.tokens_per_update),
            rate_words(line),
            f"{line.yarn_factor:g}",
            words.count(line.window),
            f"{line.stream}",
        ]
        for line in schedule.stages
    ]
    columns = ("stage", "#sequence", "#batch", "#tokens", "#learning rate", "#YaRN", "#window", "stream")
    caption = (
        "↳ goes on with the curve of the stage before, over the tokens of both. Stages of one stream read on in one "
        "order of samples; another stream begins at its sample 0."
    )
    return Table(columns, rows, caption)


def _mixes(schedule: Schedule) -> list[str]:
    """The mixes of the stages that have one, with their changes."""
    said = []
    for line in schedule.stages:
        if line.kind == "best_fit":
            long = f" of {line.document_tokens_min:,} tokens and more" if line.document_tokens_min else ""
            said.append(f"{line.name}: rows of whole documents{long} (best fit)")
        changes = [{"sample": 0, "mix": line.mix}, *line.mix_changes]
        if any(change["mix"] is not None for change in changes):
            said += [
                f"mix of {line.name}, from its sample {change['sample']:,}: {mix_words(change['mix'])}"
                for change in changes
            ]
    return said


def _reading(schedule: Schedule) -> list[str]:
    """How often the run reads what it has, or what the gate asks for at least, if it does; a warning for every stage
    whose window is wasted on short documents, or whose held-out text is too short for it."""
    planned = schedule.stages[-1].tokens_so_far
    if schedule.corpus is None:
        if schedule.least_tokens == TokensGate().tokens:  # the default, which says nothing of a corpus
            return ["No shards are published yet."]
        return [
            f"No shards are published yet. Of the {amount(schedule.least_tokens)} tokens that their gate asks for at "
            f"least, this reads {amount(planned)}: {planned / schedule.least_tokens:.3g} epochs."
        ]
    epochs = (
        f"stream {stream}: " + ", ".join(f"{domain} {count:.3g}" for domain, count in epochs.items())
        for stream, epochs in enumerate(schedule.corpus.epochs)
    )
    said = [f"The shards hold {amount(schedule.corpus.tokens)} tokens, read in epochs: {'; '.join(epochs)}."]
    if (copies := schedule.corpus.copies) > 1:
        passes: dict[str, float] = {}
        for domain, count in (pair for epochs in schedule.corpus.epochs for pair in epochs.items()):
            passes[domain] = passes.get(domain, 0.0) + count
        most = max(passes, key=lambda domain: passes[domain])
        said.append(
            f"The shards hold a document up to {copies} times (the mix's epochs) and the run goes through {most} "
            f"{passes[most]:.3g} times: it reads a document up to {copies * passes[most]:.3g} times."
        )
    if schedule.corpus.unread:
        said.append(f"**Unread**: {unread_words(schedule.corpus.unread, schedule.corpus.unread_share)}.")
    for line in schedule.stages:
        if (share := schedule.corpus.short.get(line.name, 0)) > MOSTLY:
            own = words.count(int(line.window / line.yarn_factor))
            said.append(
                f"**{line.name}**: {words.share(share)} of its positions lie in documents of at most {own} tokens, the "
                "model's own window, and learn nothing of what lies further back. Choose long documents with `samples: "
                "best_fit` and `document_tokens_min`; documents are cut at `corpus.document_chars_max`."
            )
        if line.name in schedule.corpus.unmeasured:
            said.append(f"**{line.name}** {unmeasured_words(line.sequence_length)}.")
    return said


def _curve(stages: StagePlan, at: int) -> Line:
    start, end = stages.borders(at)
    xs = [start + (end - start) * point / POINTS for point in range(POINTS + 1)]
    return Line(stages.stages[at].name, xs, [stages.rate(at, x) for x in xs], "warm")


def _rate(schedule: Schedule, stages: StagePlan) -> Chart:
    curves = [_curve(stages, at) for at in range(len(stages.stages))]
    whole = Line("learning rate", [x for c in curves for x in c.xs], [y for c in curves for y in c.ys], "warm")
    bands = [Band(line.name, *stages.borders(at)) for at, line in enumerate(schedule.stages)]
    return figures.lines(
        [whole], "tokens", "Over the whole run.", bands=bands, y_format=number, y_range=(0.0, 1.05 * max(whole.ys))
    )


def _each(schedule: Schedule, stages: StagePlan) -> list[Chart]:
    """A small chart of each stage: over the whole run a short warm-up is a line upwards."""
    drawn = []
    for at, line in enumerate(schedule.stages):
        curve = _curve(stages, at)
        caption = f"{rate_words(line)}, {words.count(line.updates)} updates"
        drawn.append(
            figures.lines([curve], "tokens", caption, line.name, width=figures.HALF, height=190, y_format=number)
        )
    return drawn


def _window(schedule: Schedule) -> Chart:
    xs: list[float] = []
    lengths: list[float] = []
    windows: list[float] = []
    for line in schedule.stages:
        xs += [line.tokens_so_far - line.tokens, line.tokens_so_far]
        lengths += [line.sequence_length] * 2
        windows += [line.window] * 2
    series = [Line("window", xs, windows, "math"), Line("sequence", xs, lengths, "accent")]
    caption = "Positions that the model reaches (its own window times YaRN's factor), and the samples' length."
    return figures.lines(series, "tokens", caption, y_format=words.count, log=True, height=200)
