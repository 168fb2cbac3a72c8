"""The order of samples without an index: sample id -> (source, epoch, window), in constant time, and back.

Three bijections replace the stored permutations of other loaders:
- a largest-deficit interleave says which entry of the mix has its turn. Weights become integer shares of a period;
  sample n goes to the entry whose count lags furthest behind (n + 1) * share / period, ties to the first by name. After
  a period every count equals its share and the walk starts anew (no entry can be picked beyond its share: its deficit
  would be at most 0 while the deficits sum to 1), so one period's table answers for any id;
- an entry that stands for several sources (a domain) is split among them by their windows: a tree of two-way
  interleaves by largest deficit, which have a closed form, so that no rounding and no table is needed;
- a Feistel permutation with cycle walking, keyed by seed, source and epoch, says which window: a fresh shuffle of all
  windows of the source for each of its epochs.

State is nothing but the next sample id: how much of each source is consumed follows from it. The first n samples
depend on no phase of the schedule that begins at n or later. Everything is integer arithmetic: the same on every
machine.

Legend: B samples, E entries of a mix, D sources, P slots of a period, K rounds.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

VERSION = 2
"""Raised when the order of the same configuration changes: checkpoints of another version must not continue."""
PERIOD = 1 << 16
"""Longest period of the interleave; weights that need a longer one are rounded to 1/65,536."""
ROUNDS = 8
ALL = "*"
"""The entry of a mix that stands for every source."""

Mix = Mapping[str, float]
"""Entry -> weight. An entry names a source (`web/NAME`), a domain (`web`) or `*`, and stands for those of its sources
that no narrower entry of the same mix names."""
Schedule = Sequence[tuple[int, Mix]]


class OrderError(ValueError):
    """A mix that cannot be ordered; the message says which weight or source."""


class Places(NamedTuple):
    """Where B samples lie: `source_B` indexes `Order.sources`, `window_B` counts the windows of that source."""

    source_B: np.ndarray
    epoch_B: np.ndarray
    window_B: np.ndarray


def shares(mix: Mix, period: int = PERIOD) -> dict[str, int]:
    """Integer shares of each entry, in the order of names: exact where the weights are fractions of a common period
    of at most `period` (0.35 is 7/20, not its binary neighbour), otherwise the nearest ones of sum `period`."""
    for name, weight in mix.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise OrderError(f"the weight of '{name}' in the mix is {weight}: give a number of at least 0")
    exact = {name: Fraction(str(weight)) for name, weight in sorted(mix.items()) if weight > 0}
    if not exact:
        raise OrderError("the mix has no entry with a weight above 0: name at least one")
    scale = math.lcm(*(weight.denominator for weight in exact.values()))
    whole = {name: int(weight * scale) for name, weight in exact.items()}
    divisor = math.gcd(*whole.values())
    whole = {name: count // divisor for name, count in whole.items()}
    total = sum(whole.values())
    if total <= period:
        return whole
    if len(whole) > period:
        raise OrderError(f"the mix names {len(whole)} entries, more than a period of {period} has slots")
    # Largest remainders, with at least one slot for each: the rest is what one slot apiece leaves over.
    spare = period - len(whole)
    quota = {name: Fraction(count * spare, total) for name, count in whole.items()}
    result = {name: 1 + int(value) for name, value in quota.items()}
    left = period - sum(result.values())
    for name in sorted(quota, key=lambda name: (int(quota[name]) - quota[name], name))[:left]:
        result[name] += 1
    return result


def members(mix: Mix, sources: Iterable[str]) -> dict[str, list[str]]:
    """Entry -> the sources that it stands for, in the order of names; empty for an entry that names nothing left."""
    found: dict[str, list[str]] = {name: [] for name in mix}
    for source in sorted(sources):
        for name in (source, source.partition("/")[0], ALL):
            if name in found:
                found[name].append(source)
                break
    return found


class Interleave:
    """The entries of one mix: whose turn each sample is, and which of that entry's samples it is."""

    def __init__(self, share_E: Sequence[int]) -> None:
        self.share_E = np.asarray(share_E, np.int64)
        self.period = int(self.share_E.sum())
        self.entry_P = np.empty(self.period, np.int64)
        self.rank_P = np.empty(self.period, np.int64)
        deficit_E, count_E = np.zeros_like(self.share_E), np.zeros_like(self.share_E)
        for slot in range(self.period):
            deficit_E += self.share_E
            entry = int(deficit_E.argmax())
            deficit_E[entry] -= self.period
            self.entry_P[slot], self.rank_P[slot] = entry, count_E[entry]
            count_E[entry] += 1
        self.slots = [np.flatnonzero(self.entry_P == entry) for entry in range(len(self.share_E))]

    def locate(self, sample_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(entry_B, index_B) of samples counted from this mix's first."""
        turn_B, slot_B = np.divmod(sample_B, self.period)
        entry_B = self.entry_P[slot_B]
        return entry_B, turn_B * self.share_E[entry_B] + self.rank_P[slot_B]

    def sample(self, entry: int, index: int) -> int:
        """The inverse: which sample is number `index` of `entry`."""
        turn, rank = divmod(index, int(self.share_E[entry]))
        return turn * self.period + int(self.slots[entry][rank])

    def consumed(self, samples: int) -> list[int]:
        """How many of the first `samples` samples belong to each entry."""
        turns, rest = divmod(samples, self.period)
        pairs = zip(self.share_E.tolist(), self.slots, strict=True)
        return [turns * share + int(np.searchsorted(slots, rest)) for share, slots in pairs]


class Split:
    """Entries dealt out to their sources by windows: after as many samples as an entry has windows, every source had
    as many as it has. Each node of a tree halves a list of sources; of n samples its left half gets
    floor(n * left / total), the two-way interleave by largest deficit, so that counts need no walk."""

    def __init__(self, entries: Sequence[Sequence[int]], windows: Sequence[int]) -> None:
        """`entries` are the sources of each entry as numbers into `windows`."""
        self._left: list[int] = []
        self._total: list[int] = []
        self._children: list[tuple[int, int]] = []
        self._paths: dict[int, list[tuple[int, bool]]] = {}
        self.roots = np.asarray([self._grow(list(sources), windows, []) for sources in entries], np.int64)
        self.entry_of = {source: entry for entry, sources in enumerate(entries) for source in sources}
        # leaves are -1 - source: a node number of at least 0 is still to be walked
        self._child_N2 = np.asarray(self._children, np.int64).reshape(-1, 2)
        self._left_N, self._total_N = np.asarray(self._left, np.int64), np.asarray(self._total, np.int64)

    def _grow(self, sources: list[int], windows: Sequence[int], path: list[tuple[int, bool]]) -> int:
        if len(sources) == 1:
            self._paths[sources[0]] = path
            return -1 - sources[0]
        node, half = len(self._left), len(sources) // 2
        self._left.append(sum(windows[source] for source in sources[:half]))
        self._total.append(sum(windows[source] for source in sources))
        self._children.append((0, 0))
        left = self._grow(sources[:half], windows, [*path, (node, True)])
        right = self._grow(sources[half:], windows, [*path, (node, False)])
        self._children[node] = (left, right)
        return node

    def locate(self, entry_B: np.ndarray, index_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(source_B, index_B within the source) of the samples `index_B` of entries `entry_B`."""
        node_B, index_B = self.roots[entry_B], index_B.copy()
        while len(inner := np.flatnonzero(node_B >= 0)):
            node = node_B[inner]
            left, total = self._left_N[node], self._total_N[node]
            epoch, place = np.divmod(index_B[inner], total)
            before = _proportion(place, left, total)
            goes_left = _proportion(place + 1, left, total) > before
            index_B[inner] = np.where(goes_left, epoch * left + before, epoch * (total - left) + place - before)
            node_B[inner] = np.where(goes_left, self._child_N2[node, 0], self._child_N2[node, 1])
        return -1 - node_B, index_B

    def index(self, source: int, index: int) -> int:
        """The inverse: which sample of its entry is number `index` of `source`."""
        for node, is_left in reversed(self._paths[source]):
            left, total = self._left[node], self._total[node]
            part = left if is_left else total - left
            epoch, rank = divmod(index, part)
            index = epoch * total + (-(-(rank + 1) * total // part) - 1 if is_left else rank * total // part)
        return index

    def consumed(self, source: int, samples: int) -> int:
        """How many of the first `samples` samples of its entry belong to `source`."""
        for node, is_left in self._paths[source]:
            taken = samples * self._left[node] // self._total[node]
            samples = taken if is_left else samples - taken
        return samples


def _proportion(count_B: np.ndarray, left_B: np.ndarray, total_B: np.ndarray) -> np.ndarray:
    """floor(count * left / total), exact where the product needs more than 64 bits (below 2**51 each): the estimate in
    floating point is off by one at most, and the remainder that corrects it survives the overflow of its terms."""
    estimate_B = (count_B * (left_B / total_B)).astype(np.int64)
    remainder_B = count_B * left_B - estimate_B * total_B
    return estimate_B + remainder_B // total_B


@dataclass(frozen=True)
class _Phase:
    """A mix from one sample id on; `before_D` counts what earlier phases took of each source."""

    first: int
    interleave: Interleave
    split: Split
    before_D: np.ndarray

    def consumed(self, samples: int) -> np.ndarray:
        """What the first `samples` samples of this phase and all earlier phases took of each source, shape D."""
        total_D = self.before_D.copy()
        taken = self.interleave.consumed(samples)
        for source, entry in self.split.entry_of.items():
            total_D[source] += self.split.consumed(source, taken[entry])
        return total_D


class Order:
    """The global order of samples over weighted sources.

    `schedule` holds (first sample id, {entry: weight}), the first id 0, ascending: a mix may change at any sample id
    and every source goes on where it stood. `windows` counts each source's windows; a source's name begins with its
    domain (`web/NAME`).
    """

    def __init__(self, schedule: Schedule, windows: Mapping[str, int], seed: int) -> None:
        firsts = [first for first, _ in schedule]
        if not firsts or firsts[0] != 0 or any(b <= a for a, b in itertools.pairwise(firsts)):
            raise OrderError(f"a mix schedule starts at sample 0 and ascends; its first ids are {firsts}")
        by_phase = [self._entries(mix, windows) for _, mix in schedule]
        self.sources = sorted({name for entries in by_phase for _, names in entries.values() for name in names})
        self.empty = {
            name
            for mix, entries in zip((mix for _, mix in schedule), by_phase, strict=True)
            for entry, names in members(mix, windows).items()
            for name in names
            if entry in entries and not windows[name]
        }
        """Sources that a mix asks for and that have no window."""
        self.seed = seed
        sizes = [windows[name] for name in self.sources]
        number = {name: place for place, name in enumerate(self.sources)}
        self.windows_D = np.asarray(sizes, np.int64)
        self._permutation = Permutation(self.windows_D)
        self._phases: list[_Phase] = []
        before_D = np.zeros_like(self.windows_D)
        for (first, _), (after, _), entries in zip(schedule, [*schedule[1:], (None, None)], by_phase, strict=True):
            interleave = Interleave([share for share, _ in entries.values()])
            split = Split([[number[name] for name in names] for _, names in entries.values()], sizes)
            self._phases.append(_Phase(first, interleave, split, before_D))
            if after is not None:
                before_D = self._phases[-1].consumed(after - first)
        self._firsts = np.asarray(firsts, np.int64)

    @staticmethod
    def _entries(mix: Mix, windows: Mapping[str, int]) -> dict[str, tuple[int, list[str]]]:
        """Entry -> its share and its sources that have a window; OrderError where nothing is left to draw."""
        named = members(mix, windows)
        entries = {
            name: (share, [source for source in named[name] if windows[source]]) for name, share in shares(mix).items()
        }
        for name, (_, sources) in entries.items():
            if not sources:
                there = ", ".join(f"{key} ({count})" for key, count in sorted(windows.items())) or "none"
                raise OrderError(
                    f"the mix asks for '{name}', which has no window of this length that no narrower entry takes; "
                    f"there are: {there}"
                )
        return entries

    def locate(self, sample_B: np.ndarray) -> Places:
        """The places of samples `sample_B` (int64, at least 0)."""
        if len(sample_B) and int(sample_B.min()) < 0:
            raise OrderError(f"sample id {int(sample_B.min())} is negative: ids count from 0")
        source_B, index_B = np.empty_like(sample_B), np.empty_like(sample_B)
        phase_B = np.searchsorted(self._firsts, sample_B, side="right") - 1
        for number in np.unique(phase_B):
            phase, here = self._phases[number], phase_B == number
            source, index = phase.split.locate(*phase.interleave.locate(sample_B[here] - phase.first))
            source_B[here], index_B[here] = source, index + phase.before_D[source]
        epoch_B, turn_B = np.divmod(index_B, self.windows_D[source_B])
        return Places(source_B, epoch_B, self._permutation.forward(turn_B, source_B, self._keys(source_B, epoch_B)))

    def again(self, places: Places) -> np.ndarray:
        """What the permutation of each place's epoch makes of its window, int64, shape B: a number below the source's
        windows from which to choose another one."""
        keys_KB = self._keys(places.source_B, places.epoch_B)
        return self._permutation.forward(places.window_B, places.source_B, keys_KB)

    def samples(self, source: str, window: int, until: int, again: Sequence[int] = ()) -> list[int]:
        """The ids below `until`, ascending, of the samples that read `window` of `source`, one an epoch, and of those
        of whose window `again` makes one of the given numbers."""
        if source not in self.sources:
            return []
        number = self.sources.index(source)
        count = self.consumed(until)[source]
        size = int(self.windows_D[number])
        epoch_E = np.arange(-(-count // size), dtype=np.int64)
        source_E = np.full_like(epoch_E, number)
        keys_KE = self._keys(source_E, epoch_E)

        def back(window_E: np.ndarray) -> np.ndarray:
            return self._permutation.inverse(window_E, source_E, keys_KE)

        turns = [back(np.full_like(epoch_E, window)), *(back(back(np.full_like(epoch_E, value))) for value in again)]
        indices = np.unique(np.concatenate([epoch_E * size + turn_E for turn_E in turns]))
        return sorted(self._sample(number, index) for index in indices.tolist() if index < count)

    def _sample(self, source: int, index: int) -> int:
        """The id of sample number `index` of a source, counted through all phases."""
        # the last phase that begins at or before it: one that draws nothing of the source has its successor's count
        phase = [phase for phase in self._phases if phase.before_D[source] <= index][-1]
        in_entry = phase.split.index(source, index - int(phase.before_D[source]))
        return phase.first + phase.interleave.sample(phase.split.entry_of[source], in_entry)

    def consumed(self, samples: int) -> dict[str, int]:
        """How many of the first `samples` samples belong to each source."""
        phase = [phase for phase in self._phases if phase.first <= samples][-1]
        total_D = phase.consumed(samples - phase.first)
        return dict(zip(self.sources, total_D.tolist(), strict=True))

    def _keys(self, source_B: np.ndarray, epoch_B: np.ndarray) -> np.ndarray:
        """Round keys of every sample, shape K x B: one hash for each (source, epoch) that occurs."""
        pair_B = epoch_B * len(self.sources) + source_B
        pair_U, inverse_B = np.unique(pair_B, return_inverse=True)
        key_UK = np.empty((len(pair_U), ROUNDS), np.uint64)
        for row, pair in enumerate(pair_U.tolist()):
            epoch, source = divmod(pair, len(self.sources))
            text = json.dumps([VERSION, self.seed, self.sources[source], epoch])
            key_UK[row] = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=8 * ROUNDS).digest(), "<u8")
        return key_UK.T[:, inverse_B]


class Permutation:
    """Seeded permutations of range(size) for each of D sizes, as an alternating Feistel network over the smallest
    power of two that holds the size; what falls outside is permuted again until it falls inside (cycle walking: fewer
    than two passes on average)."""

    def __init__(self, size_D: np.ndarray) -> None:
        bits = [int(size - 1).bit_length() for size in size_D]
        self.size_D = size_D.astype(np.uint64)
        self.low_bits_D = np.asarray([(bit + 1) // 2 for bit in bits], np.uint64)
        self.low_mask_D = np.asarray([(1 << (bit + 1) // 2) - 1 for bit in bits], np.uint64)
        self.high_mask_D = np.asarray([(1 << bit // 2) - 1 for bit in bits], np.uint64)

    def forward(self, value_B: np.ndarray, source_B: np.ndarray, key_KB: np.ndarray) -> np.ndarray:
        return self._walk(value_B, source_B, key_KB, range(ROUNDS))

    def inverse(self, value_B: np.ndarray, source_B: np.ndarray, key_KB: np.ndarray) -> np.ndarray:
        return self._walk(value_B, source_B, key_KB, range(ROUNDS - 1, -1, -1))

    def _walk(self, value_B: np.ndarray, source_B: np.ndarray, key_KB: np.ndarray, rounds: range) -> np.ndarray:
        result_B = self._pass(value_B.astype(np.uint64), source_B, key_KB, rounds)
        outside = np.flatnonzero(result_B >= self.size_D[source_B])
        while len(outside):
            again = self._pass(result_B[outside], source_B[outside], key_KB[:, outside], rounds)
            result_B[outside] = again
            outside = outside[again >= self.size_D[source_B[outside]]]
        return result_B.astype(np.int64)

    def _pass(self, value_B: np.ndarray, source_B: np.ndarray, key_KB: np.ndarray, rounds: range) -> np.ndarray:
        bits_B, low_mask_B, high_mask_B = (
            table[source_B] for table in (self.low_bits_D, self.low_mask_D, self.high_mask_D)
        )
        low_B, high_B = value_B & low_mask_B, value_B >> bits_B
        for number in rounds:
            if number % 2 == 0:
                high_B ^= _scramble(low_B, key_KB[number]) & high_mask_B
            else:
                low_B ^= _scramble(high_B, key_KB[number]) & low_mask_B
        return (high_B << bits_B) | low_B


def _scramble(value_B: np.ndarray, key_B: np.ndarray) -> np.ndarray:
    """A round function: 64-bit multiply and xor-shift after adding the key; any function would keep the bijection."""
    mixed_B = (value_B + key_B) * np.uint64(0x9E3779B97F4A7C15)
    mixed_B ^= mixed_B >> np.uint64(31)
    mixed_B *= np.uint64(0xD6E8FEB86659FD93)
    mixed_B ^= mixed_B >> np.uint64(32)
    return mixed_B
