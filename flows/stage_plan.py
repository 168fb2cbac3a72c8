"""`openk2 plan stages`: the schedule of a preset as tables, a chart, JSON or a page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.preset import Preset, load_preset
from flows.request import Request
from flows.tables import amount, styled, table
from tasks.report import words
from tasks.report.braille import Curve, Panel, draw
from training.schedule import StagePlan
from training.token_plan import stage_rows

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from tasks.artifact import Artifact
    from training.config import PretrainConfig
    from training.loader import Loader
    from training.schedule import Span


LOOKED_AT = 64  # samples of a long stage, to see how long its documents are
MOSTLY = 0.5  # share of its positions in short documents from which there is a warning


@dataclass(frozen=True)
class StageLine:
    """One stage; updates count from 1, tokens to its border as configured."""

    name: str
    updates: int
    """In the run: the update that crosses a border belongs to the stage before it."""
    updates_alone: int
    """Its tokens over those of an update, to the nearest."""
    first_update: int
    last_update: int
    tokens: int
    tokens_so_far: int
    samples: int
    shards_so_far: int
    sequence_length: int
    batch: int
    tokens_per_update: int
    rate_from: float
    """The learning rate at its start, by its curve."""
    rate_to: float
    """That of its last update."""
    rate_shape: str
    """`constant`, `linear` or `cosine`."""
    rate_goes_on: bool
    """Whether it goes on with the curve of the stage before."""
    yarn_factor: float
    window: int
    """Positions that the model reaches: its own window times the factor."""
    stream: int
    """Stages of one stream read on in the same order of samples."""
    kind: str
    """`windows` or `best_fit`."""
    document_tokens_min: int
    """Shorter documents are left out."""
    mix: dict[str, float] | None
    mix_changes: list[dict[str, Any]]


@dataclass(frozen=True)
class Corpus:
    """The token shards that the preset's tokens stage has published, as the plan reads them."""

    uri: str
    tokens: int
    epochs: list[dict[str, float]]
    """For each stream, how often it goes through each domain."""
    short: dict[str, float]
    """For each stage with samples longer than the model's own window, the share of its positions in documents (as far
    as their samples hold them) that are no longer than that window: they learn nothing of what lies further back."""


@dataclass(frozen=True)
class Schedule:
    """The answer."""

    preset: str
    updates: int
    tokens: int
    """The last update's excess included."""
    shard_bytes: int
    stages: list[StageLine]
    least_tokens: int
    """That the gate of the token shards asks for."""
    corpus: Corpus | None
    """None where no shards have been published."""


def plan_stages(request: Request) -> tuple[Schedule, StagePlan]:
    """The schedule of the preset that `request` names, and the stages themselves. Raises PresetError where they do not
    add up, OrderError where they read published shards more often than `most_epochs` allows."""
    preset = load_preset(request)
    stages = preset.pretrain.stages
    schedule = Schedule(
        preset=request.name,
        updates=stages.updates,
        tokens=stages.tokens,
        shard_bytes=preset.tokens.shard_bytes,
        stages=_lines(preset),
        least_tokens=preset.gates.tokens.tokens,
        corpus=_corpus(request, preset),
    )
    return schedule, stages


def _lines(preset: Preset) -> list[StageLine]:
    plan = preset.pretrain.stages
    lines = []
    for at, (span, row) in enumerate(zip(plan.spans, stage_rows(plan, preset.tokens.shard_bytes), strict=True)):
        stage = span.stage
        start, end = (plan.rate(at, border) for border in plan.borders(at))
        lines.append(
            StageLine(
                name=stage.name,
                updates=span.updates,
                updates_alone=row.updates_alone,
                first_update=span.first_update + 1,
                last_update=span.first_update + span.updates,
                tokens=row.tokens,
                tokens_so_far=row.tokens_so_far,
                samples=row.samples,
                shards_so_far=row.shards_so_far,
                sequence_length=stage.sequence_length,
                batch=stage.batch,
                tokens_per_update=stage.tokens_per_update,
                rate_from=start,
                rate_to=end,
                rate_shape=_shape(plan, at),
                rate_goes_on=stage.rate is None,
                yarn_factor=stage.yarn_factor,
                window=int(preset.pretrain.model.max_position_embeddings * stage.yarn_factor),
                stream=span.stream,
                kind=stage.samples,
                document_tokens_min=stage.document_tokens_min,
                mix=stage.mix,
                mix_changes=[change.model_dump() for change in stage.mix_changes],
            )
        )
    return lines


def _shape(plan: StagePlan, at: int) -> str:
    curve = next(stage.rate for stage in reversed(plan.stages[: at + 1]) if stage.rate)
    return "constant" if curve.start == curve.end else curve.shape


def _corpus(request: Request, preset: Preset) -> Corpus | None:
    from model.storage import is_local, local_path
    from tasks.artifact import NotReady

    if is_local(request.root) and not (local_path(request.root) / "tokens").exists():
        return None  # the steps' identities take seconds, and there is nothing that could have one
    from flows.steps import graph

    try:
        artifact = graph(request, preset)["tokens"].artifact()
    except NotReady:
        return None
    return None if artifact is None else corpus_of(preset.pretrain, artifact)


def corpus_of(config: PretrainConfig, artifact: Artifact) -> Corpus:
    """How a run of `config` reads these token shards. Raises OrderError where `most_epochs` does not allow it, or the
    mix asks for what is not there."""
    from training.cache import Cache
    from training.mesh import Mesh
    from training.streams import Streams

    streams = Streams(config, artifact.uri, Cache.from_environment(), Mesh(), ())
    try:
        streams.require()
        long = [span for span in config.stages.spans if span.stage.sequence_length > _window(config)]
        short = {span.stage.name: _short(config, streams.loaders[span.stream], span) for span in long}
        return Corpus(artifact.uri, artifact.statistics["tokens"], streams.epochs(), short)
    finally:
        streams.close()


def _window(config: PretrainConfig) -> int:
    return config.model.max_position_embeddings


def _short(config: PretrainConfig, loader: Loader, span: Span) -> float:
    """Found in LOOKED_AT samples of a stage, evenly spaced."""
    samples = span.updates * span.stage.batch
    short = total = 0
    for place in range(min(LOOKED_AT, samples)):
        batch = loader.batch(span.first_sample + place * samples // min(LOOKED_AT, samples), 1)
        documents_S = batch.document_ids_BS[0].long()
        lengths = documents_S[documents_S >= 0].bincount()  # padding has -1
        total += int(lengths.sum())
        # without separate_documents attention reaches back over all of them
        short += int(lengths[lengths <= _window(config)].sum()) if config.separate_documents else 0
    return short / max(1, total)


def to_json(schedule: Schedule) -> str:
    """All of the schedule."""
    return json.dumps(dataclasses.asdict(schedule), indent=1) + "\n"


# -------------------------------------------------------------------------------------------------------------- display


def render(schedule: Schedule, stages: StagePlan, width: int) -> Iterator[RenderableType]:
    """The schedule for a terminal of so many columns."""
    from rich.text import Text

    yield styled(
        (schedule.preset, "bold"),
        f": {words.count(schedule.updates)} updates, "
        f"{amount(schedule.stages[-1].tokens_so_far)} tokens, in {len(schedule.stages)} stages",
    )
    yield ""
    yield _lengths(schedule)
    yield styled(
        (
            "alone: its tokens over those of an update. Σ: from the start of the run to the stage's border as "
            "configured; the update that crosses a border belongs to the stage it starts in.",
            "dim",
        )
    )
    yield ""
    yield _updates(schedule)
    yield styled(
        (
            "↳ goes on with the curve of the stage before, over the tokens of both. Stages of one stream read on in "
            "one order of samples; another stream begins at its sample 0.",
            "dim",
        )
    )
    yield ""
    for line in draw(*_drawing(schedule, stages), width=min(width, 100)):
        yield Text(line)
    yield styled(("Each stage has a scale of its own; under its right border are the tokens so far.", "dim"))
    yield ""
    yield from _mixes(schedule)
    yield from _reading(schedule)


def _lengths(schedule: Schedule) -> Table:
    rows = table("stage", "updates", "alone", "first", "last", "tokens", "Σ tokens", "Σ shards")
    for line in schedule.stages:
        rows.add_row(
            line.name,
            *(words.count(each) for each in (line.updates, line.updates_alone, line.first_update, line.last_update)),
            amount(line.tokens),
            amount(line.tokens_so_far),
            words.count(line.shards_so_far),
        )
    return rows


def _updates(schedule: Schedule) -> Table:
    rows = table("an update of", "sequence", "batch", "tokens", "learning rate", "YaRN", "window", "stream")
    for line in schedule.stages:
        rows.add_row(
            line.name,
            words.count(line.sequence_length),
            words.count(line.batch),
            amount(line.tokens_per_update),
            rate_words(line),
            f"{line.yarn_factor:g}",
            words.count(line.window),
            f"{line.stream}",
        )
    return rows


def _drawing(schedule: Schedule, stages: StagePlan) -> tuple[list[Panel], list[Curve]]:
    panels = [Panel(line.name, line.tokens, (amount(line.tokens_so_far),)) for line in schedule.stages]

    def rate(at: int, share: float) -> float:
        start, end = stages.borders(at)
        return stages.rate(at, start + share * (end - start))

    def sequence(at: int, share: float) -> float:
        return schedule.stages[at].sequence_length

    return panels, [Curve("learning rate", rate, 11, number), Curve("sequence", sequence, 3, words.count)]


def _mixes(schedule: Schedule) -> Iterator[str]:
    for line in schedule.stages:
        if line.kind == "best_fit":
            long = f" of {line.document_tokens_min:,} tokens and more" if line.document_tokens_min else ""
            yield f"{line.name}: rows of whole documents{long} (best fit)"
        changes = [{"sample": 0, "mix": line.mix}, *line.mix_changes]
        if any(change["mix"] is not None for change in changes):
            for change in changes:
                yield f"mix of {line.name}, from its sample {change['sample']:,}: {mix_words(change['mix'])}"


def _reading(schedule: Schedule) -> Iterator[str | Text]:
    """How often the run reads what it has, or what the gate asks for at least."""
    planned = schedule.stages[-1].tokens_so_far
    if schedule.corpus is None:
        yield (
            f"No shards are published yet. Of the {amount(schedule.least_tokens)} tokens that their gate asks for at "
            f"least, this reads {amount(planned)}: {planned / schedule.least_tokens:.3g} epochs."
        )
        return
    yield f"The shards at {schedule.corpus.uri} hold {amount(schedule.corpus.tokens)} tokens. Epochs:"
    for stream, epochs in enumerate(schedule.corpus.epochs):
        yield f"  stream {stream}: " + ", ".join(f"{domain} {count:.3g}" for domain, count in epochs.items())
    for line in schedule.stages:
        if (share := schedule.corpus.short.get(line.name, 0)) > MOSTLY:
            own = words.count(int(line.window / line.yarn_factor))
            yield styled(
                ("!", "yellow"),
                f" {line.name}: {words.share(share)} of its positions lie in documents of at most {own} tokens, the "
                "model's own window, and learn nothing of what lies further back. Choose long documents with samples: "
                "best_fit and document_tokens_min; documents are cut at corpus.document_chars_max.",
            )


def rate_words(line: StageLine) -> str:
    """`0 → 2e-4 linear`."""
    mark = "↳ " if line.rate_goes_on else ""
    if line.rate_shape == "constant":
        return f"{mark}{number(line.rate_to)} constant"
    return f"{mark}{number(line.rate_from)} → {number(line.rate_to)} {line.rate_shape}"


def mix_words(mix: dict[str, float] | None) -> str:
    """Shares of a mix."""
    if mix is None:
        return "the corpus as it is"
    total = sum(mix.values())
    return ", ".join(f"{name} {words.share(weight / total)}" for name, weight in mix.items())


def number(rate: float) -> str:
    """A learning rate as people write it: `2e-4`."""
    if not rate or rate >= 0.1:
        return f"{rate:.3g}"
    digits, power = f"{rate:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
