"""What a rank computes, waits for and sends in an update, by its layout, in closed form. Nothing here needs torch.

Bytes are those that leave a rank: collectives as rings, so that n ranks that add up b bytes each send 2 (n - 1) / n b,
and n ranks that gather b bytes (n - 1) / n b. Experts are taken to be chosen equally often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.config import ModelConfig
from training.layout import Layout
from training.schedule import share

GRADIENT_BYTES = 4


@dataclass(frozen=True)
class Batch:
    """How the data-parallel ranks share an update's samples."""

    ranks: int
    """That take samples of their own: data x expert."""
    most: int
    """Samples of the rank with the most."""
    fewest: int
    micro_batches: int
    """Of every rank."""
    padding: float
    """Samples of padding that are computed, per sample of the batch."""
    bubble: float
    """Time that the pipeline waits, as a share of what it computes."""


def batch(samples: int, layout: Layout, ranks: int, micro_batch: int) -> Batch:
    """The shares of an update on so many samples.

    Ranks that work together go through equally many micro-batches: those of the rank with the most samples; a
    pipeline's are of one size.
    """
    readers = layout.data(ranks) * layout.expert
    sizes = [share(samples, rank, readers)[1] for rank in range(readers)]
    count = math.ceil(max(sizes) / micro_batch)
    computed = samples
    if layout.pipeline > 1:
        count = layout.micro_batches(count)
        computed = count * micro_batch * readers
    elif layout.expert > 1:
        computed += sum(count - math.ceil(size / micro_batch) for size in sizes)  # one sample each
    return Batch(
        ranks=readers,
        most=max(sizes),
        fewest=min(sizes),
        micro_batches=count,
        padding=computed / samples - 1,
        bubble=(layout.pipeline - 1) / (layout.virtual * count),
    )


def in_flight(layout: Layout, rank: int, micro_batches: int) -> Iterator[tuple[int, ...]]:
    """Micro-batches whose activations a pipeline rank holds, by its pieces, after each of its forwards.

    1F1B: a rank begins with as many forwards as ranks come after it, then takes one backward after each forward.
    Interleaved (Narayanan et al., arXiv 2104.04473, 2.2): its pieces take turns, `pipeline` micro-batches each.
    """
    pieces, ranks = layout.virtual, layout.pipeline
    total = pieces * micro_batches
    turn = micro_batches // max(1, micro_batches // ranks)
    first = ranks - 1 - rank if pieces == 1 else (pieces - 1) * turn + 2 * (ranks - 1 - rank)
    held = [0] * pieces
    for forward in range(total):
        held[forward // turn % pieces] += 1
        yield tuple(held)
        if (backward := forward - first) >= 0:
            held[pieces - 1 - backward // turn % pieces] -= 1


@dataclass(frozen=True)
class Sent:
    """Bytes that a rank sends in an update."""

    tokens: int
    """To experts and back, forward and backward (all-to-all)."""
    stream: int
    """The residual stream and its gradient, to the pipeline's neighbours."""
    gradients: int
    """Summed over the ranks that hold the same weights."""
    weights: int
    """From the matrices' owners to those ranks."""


def sent(
    model: ModelConfig,
    layout: Layout,
    ranks: int,
    pieces: Sequence[range],
    rank: int,
    tokens: int,
    dense: int,
    experts: int,
    weight_bytes: int = 2,
    row_bytes: int = 2,
    passes: int = 4,
) -> Sent:
    """Of the ranks at pipeline position `rank` of `pieces`, with `tokens` of their own in an update, padding included,
    `dense` numbers in what all of them hold and `experts` in what only some do; `weight_bytes` are those of a weight
    and of a number of the residual stream between ranks, `row_bytes` those of a number on its way to an expert. A row
    goes out and back in the forward and its gradient in the backward, which are four `passes`.
    """
    data = layout.data(ranks)
    own = [at for at in range(len(pieces)) if at % layout.pipeline == rank]
    layers = [layer for at in own for layer in pieces[at]]
    moe = sum(layer >= model.first_k_dense_replace for layer in layers)
    pairs = tokens * model.num_experts_per_tok * moe
    away = passes * pairs * model.hidden_size * row_bytes * (layout.expert - 1) // layout.expert
    crossings = sum((at < len(pieces) - 1) + (at > 0) for at in own) if layout.pipeline > 1 else 0
    everyone = data * layout.expert

    def ring(size: int, members: int) -> int:
        return size * (members - 1) // members

    return Sent(
        tokens=away,
        stream=crossings * tokens * model.hidden_size * weight_bytes,
        gradients=2 * GRADIENT_BYTES * (ring(dense, everyone) + ring(experts, data)),
        weights=weight_bytes * (ring(dense, everyone) + ring(experts, data)),
    )
