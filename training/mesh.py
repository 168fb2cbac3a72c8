"""The ranks of a run as its layout arranges them: who shares what with whom."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from training.layout import Layout, Place
from training.parallel import World


@dataclass(frozen=True)
class Mesh:
    """This rank, and its groups."""

    layout: Layout = field(default_factory=Layout)
    world: World = field(default_factory=World)
    """All ranks."""
    data: World = field(default_factory=World)
    """The ranks of this pipeline position: they hold the same layers, each takes its own samples."""
    expert: World = field(default_factory=World)
    """Of those, the ranks that hold different experts and exchange tokens."""
    expert_data: World = field(default_factory=World)
    """Of those, the ranks that hold the same experts."""
    pipeline: World = field(default_factory=World)
    """The ranks that hold the other layers for the same samples."""

    @property
    def place(self) -> Place:
        """This rank's indices."""
        return self.layout.place(self.world.rank, self.world.size)


def arrange(world: World, layout: Layout, timeout_seconds: float = 600) -> Mesh:
    """`world` arranged by `layout`; every rank calls it. Raises `LayoutError` where the ranks do not fit."""
    layout.data(world.size)
    places = [layout.place(rank, world.size) for rank in range(world.size)]
    made: dict[tuple[tuple[int, ...], ...], World] = {(tuple(range(world.size)),): world}

    def group(key: Callable[[Place], Any]) -> World:
        ranks: dict[Any, list[int]] = {}
        for rank, place in enumerate(places):
            ranks.setdefault(key(place), []).append(rank)
        parts = tuple(map(tuple, ranks.values()))
        if parts not in made:  # a partition is one set of communicators, whatever it is for
            made[parts] = _group(world, parts, timeout_seconds)
        return made[parts]

    return Mesh(
        layout,
        world,
        data=group(lambda place: place.pipeline),
        expert=group(lambda place: (place.pipeline, place.data)),
        expert_data=group(lambda place: (place.pipeline, place.expert)),
        pipeline=group(lambda place: (place.data, place.expert)),
    )


def _group(world: World, parts: Sequence[Sequence[int]], timeout_seconds: float) -> World:
    """This rank among those of its part; every rank takes part in making every group."""
    mine, handle = next(part for part in parts if world.rank in part), None
    if len(mine) > 1:
        for part in parts:
            group = dist.new_group(list(part), timeout=datetime.timedelta(seconds=timeout_seconds))
            handle = group if part is mine else handle
    return World(mine.index(world.rank), len(mine), world.local_rank, handle)
