"""Dialogues packed into rows, attention kept apart: the rows of an update as a function of its number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from training.engine import Loss, MicroBatch
from training.inputs import Example
from training.job import JobError

IGNORED = -100


def pack(lengths: Sequence[int], size: int, seed: str) -> list[list[int]]:
    """Indices of dialogues by row, in an order drawn from `seed`: each into the first of the last 64 rows with room.

    Every dialogue is in exactly one row, and no row has more than `size` tokens.

    Raises:
        JobError: a dialogue is longer than a row.
    """
    order = list(range(len(lengths)))
    random.Random(seed).shuffle(order)
    rows: list[list[int]] = []
    room: list[int] = []
    for index in order:
        length = lengths[index]
        if length > size:
            raise JobError(
                f"a dialogue has {length} tokens and a row {size}: raise sequence_length, or lower dialogues.max_tokens"
            )
        row = next((row for row in range(max(0, len(rows) - 64), len(rows)) if room[row] >= length), None)
        if row is None:
            rows.append([])
            room.append(size)
            row = len(rows) - 1
        rows[row].append(index)
        room[row] -= length
    return rows


class Rows(NamedTuple):
    """Some rows, int64 [B, S]."""

    tokens_BS: Tensor
    targets_BS: Tensor
    """IGNORED where nobody trains the next token."""
    documents_BS: Tensor
    """-1 at padding."""
    positions_BS: Tensor
    """Within each dialogue."""

    @property
    def read(self) -> int:
        """Tokens."""
        return int((self.documents_BS >= 0).sum())

    @property
    def trained(self) -> int:
        """Targets that are trained."""
        return int((self.targets_BS != IGNORED).sum())

    def micro_batch(self, loss: Loss, aux_weight: float = 0.0) -> MicroBatch:
        """The rows with what is learned from them."""
        return MicroBatch(self.tokens_BS, loss, self.documents_BS, self.positions_BS, aux_weight=aux_weight)


class Packed:
    """An endless stream of batches over some dialogues: epoch after epoch, each in its own order."""

    def __init__(self, examples: Sequence[Example], size: int, rows: int, seed: int | str, pad: int) -> None:
        self.examples, self.size, self.rows, self.seed, self.pad = examples, size, rows, seed, pad
        self._lengths = [len(example.ids) for example in examples]
        self._epochs: list[list[list[int]]] = []

    def batch(self, update: int, share: range | None = None) -> Rows:
        """The rows of an update, counted from 0, or a `share` of them; they are cut at the longest."""
        rows = [self._row(update * self.rows + number) for number in (range(self.rows) if share is None else share)]
        tokens, targets, documents, positions = [], [], [], []
        for row in rows:
            ids: list[int] = []
            goal: list[int] = []
            marks: list[int] = []
            places: list[int] = []
            for number, index in enumerate(row):
                example = self.examples[index]
                ids += example.ids
                shifted = zip(example.ids[1:], example.mask[1:], strict=True)
                goal += [token if trained else IGNORED for token, trained in shifted] + [IGNORED]
                marks += [number] * len(example.ids)
                places += range(len(example.ids))
            fill = self.size - len(ids)
            tokens.append(ids + [self.pad] * fill)
            targets.append(goal + [IGNORED] * fill)
            documents.append(marks + [-1] * fill)
            positions.append(places + [0] * fill)
        used = max(sum(mark >= 0 for mark in marks) for marks in documents)
        return Rows(*(torch.tensor(values)[:, :used] for values in (tokens, targets, documents, positions)))

    def batches(self, update: int, share: range, size: int) -> list[Rows]:
        """A `share` of the rows of an update, at most `size` together."""
        firsts = range(share.start, share.stop, size)
        return [self.batch(update, range(first, min(first + size, share.stop))) for first in firsts]

    def _row(self, number: int) -> list[int]:
        """The dialogues of a row, counted through all epochs."""
        epoch = 0
        while True:
            if epoch == len(self._epochs):
                self._epochs.append(pack(self._lengths, self.size, f"{self.seed}/{epoch}"))
            if number < len(self._epochs[epoch]):
                return self._epochs[epoch][number]
            number -= len(self._epochs[epoch])
            epoch += 1
