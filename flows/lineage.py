"""Lineage: from a token, a rewrite or a document to its origin, and on to the updates that read it.

An identifier is one of
- a document's or a rewrite's id, or the start of it;
- `base:STEP:POSITION`: the token at POSITION of the global batch of pretraining's update STEP (from 1), counted
  sample after sample from 0;
- `sample:ID:POSITION`: the token at POSITION of sample ID of pretraining's first stream.

`trace` answers with a record of plain values; `render` makes it a tree for the terminal. Reads manifests, indices and
the rows asked for; runs nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow.compute as pc
import pyarrow.parquet as pq

from flows.request import Request
from tasks.artifact import Artifact

if TYPE_CHECKING:
    from rich.tree import Tree

    from flows.dag import Dag
    from training.config import PretrainConfig
    from training.streams import Streams

SHOWN = 24  # tokens shown on either side of the one asked for
HEAD = 160  # characters shown of a text


class LineageError(ValueError):
    """An identifier that names nothing, or more than one thing."""


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
    from flows.dag import dag

    return trace_in(dag(request), identifier)


def trace_in(plan: Dag, identifier: str) -> Trace:
    """The lineage of `identifier` among the artifacts of `plan`."""
    if identifier.startswith(("base:", "sample:")):
        token, name = _token(plan, identifier)
        return _document(plan, identifier, name, token)
    if not identifier.strip():
        raise LineageError("give a document id (or its start), a rewrite id, base:STEP:POSITION or sample:ID:POSITION")
    return _document(plan, identifier, identifier.strip().lower(), None)


def _document(plan: Dag, identifier: str, name: str, token: Token | None) -> Trace:
    """The chain from a document or rewrite whose id starts with `name`."""
    corpus, rewrites = plan.corpus.require(), plan.rewrites.artifact()
    found = dict(_rows(corpus, "documents", "id", name))
    made = dict(_rows(rewrites, "rewrites", "id", name)) if rewrites else {}
    if not found and not made:
        dropped = dict(_rows(corpus, "rejected", "id", name))
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
    rewrite = next(iter(made.values()), None)
    if rewrite:
        name = str(rewrite["id"])
        sources = dict(_rows(corpus, "documents", "id", str(rewrite["source_id"])))
        document = sources.get(str(rewrite["source_id"]))
    else:
        document = next(iter(found.values()))
        name = str(document["id"])
    segments: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    if rewrite and rewrites:
        tried = _rows(rewrites, "segments", "source_id", str(rewrite["source_id"]))
        segments = [row for _, row in tried if row.get("style") == rewrite.get("style")]
        segments.sort(key=lambda row: (row.get("index", 0), row.get("attempt", 0)))
    elif rewrites:
        others = [
            {"id": row["id"], "style": row.get("style")} for _, row in _rows(rewrites, "rewrites", "source_id", name)
        ]
    return Trace(
        identifier=identifier,
        token=token,
        span=_span(plan.tokens.artifact(), name),
        rewrite=rewrite,
        segments=segments,
        document=document,
        rewrites=others,
        readings=_readings(plan, name),
    )


def _rows(artifact: Artifact, group: str, column: str, start: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, row) of every record of `group` whose `column` starts with `start`. Only that column is read in full."""
    for path in artifact.files(group):
        if column not in pq.read_schema(path).names:
            continue
        values = pq.read_table(path, columns=[column])[column]
        places = pc.indices_nonzero(pc.starts_with(values, pattern=start))
        if len(places):
            for row in pq.read_table(path).take(places).to_pylist():
                yield str(row.get("id", row[column])), row


def _span(tokens: Artifact | None, name: str) -> dict[str, Any] | None:
    if tokens is None:
        return None
    from training.shards import TokenShards

    found: dict[str, Any] | None = None
    for shard in TokenShards(tokens.uri):
        for row in pq.read_table(shard.index.local, filters=[("id", "==", name)]).to_pylist():
            if found is None:
                place = {"split": shard.split, "domain": shard.domain, "shard": shard.key}
                found = place | {"start": row["start"], "end": row["end"], "copies": 0}
            found["copies"] += 1
    return found


# ------------------------------------------------------------------------------------------------ pretraining's reading


def _pretraining(plan: Dag) -> PretrainConfig:
    return cast("PretrainConfig", plan.base.config)


def _streams(plan: Dag) -> Streams:
    """The samples as pretraining reads them: once it is done, past what its rollbacks and bad shards left out."""
    from training.cache import Cache
    from training.parallel import World
    from training.spikes import parse
    from training.streams import Streams

    base = plan.base.artifact()
    told = base.statistics if base is not None else {}
    rollbacks = parse(told.get("rollbacks", []))
    uri = plan.tokens.require().uri
    streams = Streams(_pretraining(plan), uri, Cache.from_environment(), World(), rollbacks)
    streams.skip(told.get("skipped", []))
    return streams


def _readings(plan: Dag, name: str) -> Readings | None:
    """Every update of pretraining's plan that reads the document `name`."""
    from training.spikes import planned

    tokens = plan.tokens.artifact()
    if tokens is None:
        return None
    spans = _pretraining(plan).stages.spans
    streams = _streams(plan)
    updates: set[int] = set()
    samples: list[tuple[int, int]] = []
    for stream, group in itertools.groupby(spans, key=lambda span: span.stream):
        stages = list(group)
        for sample in streams.loaders[stream].samples_of(name, streams.end(stream)):
            place = planned(streams.left_out[stream], sample)
            if place is None:
                continue  # a rollback left it out
            stage = [span for span in stages if span.first_sample <= place][-1]
            updates.add(stage.first_update + (place - stage.first_sample) // stage.stage.batch + 1)
            samples.append((stream, sample))
    return Readings(plan.base.artifact() is not None, sorted(updates), samples)


def _token(plan: Dag, identifier: str) -> tuple[Token, str]:
    """The token that `base:STEP:POSITION` or `sample:ID:POSITION` names, and the id of its document."""
    kind, *numbers = identifier.split(":")
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        raise LineageError(
            f"'{identifier}' is not of the form base:STEP:POSITION or sample:ID:POSITION (whole numbers)"
        )
    first, position = map(int, numbers)
    stages, streams = _pretraining(plan).stages, _streams(plan)
    update: int | None = None
    stream, sample = 0, first
    if kind == "base":
        if not 1 <= first <= stages.updates:
            raise LineageError(f"pretraining has the updates 1 to {stages.updates}, not {first}")
        record = stages.update(first)
        length, update, stream = record.stage.sequence_length, first, record.stream
        if position >= record.stage.batch * length:
            raise LineageError(
                f"update {first} reads the positions 0 to {record.stage.batch * length - 1}, not {position}"
            )
        sample, position = streams.first_sample(record) + position // length, position % length
    loader = streams.loaders[stream]
    if position >= loader.sequence_length:
        raise LineageError(f"a sample has the positions 0 to {loader.sequence_length - 1}, not {position}")
    spans = loader.describe(sample)
    span = next(span for span in spans if span.first <= position < span.first + span.end - span.start)
    ids = loader.batch(sample, 1).tokens_BS[0].tolist()[span.first : span.first + span.end - span.start]
    at = position - span.first
    before, text, after = _texts(plan, [ids[max(0, at - SHOWN) : at], ids[at : at + 1], ids[at + 1 : at + 1 + SHOWN]])
    name = str(span.document["id"])
    return Token(update, stream, sample, position, span.shard, span.start + at, before, text, after), name


def _texts(plan: Dag, pieces: Sequence[list[int]]) -> list[str]:
    from tasks.tokens.tokenizer import decode_bytes, load, sha256_of

    learned, tokens = plan.tokenizer.require(), plan.tokens.require()
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
    return text.replace("\n", "⏎").replace("\t", "→")
