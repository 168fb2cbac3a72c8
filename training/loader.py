"""Batches of next-token samples from token shards: any sample by its id, with no index, on any number of ranks.

    loader = Loader(tokens_uri, "train", {"web": 0.4, "code": 0.3, "math": 0.2, "knowledge": 0.1}, seed=0,
                    sequence_length=4096)
    offset, count = share(global_batch, rank, world)
    batch = loader.batch(step * global_batch + offset, count)

`batch` depends on nothing but the ids, so the global stream is the same for any number of ranks, workers and restarts,
and the whole state of a run is its next sample id (with `identity()`, so that a checkpoint never continues on other
data). Memory-mapped: nothing is read but the windows asked for.

Legend: B samples, S sequence length, T = S + 1 tokens read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.order import VERSION, Mix, Order, OrderError, Places, Schedule
from training.shards import Shard, TokenShards, count_windows

BLOCK = 4096
"""Samples whose places are computed at once, so that small batches do not pay for small array operations."""


@dataclass(frozen=True)
class Batch:
    """Samples on the CPU. Inputs and targets are views of what was read, one token apart: read them, never write."""

    read_BT: torch.Tensor
    """The tokens of each window, int64."""
    domains_B: torch.Tensor
    """Index into `Loader.domains`, int64."""
    end_of_document: int
    """The token that ends a document."""

    @property
    def tokens_BS(self) -> torch.Tensor:
        """Inputs, int64."""
        return self.read_BT[:, :-1]

    @property
    def targets_BS(self) -> torch.Tensor:
        """The token after each input, int64. After the end of a document that is the next document's first token."""
        return self.read_BT[:, 1:]

    @cached_property
    def document_ids_BS(self) -> torch.Tensor:
        """Number of the document within the sample, from 0, int32: attention stays inside equal numbers. The
        end-of-document token belongs to the document it ends."""
        ends_BS = self.tokens_BS == self.end_of_document
        return torch.from_numpy(_document_numbers(ends_BS.numpy()))


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


class Loader:
    """Samples of `split` of the tokens artifact at `uri`, drawn from its domains by weight.

    `mix` is {domain: weight}, None for the corpus as it is (every domain in proportion to its windows), or a schedule
    of either: [(first sample id, mix), ...] whose first id is 0. Raises ShardError for an artifact that is missing,
    altered or lacks the split, OrderError for a mix that cannot be drawn.
    """

    def __init__(
        self,
        uri: str | Path,
        split: str,
        mix: Mix | Sequence[tuple[int, Mix | None]] | None,
        seed: int,
        sequence_length: int,
    ) -> None:
        if sequence_length < 1:
            raise ValueError(f"a sequence length of {sequence_length} makes no sample: give at least 1")
        self.store = TokenShards(uri)
        self.split = split
        self.sequence_length = sequence_length
        self.windows = self.store.windows(split, sequence_length)
        """Domain -> windows of one epoch."""
        natural = {domain: float(count) for domain, count in self.windows.items()}
        phases = mix if isinstance(mix, Sequence) else [(0, mix)]
        self.schedule: Schedule = [(first, natural if weights is None else weights) for first, weights in phases]
        self.order = Order(self.schedule, self.windows, seed)
        self.domains = self.order.sources
        by_domain = self.store.shards(split)
        self._shards = [shard for domain in self.domains for shard in by_domain[domain]]
        # Windows numbered through all shards, domain after domain: a binary search over the shards' ends finds one.
        counts_D = [self.windows[domain] for domain in self.domains]
        self._first_of_domain = np.cumsum([0, *counts_D[:-1]])
        tokens_N = np.asarray([shard.tokens for shard in self._shards], np.int64)
        self._windows = count_windows(tokens_N, sequence_length)
        self._ends = np.cumsum(self._windows)
        self._block = (0, self.order.locate(np.arange(BLOCK, dtype=np.int64)))

    def batch(self, first_sample_id: int, count: int) -> Batch:
        """Samples first_sample_id .. first_sample_id + count - 1; a count of 0 gives an empty batch."""
        length = self.sequence_length + 1
        places, found = self._locate(first_sample_id, count)
        read_BT = np.empty((count, length), np.int64)
        for row, (shard, start) in enumerate(found):
            read_BT[row] = shard.tokens_T[start : start + length]
        return Batch(torch.from_numpy(read_BT), torch.from_numpy(places.source_B), self.store.end_of_document)

    def describe(self, sample_id: int) -> list[Span]:
        """Which spans of which documents the inputs of a sample are, in order; they cover it without a gap."""
        ((shard, start),) = self._locate(sample_id, 1)[1]
        end = start + self.sequence_length
        columns = shard.documents
        place = int(np.searchsorted(columns["end"], start, side="right"))
        spans: list[Span] = []
        while place < len(columns["start"]) and columns["start"][place] < end:
            document = {name: values[place] for name, values in columns.items()}
            low, high = max(start, document["start"]), min(end, document["end"])
            spans.append(Span(shard.key, low, high, low - start, document))
            place += 1
        return spans

    def samples_of(self, document: str, until: int) -> list[int]:
        """The ids below `until`, ascending, of the samples whose inputs read any of the document `document`."""
        found: set[int] = set()
        for number, shard in enumerate(self._shards):
            domain, windows = shard.domain, int(self._windows[number])
            before = int(self._ends[number]) - windows - int(self._first_of_domain[self.domains.index(domain)])
            columns = shard.documents
            for name, start, end in zip(columns["id"], columns["start"], columns["end"], strict=True):
                if name == document:
                    last = min((end - 1) // self.sequence_length, windows - 1)
                    for window in range(start // self.sequence_length, last + 1):
                        found.update(self.order.samples(domain, before + window, until))
        return sorted(found)

    def epochs(self, samples: int) -> dict[str, float]:
        """How many times the first `samples` samples go through each domain."""
        return {name: count / self.windows[name] for name, count in self.order.consumed(samples).items()}

    def require(self, samples: int, most_epochs: float) -> None:
        """OrderError when the first `samples` samples go through a domain more than `most_epochs` times."""
        for name, epochs in self.epochs(samples).items():
            if epochs > most_epochs:
                raise OrderError(
                    f"{samples} samples read '{name}' {epochs:.2f} times, and {most_epochs:g} are allowed: lower its "
                    f"weight, add documents or train on fewer tokens"
                )

    def identity(self) -> dict[str, str]:
        """What a checkpoint must find unchanged to go on from a sample id: the tokens' content and the order's."""
        order = [
            VERSION,
            self.split,
            self.sequence_length,
            self.order.seed,
            [[first, sorted(mix.items())] for first, mix in self.schedule],
        ]
        return {
            "tokens": self.store.content,
            "order": hashlib.sha256(json.dumps(order, separators=(",", ":")).encode()).hexdigest(),
        }

    def _locate(self, first_sample_id: int, count: int) -> tuple[Places, list[tuple[Shard, int]]]:
        """The places of consecutive samples, and for each its shard and the offset of its first token."""
        places = self._places(first_sample_id, count)
        window_B = self._first_of_domain[places.source_B] + places.window_B
        shard_B = np.searchsorted(self._ends, window_B, side="right")
        # windows before the shard: the end of the one before it
        before_B = np.where(shard_B > 0, self._ends[shard_B - 1], 0)
        start_B = (window_B - before_B) * self.sequence_length
        shards = [self._shards[number] for number in shard_B.tolist()]
        return places, list(zip(shards, start_B.tolist(), strict=True))

    def _places(self, first: int, count: int) -> Places:
        """`order.locate` of consecutive samples, by blocks; the last block is kept for the next batch."""
        if first < 0 or count < 0:
            raise ValueError(f"{count} samples from {first} on: both must be at least 0")
        parts = []
        for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
            start = block * BLOCK
            if self._block[0] != block:
                self._block = (block, self.order.locate(np.arange(start, start + BLOCK, dtype=np.int64)))
            low, high = max(first - start, 0), min(first + count - start, BLOCK)
            parts.append([field_B[low:high] for field_B in self._block[1]])
        if not parts:
            return self.order.locate(np.empty(0, np.int64))
        return Places(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def _document_numbers(ends_BS: np.ndarray) -> np.ndarray:
    """Number of the document at each position, int32, from where documents end: runs of equal numbers are few, so
    they are counted and repeated instead of summed up position by position."""
    count, size = ends_BS.shape
    borders = np.concatenate([np.flatnonzero(ends_BS) + 1, np.arange(0, count * size + 1, size)])
    borders = np.unique(borders)
    row = borders[:-1] // size
    number = np.arange(len(row)) - np.searchsorted(borders, row * size)
    return np.repeat(number.astype(np.int32), np.diff(borders)).reshape(count, size)


def share(count: int, rank: int, world: int) -> tuple[int, int]:
    """(offset, size) of rank `rank`'s slice of `count` samples: consecutive slices that differ by at most one."""
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is not one of {world}")
    low, high = count * rank // world, count * (rank + 1) // world
    return low, high - low
