"""The loader: windows, order over ranks and restarts, document numbers, lineage, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.data import LENGTHS, MIX, artifact, flip, shard_file
from training.cache import ShardError
from training.loader import Batch, Loader, share
from training.order import OrderError
from training.shards import TokenShards, count_windows


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return artifact(tmp_path_factory.mktemp("tokens"), LENGTHS)


def windows_of(uri: str, split: str, length: int) -> dict[str, list[list[int]]]:
    """Every window by its definition: length + 1 tokens, stride length, within a shard."""
    result: dict[str, list[list[int]]] = {}
    for domain, shards in TokenShards(uri).shards(split).items():
        for shard in shards:
            tokens = np.fromfile(shard.file.local, "<u4").tolist()
            starts = range(0, len(tokens) - length, length)
            result.setdefault(domain, []).extend(tokens[start : start + length + 1] for start in starts)
    return result


def read_BT(batch: Batch) -> torch.Tensor:
    """What windows read: their inputs and the last target."""
    return torch.cat([batch.tokens_BS, batch.targets_BS[:, -1:]], 1)


@pytest.mark.parametrize("length", [1, 4, 16, 33])
def test_an_epoch_reads_every_window_exactly_once(uri: str, length: int) -> None:
    expected = windows_of(uri, "train", length)
    for domain, windows in expected.items():
        batch = Loader(uri, "train", {domain: 1}, seed=5, sequence_length=length).batch(0, len(windows))
        assert sorted(read_BT(batch).tolist()) == sorted(windows)
        assert batch.tokens_BS.tolist() == [row[:-1] for row in read_BT(batch).tolist()]
        assert batch.targets_BS.tolist() == [row[1:] for row in read_BT(batch).tolist()]
        assert batch.tokens_BS.dtype == batch.targets_BS.dtype == torch.int64


def test_domains_come_by_weight_and_are_named_rightly(uri: str) -> None:
    loader = Loader(uri, "train", MIX, seed=0, sequence_length=8)
    batch = loader.batch(0, 2000)
    drawn = Counter(loader.domains[number] for number in batch.domains_B.tolist())
    assert drawn == {"code": 500, "math": 600, "web": 900}
    held = windows_of(uri, "train", 8)
    for row, number in zip(read_BT(batch).tolist(), batch.domains_B.tolist(), strict=True):
        assert row in held[loader.domains[number]]


def test_without_a_mix_one_epoch_of_everything(uri: str) -> None:
    expected = [row for rows in windows_of(uri, "train", 8).values() for row in rows]
    batch = Loader(uri, "train", None, seed=0, sequence_length=8).batch(0, len(expected))
    assert sorted(read_BT(batch).tolist()) == sorted(expected)


@given(st.integers(0, 200), st.integers(1, 60))
def test_shares_cover_a_batch_without_overlap_and_evenly(count: int, world: int) -> None:
    slices = [share(count, rank, world) for rank in range(world)]
    assert [number for offset, size in slices for number in range(offset, offset + size)] == list(range(count))
    assert max(size for _, size in slices) - min(size for _, size in slices) <= 1


@given(st.integers(0, 20_000), st.integers(0, 9000))
@settings(max_examples=20, deadline=None)
def test_a_batch_depends_on_nothing_asked_before(uri: str, first: int, count: int) -> None:
    used = Loader(uri, "train", MIX, seed=1, sequence_length=8)
    used.batch(12_345, 3)
    whole = used.batch(first, count)
    fresh = Loader(uri, "train", MIX, seed=1, sequence_length=8)
    middle = count // 3
    parts = [fresh.batch(first + middle, count - middle), fresh.batch(first, middle)]
    assert torch.equal(read_BT(whole), torch.cat([read_BT(parts[1]), read_BT(parts[0])]))
    assert torch.equal(whole.domains_B, torch.cat([parts[1].domains_B, parts[0].domains_B]))


@given(st.lists(st.integers(1, 12), min_size=4, max_size=30), st.integers(2, 9), st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_document_numbers_change_exactly_where_documents_do(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int, seed: int
) -> None:
    uri = artifact(tmp_path_factory.mktemp("boundaries"), {"train/web/made/0": [*lengths, length + 1]})
    loader = Loader(uri, "train", {"web": 1}, seed, length)
    count = loader.windows["web"]
    batch = loader.batch(0, count)
    owners = np.repeat(np.arange(len(lengths) + 1), [*lengths, length + 1])
    for row in range(count):
        start = loader.describe(row)[0].start
        owner = owners[start : start + length]
        assert batch.document_ids_BS[row].tolist() == (owner - owner[0]).tolist()
        spans = loader.describe(row)
        assert [span.document["id"] for span in spans] == [
            f"train-web-made-0-{n}" for n in dict.fromkeys(owner.tolist())
        ]
        assert [(span.first, span.end - span.start) for span in spans] == [
            (int(np.argmax(owner == n)), int((owner == n).sum())) for n in dict.fromkeys(owner.tolist())
        ]
    assert batch.document_ids_BS.dtype == torch.int32


def test_from_a_document_to_the_samples_that_read_it(uri: str) -> None:
    loader = Loader(uri, "train", MIX, seed=3, sequence_length=8)
    until = 300
    readers: dict[str, list[int]] = {}
    for sample in range(until):
        for span in loader.describe(sample):
            readers.setdefault(span.document["id"], []).append(sample)
    for document in ("train-code-0-2", "train-web-0-3", "train-math-0-0", "train-web-1-2"):
        assert loader.samples_of(document, until) == readers.get(document, [])
    assert loader.samples_of("nobody", until) == []


def test_identity_is_that_of_the_content_and_the_order(uri: str, tmp_path: Path) -> None:
    base = Loader(uri, "train", MIX, 0, 8).identity()
    assert Loader(uri, "train", dict(reversed(MIX.items())), 0, 8).identity() == base
    others = [
        Loader(uri, "train", MIX, 1, 8),
        Loader(uri, "train", MIX, 0, 16),
        Loader(uri, "train", MIX | {"web": 0.4}, 0, 8),
        Loader(uri, "train", [(0, MIX), (9, {"web": 1})], 0, 8),
        Loader(artifact(tmp_path / "other", LENGTHS, first=2), "train", MIX, 0, 8),
    ]
    found = [json.dumps(loader.identity()) for loader in others]
    assert len({json.dumps(base), *found}) == len(others) + 1


def test_epochs_are_counted_and_can_be_limited(uri: str) -> None:
    loader = Loader(uri, "train", MIX, 0, 8)
    epochs = loader.epochs(1000)
    assert epochs == pytest.approx({name: 1000 * MIX[name] / loader.windows[name] for name in MIX}, abs=0.1)
    loader.require(1000, max(epochs.values()))
    with pytest.raises(OrderError, match=r"'web/made' 28\.12 times, and 28 are allowed"):
        loader.require(1000, 28)


def test_bad_shards_are_errors_that_name_them(tmp_path: Path) -> None:
    def spoiled(name: str, spoil) -> Loader:
        folder = tmp_path / name
        uri = artifact(folder, LENGTHS)
        spoil(shard_file(uri, "train/math/made/0"))
        return Loader(uri, "train", {"math": 1}, 0, 8)

    cases = {
        "missing": (Path.unlink, r"train/math/made/0\.\w+\.bin is missing"),
        "cut": (
            lambda path: path.write_bytes(path.read_bytes()[:-4]),
            r"train/math/made/0\.\w+\.bin has 796 bytes .* 800",
        ),
        "altered": (flip, r"train/math/made/0\.\w+\.bin was altered"),
    }
    for name, (spoil, said) in cases.items():
        loader = spoiled(name, spoil)
        with pytest.raises(ShardError, match=said):
            loader.batch(0, 1)
        with pytest.raises(ShardError, match=said):
            loader.store.verify()


def test_what_is_not_there_is_said(uri: str, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"manifest\.json does not exist"):
        Loader(tmp_path, "train", MIX, 0, 8)
    with pytest.raises(ShardError, match="no split 'test'; it has: heldout, train"):
        Loader(uri, "test", MIX, 0, 8)
    with pytest.raises(OrderError, match="'knowledge'"):
        Loader(uri, "train", MIX | {"knowledge": 0.1}, 0, 8)
    with pytest.raises(OrderError, match="'web'"):  # no document of the split is that long
        Loader(uri, "heldout", {"web": 1}, 0, 60)
    with pytest.raises(ValueError, match="sequence length"):
        Loader(uri, "train", MIX, 0, 0)
    with pytest.raises(ValueError, match="at least 0"):
        Loader(uri, "train", MIX, 0, 8).batch(-1, 2)
    assert Loader(uri, "train", MIX, 0, 8).batch(7, 0).tokens_BS.shape == (0, 8)


@given(st.integers(0, 100), st.integers(1, 12))
def test_windows_of_a_shard(tokens: int, length: int) -> None:
    assert count_windows(tokens, length) == len(range(0, tokens - length, length))
