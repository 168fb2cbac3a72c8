"""The schedule of a preset as one HTML page that loads nothing."""

from __future__ import annotations

from flows.stage_plan import Schedule, mix_words, number, rate_words
from flows.tables import amount
from tasks.report import figures, html, words
from tasks.report.blocks import Chart, Charts, Document, Headline, Section, Table
from tasks.report.charts import Band, Line
from training.schedule import StagePlan

POINTS = 64  # of a stage's curve


def page(schedule: Schedule, stages: StagePlan) -> str:
    """The page: tables, the learning rate over the run and over each stage, sequence and window."""
    last = schedule.stages[-1]
    return html.page(
        Document(
            title=f"The stages of {schedule.preset}",
            subtitle=f"`openk2 plan stages --preset {schedule.preset}`",
            lead="Borders are counts of tokens; the update that crosses one belongs to the stage it starts in, and an "
            "update runs at the rate of the tokens consumed when it is done.",
            headline=Headline(
                [
                    (words.count(schedule.updates), "updates", f"{len(schedule.stages)} stages"),
                    (amount(last.tokens_so_far), "tokens", f"{words.count(schedule.tokens)} in whole updates"),
                    (words.count(last.shards_so_far), "shards", f"of {words.size(schedule.shard_bytes)}"),
                ]
            ),
            sections=[
                Section("lengths", "How long each stage is", "", [_lengths(schedule)]),
                Section("updates", "What an update of it does", "", [_updates(schedule)]),
                Section("rate", "Learning rate", "", [_rate(schedule, stages), Charts(_each(schedule, stages))]),
                Section("window", "Sequence and window", "", [_window(schedule)]),
            ],
        )
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
            *(words.count(each) for each in (line.sequence_length, line.batch, line.tokens_per_update)),
            rate_words(line),
            f"{line.yarn_factor:g}",
            words.count(line.window),
            f"{line.stream}, {line.kind.replace('_', ' ')}",
            "; ".join(
                [
                    mix_words(line.mix),
                    *(f"from {change['sample']:,}: {mix_words(change['mix'])}" for change in line.mix_changes),
                ]
            ),
        ]
        for line in schedule.stages
    ]
    columns = ("stage", "#sequence", "#batch", "#tokens", "learning rate", "#YaRN", "#window", "stream", "mix")
    return Table(columns, rows, "↳: goes on with the curve of the stage before, over the tokens of both.")


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
