"""Connected components by union-find over streamed edges: memory for the nodes, none for the edges."""

from __future__ import annotations

import numpy as np

from model.compiled import compiled


class Components:
    """Union-find over 0..n-1 with the smallest number of a component as its root."""

    def __init__(self, n: int) -> None:
        self.parents = np.arange(n, dtype=np.int64)

    def join(self, edges: np.ndarray) -> None:
        """Take in edges [M, 2]."""
        _join(self.parents, np.ascontiguousarray(edges, np.int64))

    def roots(self) -> np.ndarray:
        """int64 [n]: the root of each node."""
        _flatten(self.parents)
        return self.parents


@compiled
def root(parents, node):  # type: ignore[no-untyped-def]
    """The root of a node; paths are halved on the way."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@compiled
def _join(parents, edges):  # type: ignore[no-untyped-def]
    for at in range(len(edges)):
        one, other = root(parents, edges[at, 0]), root(parents, edges[at, 1])
        parents[max(one, other)] = min(one, other)


@compiled
def _flatten(parents):  # type: ignore[no-untyped-def]
    # A parent is never larger than its child: one pass upwards is enough.
    for node in range(len(parents)):
        parents[node] = parents[parents[node]]
