"""Batches of next-token samples from token shards: any sample by its id, with no index, on any number of ranks.

    loader = Loader(tokens_uri, "train", {"web": 0.4, "code": 0.3, "math": 0.2, "knowledge/books": 0.1}, seed=0,
                    sequence_length=4096)
    offset, count = share(global_batch, rank, world)
    loader.prefetch([((step + 1) * global_batch + offset, count)])
    batch = loader.batch(step * global_batch + offset, count)

`batch` depends on nothing but the ids and the skipped shards, so the global stream is the same for any number of ranks,
workers and restarts, and the whole state of a loader is the next sample id and the skipped shards. Local shards are
memory-mapped: nothing is read but what was asked for. Remote ones come whole into the cache of the machine where all of
them fit, and are read in checked parts where they do not.

Legend: B samples, S sequence length, D sources, G shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from model import storage
from training.cache import Cache, ShardError
from training.order import ALL, Mix, Order, OrderError, Places, Schedule
from training.ranges import Ranges
from training.samples import PADDING, BestFit, Kind, Windows
from training.schedule import share as share
from training.shards import Shard, TokenShards

BLOCK = 4096
"""Samples whose places are computed at once, so that small batches do not pay for small array operations."""
KEPT = 16
"""Such blocks that are kept."""
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Batch:
    """Samples on the CPU. Inputs and targets may be views of one buffer, one token apart: read them, never write."""

    tokens_BS: torch.Tensor
    """Inputs, int64."""
    targets_BS: torch.Tensor
    """The token after each input, int64; `samples.IGNORED` where there is none to learn. In windows the end of a
    document is followed by the next document's first token, in packed rows by nothing."""
    sources_B: torch.Tensor
    """Index into `Loader.sources`, int64."""
    domains_B: torch.Tensor
    """Index into `Loader.domains`, int64."""
    end_of_document: int
    """The token that ends a document."""
    packed_BS: torch.Tensor | None = field(default=None, repr=False)
    """Document numbers of packed rows."""

    @cached_property
    def document_ids_BS(self) -> torch.Tensor:
        """Number of the document within the sample, from 0, int32: attention stays inside equal numbers. The
        end-of-document token belongs to the document it ends; padding has -1."""
        if self.packed_BS is not None:
            return self.packed_BS
        ends_BS = self.tokens_BS == self.end_of_document
        return torch.from_numpy(_document_numbers(ends_BS.numpy()))

    @property
    def padding(self) -> int:
        """Positions that hold no token."""
        return 0 if self.packed_BS is None else int((self.packed_BS == PADDING).sum())


@dataclass(frozen=True)
class Span:
    """The part of one document that a sample reads as inputs."""

    shard: str
    start: int
    """Token offset in the shard."""
    end: int
    first: int
    """Position in the sample of the token at `start`."""
    document: dict[str, Any]
    """Its row of the document index: id, source, licence, rewrite, source_id and where it lies (start, end)."""


class Waste(NamedTuple):
    """What an epoch of a domain does not use."""

    tokens: int
    """Of the domain's shards."""
    unread: int
    """Tokens that are no input of any sample: the end of each shard that fills no window."""
    padding: int
    """Positions of samples that hold no token."""


class Loader:
    """Samples of `split` of the tokens artifact at `uri`, drawn from its sources by weight.

    `mix` is {entry: weight}, None for the corpus as it is (every source in proportion to its samples), or a schedule
    of either: [(first sample id, mix), ...] whose first id is 0. An entry names a domain (`web`), a source (`web/NAME`)
    or `*`. `kind` says what a sample is (`training/samples.py`); packed rows may leave out documents with fewer tokens
    than `document_tokens_min`. Raises ShardError for an artifact that is missing,
    altered or lacks the split, OrderError for a mix that cannot be drawn.
    """

    def __init__(
        self,
        uri: str | Path,
        split: str,
        mix: Mix | Sequence[tuple[int, Mix | None]] | None,
        seed: int,
        sequence_length: int,
        kind: Kind = "windows",
        cache: Cache | None = None,
        document_tokens_min: int = 0,
    ) -> None:
        if sequence_length < 1:
            raise ValueError(f"a sequence length of {sequence_length} makes no sample: give at least 1")
        if document_tokens_min and kind == "windows":
            raise ValueError("windows slide over all documents: only packed rows (best_fit) can leave out short ones")
        self.cache = cache or Cache.from_environment()
        self.store = TokenShards(uri, self.cache)
        self.sequence_length = sequence_length
        self.samples: Windows | BestFit = (
            Windows(sequence_length)
            if kind == "windows"
            else BestFit(sequence_length, self.store.end_of_document, self.cache, document_tokens_min)
        )
        streams = {f"{domain}/{source}": stream for (domain, source), stream in self.store.streams(split).items()}
        self._all_streams = streams
        counts = {name: self.samples.counts(stream) for name, stream in streams.items()}
        windows = {name: int(count_N.sum()) for name, count_N in counts.items()}
        phases = mix if isinstance(mix, Sequence) else [(0, mix)]
        schedule: Schedule = [(first, {ALL: 1.0} if weights is None else weights) for first, weights in phases]
        self.order = Order(schedule, windows, seed)
        self.sources = self.order.sources
        """Names of all that is drawn: domain/source."""
        self.empty = self.order.empty
        """Names of what the mix asks for and no sample reads: nothing of such a source is long enough for one."""
        self.domains = sorted({name.partition("/")[0] for name in self.sources})
        owner = [self.domains.index(name.partition("/")[0]) for name in self.sources]
        self._domain_D = np.asarray(owner, np.int64)
        self._streams = [streams[name] for name in self.sources]
        # A global shuffle touches all shards all the time: those that do not fit the cache together are read in parts.
        self._ranges: Ranges | None = None
        held = sum(stream.bytes for stream in self._streams)
        if not storage.is_local(self.store.uri) and held > self.cache.limit_bytes:
            self._ranges = Ranges(self.cache)
            for stream in self._streams:
                stream.read_in_parts(self._ranges)
        # Samples numbered through all shards, source after source: a binary search over the shards' ends finds one.
        self._counts_G = np.concatenate([counts[name] for name in self.sources])
        self._ends_G = np.cumsum(self._counts_G)
        self._first_D = np.cumsum([0, *self.order.windows_D[:-1]])
        self._shard_D = np.cumsum([0, *(len(stream) for stream in self._streams)])
        self.skipped: dict[str, int] = {}
        """Key of a shard that cannot be read -> the first sample id for which it is left out."""
        self._skip_first_G = np.full(len(self._counts_G), NEVER)
        self._left: dict[tuple[int, int], np.ndarray] = {}
        self._blocks: dict[int, Places] = {}

    @property
    def windows(self) -> dict[str, int]:
        """Domain -> samples of one epoch."""
        return self._by_domain(self.order.windows_D)

    def batch(self, first_sample_id: int, count: int) -> Batch:
        """Samples first_sample_id .. first_sample_id + count - 1; a count of 0 gives an empty batch. BadShard names a
        shard that cannot be read."""
        places, found = self._locate(first_sample_id, count)
        rows = self.samples.read(found)
        return Batch(
            torch.from_numpy(rows.tokens_BS),
            torch.from_numpy(rows.targets_BS),
            torch.from_numpy(places.source_B),
            torch.from_numpy(self._domain_D[places.source_B]),
            self.store.end_of_document,
            None if rows.documents_BS is None else torch.from_numpy(rows.documents_BS),
        )

    def prefetch(self, spans: Iterable[tuple[int, int]]) -> None:
        """Begin to check, and fetch where they are remote, the shards of the samples of some batches, each (its first
        id, its count): all that are to be read next, in the order of their use. Returns at once and changes nothing of
        what `batch` gives."""
        found = [place for first, count in spans for place in self._locate(first, count)[1]]
        if self._ranges is None:
            self.cache.prefetch(shard.file for shard in dict.fromkeys(shard for shard, _ in found))
        else:
            self._ranges.prefetch(
                shard.range(*span) for shard, number in found for span in self.samples.spans(shard, number)
            )

    def close(self) -> None:
        """Stop prefetching."""
        self.cache.close()
        if self._ranges is not None:
            self._ranges.close()

    def skip(self, key: str, first_sample_id: int) -> None:
        """From a sample id on, read other samples of the same source instead of those of shard `key`: which, is a
        function of the ids and of `skipped` alone, and the samples of other shards stay what they are.

        Raises:
            ShardError: no shard of the source would be left, or there is no such shard.
        """
        number = next((number for number in range(len(self._counts_G)) if self._shard(number).key == key), None)
        if number is None:
            raise ShardError(f"there is no shard {key} to be skipped in what is drawn of {self.store.uri}")
        source = self._source_of(number)
        self.skipped = {**self.skipped, key: min(first_sample_id, self.skipped.get(key, first_sample_id))}
        self._skip_first_G[number] = self.skipped[key]
        self._left.clear()
        if not self._left_of(source, max(self.skipped.values()))[-1]:
            raise ShardError(f"every shard of '{self.sources[source]}' is skipped: nothing of it can be read")

    def skipped_share(self) -> float:
        """Which part of the samples of an epoch of everything lies in skipped shards."""
        return float(self._counts_G[self._skip_first_G < NEVER].sum() / self._counts_G.sum())

    def describe(self, sample_id: int) -> list[Span]:
        """Which spans of which documents the inputs of a sample are, in order; they cover all but its padding."""
        ((shard, number),) = self._locate(sample_id, 1)[1]
        pieces = self.samples.pieces(shard, number)
        documents = shard.documents_in([(start, end) for start, end, _ in pieces])
        spans: list[Span] = []
        for start, end, position in pieces:
            for document in documents:
                low, high = max(start, document["start"]), min(end, document["end"])
                if low < high:
                    spans.append(Span(shard.key, low, high, position + low - start, document))
        return spans

    def samples_of(self, document: str, until: int, under: str = "") -> list[int]:
        """The ids below `until`, ascending, of the samples whose inputs read any of the document `document`. Looked for
        in the indices of the shards whose keys begin with `under`: of all where nothing is said."""
        found: set[int] = set()
        for source, stream in enumerate(self._streams):
            for place, key in enumerate(stream.keys()):
                if key.startswith(under):
                    for row in stream[place].documents_named(document):
                        for sample in self.samples.reading(stream[place], row["start"], row["end"]):
                            found.update(self._readers(int(self._shard_D[source]) + place, sample, until))
        return sorted(found)

    def epochs(self, samples: int) -> dict[str, float]:
        """How many times the first `samples` samples go through each domain."""
        consumed = self._by_domain(np.asarray(list(self.order.consumed(samples).values())))
        return {name: count / self.windows[name] for name, count in consumed.items()}

    def epochs_by_source(self, samples: int) -> dict[str, float]:
        """How many times the first `samples` samples go through each source."""
        sizes = self.order.windows_D.tolist()
        return {name: n / size for (name, n), size in zip(self.order.consumed(samples).items(), sizes, strict=True)}

    def require(self, samples: int, most_epochs: float | Mapping[str, float]) -> None:
        """OrderError when the first `samples` samples go through a domain or source more often than `most_epochs`
        allows: one number for every source, or numbers by domain, source or `*` (every source)."""
        require([(self, samples)], {ALL: most_epochs} if isinstance(most_epochs, int | float) else most_epochs)

    def waste(self) -> dict[str, Waste]:
        """Domain of the split, whatever the mix draws -> what an epoch of it leaves unread or pads."""
        found: dict[str, Waste] = {}
        for name, stream in self._all_streams.items():
            tokens, read = int(stream.tokens_N.sum()), self.samples.tokens(stream)
            padding = int(self.samples.counts(stream).sum()) * self.sequence_length - read
            domain = name.partition("/")[0]
            one = Waste(tokens, tokens - read, padding)
            found[domain] = Waste(*map(sum, zip(one, found.get(domain, (0, 0, 0)), strict=True)))
        return found

    def share(self, sources: Iterable[str]) -> float:
        """Which part of the split's tokens lies in these sources."""
        return sum(self._tokens[name] for name in sources) / sum(self._tokens.values())

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {name: int(stream.tokens_N.sum()) for name, stream in self._all_streams.items()}

    # ------------------------------------------------------------------------------------------------------- places

    def _locate(self, first_sample_id: int, count: int) -> tuple[Places, list[tuple[Shard, int]]]:
        """The places of consecutive samples, and for each its shard and its number within the shard."""
        places = self._places(first_sample_id, count)
        shard_B, number_B = self._in_shards(places)
        if self.skipped:
            sample_B = np.arange(first_sample_id, first_sample_id + count)
            for row in np.flatnonzero(self._skip_first_G[shard_B] <= sample_B).tolist():
                shard_B[row], number_B[row] = self._instead(places, row, int(sample_B[row]))
                first = self._first_D[places.source_B[row]]
                places.window_B[row] = self._before(shard_B[row]) + number_B[row] - first
        shards = {number: self._shard(number) for number in np.unique(shard_B).tolist()}
        return places, [(shards[g], number) for g, number in zip(shard_B.tolist(), number_B.tolist(), strict=True)]

    def _in_shards(self, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """The shard of each place, and the sample's number within it."""
        at_B = self._first_D[places.source_B] + places.window_B
        shard_B = np.searchsorted(self._ends_G, at_B, side="right")
        return shard_B, at_B - self._before(shard_B)

    def _before(self, shard: Any) -> Any:
        """Samples of all shards before one, or before each of several."""
        return self._ends_G[shard] - self._counts_G[shard]

    def _instead(self, places: Places, row: int, sample: int) -> tuple[int, int]:
        """The shard, and the number within it, that a sample reads when its own is skipped: the permutation says which
        of those that are left."""
        source = int(places.source_B[row])
        left = self._left_of(source, sample)
        (drawn,) = self.order.again(Places(*(field_B[row : row + 1] for field_B in places))).tolist()
        chosen = drawn % int(left[-1])
        shard = int(np.searchsorted(left, chosen, side="right"))
        before = int(left[shard - 1]) if shard else 0
        return int(self._shard_D[source]) + shard, chosen - before

    def _left_of(self, source: int, sample: int) -> np.ndarray:
        """How many samples of a source are left for sample `sample`, summed up over its shards."""
        first, end = self._shard_D[source], self._shard_D[source + 1]
        begun = int(np.sum(np.unique(list(self.skipped.values())) <= sample))
        if (source, begun) not in self._left:
            there = self._skip_first_G[first:end] > sample
            self._left[source, begun] = np.cumsum(self._counts_G[first:end] * there)
        return self._left[source, begun]

    def _readers(self, shard: int, number: int, until: int) -> list[int]:
        """The ids below `until` of the samples that read sample `number` of a shard."""
        source = self._source_of(shard)
        size, window = int(self.order.windows_D[source]), int(self._before(shard) + number - self._first_D[source])
        again: set[int] = set()
        for first in set(self.skipped.values()):
            if self._skip_first_G[shard] > first:
                left, local = self._left_of(source, first), shard - int(self._shard_D[source])
                again.update(range(int(left[local] - self._counts_G[shard]) + number, size, int(left[-1])))
        found = self.order.samples(self.sources[source], window, until, sorted(again))
        if not self.skipped:
            return found
        return [sample for sample in found if int(self._locate(sample, 1)[0].window_B[0]) == window]

    def _source_of(self, shard: int) -> int:
        return int(np.searchsorted(self._shard_D, shard, side="right")) - 1

    def _shard(self, number: int) -> Shard:
        source = self._source_of(number)
        return self._streams[source][number - int(self._shard_D[source])]

    def _places(self, first: int, count: int) -> Places:
        """`order.locate` of consecutive samples, by blocks; the latest are kept for the next batch and prefetch."""
        if first < 0 or count < 0:
            raise ValueError(f"{count} samples from {first} on: both must be at least 0")
        parts = []
        for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
            start = block * BLOCK
            if block not in self._blocks:
                if len(self._blocks) == KEPT:
                    del self._blocks[next(iter(self._blocks))]
                self._blocks[block] = self.order.locate(np.arange(start, start + BLOCK, dtype=np.int64))
            low, high = max(first - start, 0), min(first + count - start, BLOCK)
            parts.append([field_B[low:high] for field_B in self._blocks[block]])
        if not parts:
            return self.order.locate(np.empty(0, np.int64))
        return Places(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))

    def _by_domain(self, value_D: np.ndarray) -> dict[str, int]:
        sums = np.zeros(len(self.domains), np.int64)
        np.add.at(sums, self._domain_D, value_D)
        return dict(zip(self.domains, sums.tolist(), strict=True))


def require(readings: Sequence[tuple[Loader, int]], most_epochs: Mapping[str, float]) -> None:
    """OrderError when loaders of one artifact, each up to a number of samples, together go through a domain, a source
    or (`*`) any source more often than allowed, or a limit names nothing that is drawn."""
    domains: dict[str, float] = {}
    sources: dict[str, float] = {}
    for loader, samples in readings:
        for total, more in ((domains, loader.epochs(samples)), (sources, loader.epochs_by_source(samples))):
            for name, epochs in more.items():
                total[name] = total.get(name, 0.0) + epochs
    for limit, most in most_epochs.items():
        held = sources if limit == ALL else {limit: (domains | sources).get(limit)}
        for name, found in held.items():
            if found is None:
                raise OrderError(
                    f"an epoch limit names '{name}', which is not drawn: {', '.join(domains | sources)} are"
                )
            if found > most:
                raise OrderError(
                    f"{sum(samples for _, samples in readings)} samples read '{name}' {found:.2f} times, and {most:g} "
                    f"are allowed: lower its weight, add documents or train on fewer tokens"
                )


def _document_numbers(ends_BS: np.ndarray) -> np.ndarray:
    """Number of the document at each position, int32, from where documents end: runs of equal numbers are few, so
    they are counted and repeated instead of summed up position by position."""
    count, size = ends_BS.shape
    borders = np.concatenate([np.flatnonzero(ends_BS) + 1, np.arange(0, count * size + 1, size)])
    borders = np.unique(borders)
    row = borders[:-1] // size
    number = np.arange(len(row)) - np.searchsorted(borders, row * size)
    return np.repeat(number.astype(np.int32), np.diff(borders)).reshape(count, size)
