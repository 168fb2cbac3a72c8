"""Lineage: from a token, a rewrite or a document to its origin, and on to the updates that read it.

An identifier is one of
- a document's or a rewrite's id, or the start of it;
- `base:STEP:POSITION`: the token at POSITION of the global batch of pretraining's update STEP (from 1), counted
  sample after sample from 0;
- `base:STEP:RANK/WORLD:POSITION`: the same in the slice that RANK (from 0) of WORLD data-parallel ranks takes;
- `sample:NUMBER:POSITION`: the token at POSITION of sample ID of pretraining's first stream.

`trace` answers with a record of plain values; `render` makes it a tree for the terminal. Reads manifests, indices and
the rows asked for; runs nothing. Which batch a document was tokenised in says which few shards may hold it, and a shard
says its batch: no index of another shard is opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow.compute as pc
import pyarrow.parquet as pq

from flows.request import Request
from model.visible import visible
from tasks.artifact import Artifact, Part
from tasks.tokens.batches import PartBatch
from tasks.tokens.shards import batches_of, keys_of
from training.schedule import share

if TYPE_CHECKING:
    from rich.tree import Tree

    from flows.graph import Graph
    from tasks.tokens.config import TokensConfig
    from training.config import PretrainConfig
    from training.streams import Streams

SHOWN = 24  # tokens shown on either side of the one asked for
HEAD = 160  # characters shown of a text


FORMS = "base:STEP:POSITION, base:STEP:RANK/WORLD:POSITION or sample:NUMBER:POSITION"


class LineageError(ValueError):
    """An identifier that names nothing, or more than one thing."""


class Found(NamedTuple):
    """A row of a dataset, and the part that holds it."""

    name: str
    row: dict[str, Any]
    part: Part


@dataclass(frozen=True)
class Token:
    """One token of a training sample."""

    update: int | None
    """Pretraining's update that reads it, from 1."""
    stream: int
    sample: int
    position: int
    """Within the sample."""
    shard: str
    offset: int
    """Within the shard."""
    before: str
    text: str
    after: str


@dataclass(frozen=True)
class Readings:
    """Which updates of pretraining read a document."""

    trained: bool
    """Whether pretraining is done; otherwise these are what it will read."""
    updates: list[int]
    samples: list[tuple[int, int]]
    """(stream, sample id)."""


@dataclass(frozen=True)
class Trace:
    """The chain from what was asked to where it came from."""

    identifier: str
    token: Token | None = None
    span: dict[str, Any] | None = None
    """Where the document lies in the shards: split, domain, shard, start, end of the first of its `copies`."""
    rewrite: dict[str, Any] | None = None
    """Its row, where the document is a rewrite."""
    segments: list[dict[str, Any]] = field(default_factory=list)
    """Every attempt at a segment of the rewrite: prompt hash, engine, model, seed, scores, verdict."""
    document: dict[str, Any] | None = None
    """The original document's row: source, url, licence."""
    rejected: dict[str, Any] | None = None
    """Why curation dropped it, where it did."""
    rewrites: list[dict[str, Any]] = field(default_factory=list)
    """Accepted rewrites of an original document: id and style."""
    readings: Readings | None = None
    """None where no training can have read it."""


def trace(request: Request, identifier: str) -> Trace:
    """The lineage of `identifier` in the recipe of `request`; LineageError or NotReady in one sentence."""
    from flows.steps import graph

    return trace_in(graph(request), identifier)


def trace_in(graph: Graph, identifier: str) -> Trace:
    """The lineage of `identifier` among the artifacts of `graph`."""
    if identifier.startswith(("base:", "sample:")):
        token, name = _token(graph, identifier)
        return _document(graph, identifier, name, token)
    if not identifier.strip() or not identifier.isprintable():  # bytes of a shell that are no UTF-8 are in no id
        raise LineageError(f"give a document id (or its start), a rewrite id, {FORMS}")
    return _document(graph, identifier, identifier.strip().lower(), None)


def _document(graph: Graph, identifier: str, name: str, token: Token | None) -> Trace:
    """The chain from a document or rewrite whose id starts with `name`, or is that of `token`."""
    corpus, rewrites = graph["corpus"].require(), graph["rewrites"].artifact()
    batch = _batch(graph, token.shard) if token else None
    found = {one.name: one for one in _rows(corpus, "documents", "id", name, batch)}
    made = {one.name: one for one in _rows(rewrites, "rewrites", "id", name, batch)} if rewrites else {}
    if not found and not made:
        dropped = {one.name: one.row for one in _rows(corpus, "rejected", "id", name)}
        if len(dropped) == 1:
            return Trace(identifier, rejected=next(iter(dropped.values())))
        raise LineageError(
            f"no document or rewrite has an id that starts with '{name}' in {corpus.uri}"
            + (
                " (several rejected ones do: give more of it)"
                if dropped
                else ": copy one from the report or a shard's index"
            )
        )
    if len(found) + len(made) > 1:
        some = ", ".join(sorted([*found, *made])[:4])
        raise LineageError(f"'{name}' starts {len(found) + len(made)} ids ({some}, ...): give more of it")
    ((group, one),) = [("documents", one) for one in found.values()] + [("rewrites", one) for one in made.values()]
    document: dict[str, Any] | None = one.row
    rewrite: dict[str, Any] | None = None
    segments: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    if rewrites and group == "rewrites":
        rewrite, source = one.row, str(one.row["source_id"])
        document = next((row for name, row, _ in _rows(corpus, "documents", "id", source) if name == source), None)
        tried = _rows(rewrites, "segments", "source_id", source)
        segments = [row for _, row, _ in tried if row.get("style") == rewrite.get("style")]
        segments.sort(key=lambda row: (row.get("index", 0), row.get("attempt", 0), row.get("candidate", 0)))
    elif rewrites:
        of_it = _rows(rewrites, "rewrites", "source_id", one.name)
        others = [{"id": row["id"], "style": row.get("style")} for _, row, _ in of_it]
    span, readings = None, None
    if (tokens := graph["tokens"].artifact()) and rewrites:
        config = cast("TokensConfig", graph["tokens"].config)
        under = keys_of(config, corpus, rewrites, group, one.part, one.row)
        span, readings = _span(tokens, one.name, under), _readings(graph, one.name, under)
    return Trace(
        identifier=identifier,
        token=token,
        span=span,
        rewrite=rewrite,
        segments=segments,
        document=document,
        rewrites=others,
        readings=readings,
    )


def _batch(graph: Graph, shard: str) -> PartBatch:
    """The batch of the tokens stage that wrote a shard: its number is in the key."""
    config = cast("TokensConfig", graph["tokens"].config)
    number = int(shard.rpartition("/")[2].partition("-")[0])
    return batches_of(config, graph["corpus"].require(), graph["rewrites"].require())[number]


def _rows(artifact: Artifact, group: str, column: str, start: str, batch: PartBatch | None = None) -> Iterator[Found]:
    """Every record of `group` whose `column` starts with `start`, of the parts of `batch` only where one is given. Only
    that column is read in full."""
    for part in artifact.parts(group):
        if batch and (batch.group != group or part not in batch.parts):
            continue
        path = artifact.file(part)
        if column not in pq.read_schema(path).names:
            continue
        values = pq.read_table(path, columns=[column])[column]
        places = pc.indices_nonzero(pc.starts_with(values, pattern=start))
        if len(places):
            for row in pq.read_table(path).take(places).to_pylist():
                yield Found(str(row.get("id", row[column])), row, part)


def _span(tokens: Artifact, name: str, under: str) -> dict[str, Any] | None:
    """Where the document `name` lies in the shards whose keys begin with `under`."""
    from training.shards import TokenShards

    found = [(shard, row) for shard in TokenShards(tokens.uri).under(under) for row in shard.documents_named(name)]
    if not found:
        return None
    shard, row = found[0]
    place = {"split": shard.split, "domain": shard.domain, "shard": shard.key}
    return place | {"start": row["start"], "end": row["end"], "copies": len(found)}


# ------------------------------------------------------------------------------------------------ pretraining's reading


def _pretraining(graph: Graph) -> PretrainConfig:
    return cast("PretrainConfig", graph["base"].config)


def _streams(graph: Graph) -> Streams:
    """The samples as pretraining reads them: once it is done, past what its rollbacks and bad shards left out."""
    from training.cache import Cache
    from training.mesh import Mesh
    from training.spikes import parse
    from training.streams import Streams

    base = graph["base"].artifact()
    told = base.statistics if base is not None else {}
    rollbacks = parse(told.get("rollbacks", []))
    uri = graph["tokens"].require().uri
    streams = Streams(_pretraining(graph), uri, Cache.from_environment(), Mesh(), rollbacks)
    streams.skip(told.get("skipped", []))
    return streams


def _readings(graph: Graph, name: str, under: str) -> Readings:
    """Every update of pretraining's plan that reads the document `name`, which lies in shards under `under`."""
    from training.spikes import planned

    spans = _pretraining(graph).stages.spans
    streams = _streams(graph)
    updates: set[int] = set()
    samples: list[tuple[int, int]] = []
    for stream, loader in enumerate(streams.loaders):
        stages = [span for span in spans if span.stream == stream]
        for sample in loader.samples_of(name, streams.end(stream), under):
            place = planned(streams.left_out[stream], sample)
            if place is None:
                continue  # a rollback left it out
            stage = [span for span in stages if span.first_sample <= place][-1]
            updates.add(stage.first_update + (place - stage.first_sample) // stage.stage.batch + 1)
            samples.append((stream, sample))
    return Readings(graph["base"].artifact() is not None, sorted(updates), samples)


def _token(graph: Graph, identifier: str) -> tuple[Token, str]:
    """The token that `base:STEP:POSITION` or `sample:NUMBER:POSITION` names, and the id of its document."""
    form = re.fullmatch(r"(base|sample):(\d{1,18})(?::(\d{1,18})/(\d{1,18}))?:(\d{1,18})", identifier)
    if form is None or (form[1] == "sample" and form[3]):
        raise LineageError(f"'{identifier}' is not of the form {FORMS} (whole numbers of at most 18 digits)")
    first, position = int(form[2]), int(form[5])
    stages, streams = _pretraining(graph).stages, _streams(graph)
    update: int | None = None
    stream, sample = 0, first
    if form[1] == "base":
        if not 1 <= first <= stages.updates:
            raise LineageError(f"pretraining has the updates 1 to {stages.updates}, not {first}")
        record = stages.update(first)
        length, update, stream = record.stage.sequence_length, first, record.stream
        rank, world = (int(form[3]), int(form[4])) if form[3] else (0, 1)
        if rank >= world:
            raise LineageError(f"rank {rank} is not one of {world}: they count from 0")
        offset, size = share(record.stage.batch, rank, world)
        if position >= size * length:
            who = f"rank {rank} of {world} in update {first}" if form[3] else f"update {first}"
            raise LineageError(f"{who} reads the positions 0 to {size * length - 1}, not {position}")
        sample, position = streams.first_sample(record) + offset + position // length, position % length
    loader = streams.loaders[stream]
    if position >= loader.sequence_length:
        raise LineageError(f"a sample has the positions 0 to {loader.sequence_length - 1}, not {position}")
    holding = [span for span in loader.describe(sample) if span.first <= position < span.first + span.end - span.start]
    if not holding:
        raise LineageError(f"position {position} of sample {sample} is padding: no document stands there")
    span = holding[0]
    ids = loader.batch(sample, 1).tokens_BS[0].tolist()[span.first : span.first + span.end - span.start]
    at = position - span.first
    before, text, after = _texts(graph, [ids[max(0, at - SHOWN) : at], ids[at : at + 1], ids[at + 1 : at + 1 + SHOWN]])
    name = str(span.document["id"])
    return Token(update, stream, sample, position, span.shard, span.start + at, before, text, after), name


def _texts(graph: Graph, pieces: Sequence[list[int]]) -> list[str]:
    from tasks.tokens.tokenizer import decode_bytes, load, sha256_of

    learned, tokens = graph["tokenizer"].require(), graph["tokens"].require()
    if tokens.statistics["tokenizer_sha256"] != sha256_of(learned):
        raise LineageError(f"{tokens.uri} was made with another tokenizer.json than {learned.uri} has")
    tokenizer = load(learned.file("tokenizer"))
    return [decode_bytes(tokenizer, ids).decode(errors="replace") for ids in pieces]


# -------------------------------------------------------------------------------------------------------------- display


def render(found: Trace) -> Tree:
    """The trace as a tree: from the token outwards to the source."""
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(found.identifier, style="bold"))
    place = tree
    if found.token:
        token = found.token
        line = Text(f"token {token.position} of sample {token.sample} (stream {token.stream})")
        line.append(f", read by update {token.update}" if token.update else "")
        place = place.add(line)
        place.add(Text(_flat(token.before)) + Text(_flat(token.text), style="reverse") + Text(_flat(token.after)))
        place.add(Text(f"{token.shard} at token {token.offset:,}", style="dim"))
    if found.rejected:
        row = found.rejected
        place.add(Text(f"dropped by curation at {row['stage']}: {row['reason']} ({row['value']})", style="yellow"))
        place.add(Text(f"{row['source']}  {row['url']}"))
        place.add(Text(_flat(row.get("text_head") or ""), style="dim"))
        return tree
    if found.rewrite:
        place = _rewrite(place, found)
    if found.document:
        place = place.add(Text(f"document {found.document['id']}"))
        _facts(place, found.document, ("source", "url", "licence", "domain", "language", "meta"))
        place.add(Text(_flat(found.document["text"])[:HEAD], style="dim"))
        for row in found.rewrites:
            place.add(Text(f"rewritten as {row['id']} ({row['style']})"))
    if found.span:
        span = found.span
        copies = f", the first of {span['copies']} copies" if span["copies"] > 1 else ""
        tree.add(Text(f"{span['shard']}: tokens {span['start']:,} to {span['end']:,} ({span['split']}{copies})"))
    else:
        tree.add(Text("not tokenised, or left out by the mix", style="dim"))
    tree.add(Text(_read(found)))
    return tree


def _rewrite(place: Tree, found: Trace) -> Tree:
    from rich.text import Text

    row = found.rewrite or {}
    place = place.add(Text(f"rewrite {row['id']} ({row.get('style')})"))
    place.add(Text(_flat(str(row["text"]))[:HEAD], style="dim"))
    known = {"source_id", "style", "index", "attempt", "source_text", "rewrite_text", "accepted", "reason"}
    for segment in found.segments:
        verdict = "accepted" if segment.get("accepted") else f"refused: {segment.get('reason')}"
        branch = place.add(Text(f"segment {segment.get('index')}, attempt {segment.get('attempt')}: {verdict}"))
        _facts(branch, segment, tuple(name for name in segment if name not in known))
    return place


def _facts(place: Tree, row: dict[str, Any], names: tuple[str, ...]) -> None:
    from rich.text import Text

    for name in names:
        value = row.get(name)
        if value in (None, "", "{}", {}, []):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        place.add(Text(f"{name:<12} ", style="cyan") + Text(text))


def _read(found: Trace) -> str:
    if found.span and found.span["split"] == "heldout":
        return "held out: no update of training reads it"
    if found.readings is None:
        return "no shards yet: nothing has read it"
    updates = found.readings.updates
    verb = "was read by" if found.readings.trained else "will be read by (pretraining is not done)"
    if not updates:
        return f"{verb} no update: the plan's samples do not reach it"
    shown = ", ".join(map(str, updates[:12])) + (f", ... {updates[-1]}" if len(updates) > 12 else "")
    times = len(found.readings.samples)
    return f"{verb} {len(updates)} updates in {times} samples: {shown}"


def _flat(text: str) -> str:
    return visible(text.replace("\n", "⏎").replace("\t", "→"))
