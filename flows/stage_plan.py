"""`openk2 plan stages`: the schedule of a preset in figures; `flows.stage_page` shows it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.preset import Preset, load_preset
from flows.request import Request
from tasks.report import words
from training.schedule import StagePlan
from training.token_plan import StageRow, full_shard, stage_rows

if TYPE_CHECKING:
    from tasks.artifact import Artifact
    from training.config import PretrainConfig
    from training.loader import Loader
    from training.schedule import Span


LOOKED_AT = 64  # samples of a long stage, to see how long its documents are
MOSTLY = 0.5  # share of its positions in short documents from which there is a warning


@dataclass(frozen=True)
class StageLine(StageRow):
    """One stage; updates count from 1."""

    first_update: int
    last_update: int
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
    unmeasured: list[str] = field(default_factory=list)
    """Stages that will have no held-out loss: no held-out shard has a sample of their length."""
    unread: list[str] = field(default_factory=list)
    """Sources that the mixes ask for and no sample reads."""
    unread_share: float = 0.0
    """Of the tokens."""
    copies: int = 1
    """Of a document in the shards, at most, by the mix."""


@dataclass(frozen=True)
class Schedule:
    """The answer."""

    preset: str
    updates: int
    tokens: int
    """The last update's excess included."""
    shard_bytes: int
    """Of a full one."""
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
    shard_bytes = full_shard(preset.tokens.shard_bytes, preset.tokens.batch_bytes)
    schedule = Schedule(
        preset=request.name,
        updates=stages.updates,
        tokens=stages.tokens,
        shard_bytes=shard_bytes,
        stages=_lines(preset, shard_bytes),
        least_tokens=preset.gates.tokens.tokens,
        corpus=_corpus(request, preset),
    )
    return schedule, stages


def _lines(preset: Preset, shard_bytes: int) -> list[StageLine]:
    plan = preset.pretrain.stages
    lines = []
    for at, (span, row) in enumerate(zip(plan.spans, stage_rows(plan, shard_bytes), strict=True)):
        stage = span.stage
        start, end = (plan.rate(at, border) for border in plan.borders(at))
        lines.append(
            StageLine(
                **vars(row),
                first_update=span.first_update + 1,
                last_update=row.updates_so_far,
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
        steps = graph(request, preset)
        artifact, mix = steps["tokens"].artifact(), steps["mix"].artifact()
    except NotReady:
        return None
    most = mix.statistics["epochs_most"] if mix is not None else 1
    return None if artifact is None else corpus_of(preset.pretrain, artifact, math.ceil(most))


def corpus_of(config: PretrainConfig, artifact: Artifact, copies: int = 1) -> Corpus:
    """How a run of `config` reads these token shards, which hold a document up to `copies` times. Raises OrderError
    where `most_epochs` does not allow it, or the mix asks for what is not there."""
    from training.cache import Cache
    from training.mesh import Mesh
    from training.shards import TokenShards
    from training.streams import Streams

    cache = Cache.from_environment()
    streams, shards = Streams(config, artifact.uri, cache, Mesh(), ()), TokenShards(artifact.uri, cache)
    try:
        streams.require()
        long = [span for span in config.stages.spans if span.stage.sequence_length > _window(config)]
        short = {span.stage.name: _short(config, streams.loaders[span.stream], span) for span in long}
        unmeasured = [
            stage.name
            for stage in config.stages.stages
            if "heldout" not in shards.splits or not any(shards.windows("heldout", stage.sequence_length).values())
        ]
        tokens, (unread, share) = artifact.statistics["tokens"], streams.unread()
        return Corpus(artifact.uri, tokens, streams.epochs(), short, unmeasured, unread, share, copies)
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
