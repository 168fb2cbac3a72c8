"""The global stream is one: for any number of ranks, prefetch, restarts and mix changes; and resuming walks nothing."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.data import SOURCES, artifact
from training.cache import Cache
from training.loader import Loader, share
from training.order import ALL, Permutation
from training.samples import Kind

CHANGES = [(0, {"web": 0.6, "code": 0.4}), (100, {"web": 0.5, "web/wiki": 0.5}), (205, {ALL: 1.0})]
STEPS = 6


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return artifact(tmp_path_factory.mktemp("tokens"), SOURCES)


def digest(
    make: Callable[[int], Loader], batch: int, world: int, prefetch: int = 0, restarts: Sequence[int] = ()
) -> str:
    """Hash of all that the ranks read, put together in the order of the global batches. `make(step)` starts a rank."""
    total = hashlib.sha256()
    ranks = [make(0) for _ in range(world)]
    for step in range(STEPS):
        if step in restarts:
            ranks = [make(step) for _ in range(world)]
        for rank, loader in enumerate(ranks):
            offset, count = share(batch, rank, world)
            read = loader.batch(step * batch + offset, count)
            loader.prefetch((ahead * batch + offset, count) for ahead in range(step + 1, step + 1 + prefetch))
            for row in range(count):
                for part in (read.tokens_BS, read.targets_BS, read.document_ids_BS):
                    total.update(part[row].numpy().tobytes())
                total.update(loader.sources[int(read.sources_B[row])].encode())
                total.update(loader.domains[int(read.domains_B[row])].encode())
    for loader in ranks:
        loader.close()
    return total.hexdigest()


@pytest.mark.parametrize("kind", ["windows", "best_fit"])
@pytest.mark.parametrize("batch", [48, 50])
def test_one_stream_for_any_world_prefetch_and_restart(uri: str, kind: Kind, batch: int) -> None:
    def make(step: int) -> Loader:
        return Loader(uri, "train", CHANGES, 7, 8, kind)

    found = {digest(make, batch, world) for world in (1, 2, 3, 8, 48)}
    found |= {digest(make, batch, 3, prefetch, restarts) for prefetch, restarts in ((1, []), (4, [2]), (2, [1, 2, 5]))}
    assert len(found) == 1
    assert digest(lambda step: Loader(uri, "train", CHANGES, 8, 8, kind), batch, 1) not in found


def test_one_stream_from_remote_shards_with_any_cache_and_fetchers(uri: str, tmp_path: Path) -> None:
    import fsspec

    remote = f"memory://{tmp_path.name}-elastic"
    fsspec.filesystem("memory").put(f"{uri}/", f"{remote}/", recursive=True)
    expected = digest(lambda step: Loader(uri, "train", CHANGES, 7, 8), 50, 1)
    numbers = itertools.count()
    for limit, fetchers, prefetch in ((1 << 30, 1, 0), (1 << 30, 4, 3), (1 << 14, 2, 2), (1 << 14, 1, 0)):

        def make(step: int, limit: int = limit, fetchers: int = fetchers) -> Loader:
            cache = Cache(tmp_path / str(next(numbers)), limit, fetchers)
            loader = Loader(remote, "train", CHANGES, 7, 8, cache=cache)
            assert (loader._ranges is None) == (limit == 1 << 30)
            return loader

        assert digest(make, 50, 2, prefetch, restarts=[3]) == expected


@pytest.mark.parametrize("world", [1, 2, 3, 8, 48])
def test_a_mix_that_is_changed_while_a_run_stands_still(uri: str, world: int) -> None:
    """Who decides at sample 100 on another mix goes on as if it had been planned, and what was read stays so."""
    batch = 50

    def make(step: int) -> Loader:
        begun = [phase for phase in CHANGES if phase[0] <= step * batch]
        return Loader(uri, "train", begun, 7, 8)

    planned = digest(lambda step: Loader(uri, "train", CHANGES, 7, 8), batch, 1)
    assert digest(make, batch, world, prefetch=1, restarts=[2, 5]) != planned  # sample 205 lies within step 4
    aligned = [CHANGES[0], CHANGES[1], (250, CHANGES[2][1])]
    assert digest(
        lambda step: Loader(uri, "train", [phase for phase in aligned if phase[0] <= step * batch], 7, 8),
        batch,
        world,
        prefetch=1,
        restarts=[2, 5],
    ) == digest(lambda step: Loader(uri, "train", aligned, 7, 8), batch, 1)


def test_skipped_shards_are_left_out_alike_by_any_world(uri: str) -> None:
    bad = {"train/web/wiki/1": 60, "train/code/repos/0": 120}

    def make(step: int) -> Loader:
        loader = Loader(uri, "train", CHANGES, 7, 8)
        for key, first in bad.items():
            loader.skip(key, first)
        return loader

    assert len({digest(make, 50, world, 2, [world % 5 + 1]) for world in (1, 2, 3, 8, 48)}) == 1


@given(st.integers(0, 20_000), st.integers(0, 600), st.sampled_from(["windows", "best_fit"]))
@settings(max_examples=20)
def test_a_batch_depends_on_nothing_asked_before(uri: str, first: int, count: int, kind: Kind) -> None:
    used = Loader(uri, "train", CHANGES, 1, 8, kind)
    used.batch(12_345, 3)
    whole = used.batch(first, count)
    fresh = Loader(uri, "train", CHANGES, 1, 8, kind)
    middle = count // 3
    later, sooner = fresh.batch(first + middle, count - middle), fresh.batch(first, middle)
    for name in ("tokens_BS", "targets_BS", "document_ids_BS", "domains_B", "sources_B"):
        assert getattr(whole, name).tolist() == getattr(sooner, name).tolist() + getattr(later, name).tolist()


def test_resuming_costs_the_same_anywhere(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: calls of functions, and numbers that go through the permutation."""
    permuted = 0
    one_pass = Permutation._pass

    def counted(self: Permutation, value_B, *arguments):
        nonlocal permuted
        permuted += len(value_B)
        return one_pass(self, value_B, *arguments)

    monkeypatch.setattr(Permutation, "_pass", counted)

    def cost(sample: int) -> tuple[int, int]:
        nonlocal permuted
        permuted = calls = 0

        def count(frame, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            loader = Loader(uri, "train", CHANGES, 1, 8)
            loader.batch(sample, 64)
        finally:
            sys.setprofile(None)
        return calls, permuted

    cost(0)  # imports
    near, far = cost(5000), cost(3_000_000_000)
    assert far[0] < 1.5 * near[0]
    assert far[1] < 1.5 * near[1]
