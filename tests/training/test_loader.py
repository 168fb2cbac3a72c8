"""The loader: windows, order over ranks and restarts, document numbers, lineage, and bad input."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import fsspec
import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shards import folder_of
from tests.training.data import LENGTHS, MIX, SOURCES, artifact, flip, shard_file
from tests.training.test_checkpoint import full_disk
from training import samples
from training.cache import Cache, ShardError
from training.loader import Batch, Loader, Span, require
from training.order import OrderError
from training.samples import IGNORED, Kind
from training.shards import MAPS, BadShard, TokenShards, count_windows


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return artifact(tmp_path_factory.mktemp("tokens"), LENGTHS)


def windows_of(uri: str, split: str, length: int) -> dict[str, list[list[int]]]:
    """Every window by its definition: length + 1 tokens, stride length, within a shard."""
    result: dict[str, list[list[int]]] = {}
    for (domain, _), stream in TokenShards(uri).streams(split).items():
        for shard in stream:
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
    loader = Loader(artifact(tmp_path / "later", LENGTHS), "train", {"math": 1}, 0, 8)
    loader.store.verify()  # as prefetching does
    shard_file(loader.store.uri, "train/math/made/0").unlink()
    with pytest.raises(BadShard, match=r"train/math/made/0\.\w+\.bin was removed"):
        loader.batch(0, 1)


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
    for text in ("null", "[]", "{}", '{"fingerprint": "0", "parts": []}'):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(ShardError, match=r"manifest\.json cannot be read"):
            Loader(tmp_path, "train", MIX, 0, 8)


@pytest.mark.parametrize("kind", ["windows", "best_fit"])
def test_shards_that_are_larger_than_the_cache_are_read_in_parts(
    sources: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kind: Kind
) -> None:
    """Also where counting the rows has looked at every shard before, and after prefetching was stopped."""
    remote = f"memory://{tmp_path.name}-{kind}"
    fsspec.filesystem("memory").put(sources, remote, recursive=True)
    shards = [shard.file.bytes for shard in TokenShards(sources)]
    # room for a layout's indices, and not for the largest shard
    cache = Cache(tmp_path, max(shards) - 1)
    far = Loader(remote, "train", None, 0, 16, kind, cache)
    near = Loader(sources, "train", None, 0, 16, kind, Cache(tmp_path_factory.mktemp("near")))
    for first in range(0, 60, 20):
        far.prefetch([(first, 20)])
        if first:
            far.close()
        assert far.batch(first, 20).tokens_BS.tolist() == near.batch(first, 20).tokens_BS.tolist()
    far.close()


@pytest.mark.parametrize("left", [0, 100, -8])
def test_a_layout_that_lost_its_bytes_with_the_power_is_made_again(uri: str, tmp_path: Path, left: int) -> None:
    def read() -> list[list[int]]:
        return Loader(uri, "train", MIX, 0, 8, "best_fit", Cache(tmp_path)).batch(0, 40).tokens_BS.tolist()

    expected = read()
    samples._mapped.cache_clear()  # as in another process
    for path in (tmp_path / "packed").iterdir():
        path.write_bytes(path.read_bytes()[:left])
    assert read() == expected


def test_a_run_reads_more_shards_than_it_may_have_files_open(tmp_path: Path) -> None:
    uri = artifact(tmp_path, {f"train/web/made/{number:03}": [40] for number in range(MAPS + 50)})
    before = psutil.Process().num_fds()
    kinds: tuple[Kind, ...] = ("windows", "best_fit")
    for kind in kinds:
        loader = Loader(uri, "train", None, 0, 32, kind, Cache(tmp_path / "cache"))
        batch = loader.batch(0, loader.windows["web"])
        assert len(batch.tokens_BS.unique()) >= 32 * (MAPS + 50), "all of every shard"
    assert psutil.Process().num_fds() - before <= 2 * MAPS


@given(st.integers(0, 100), st.integers(1, 12))
def test_windows_of_a_shard(tokens: int, length: int) -> None:
    assert count_windows(tokens, length) == len(range(0, tokens - length, length))


# ---------------------------------------------------------------------------------------------------- sources and skips


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> str:
    return artifact(tmp_path_factory.mktemp("sources"), SOURCES)


def test_sources_within_domains_are_drawn_and_named(sources: str) -> None:
    loader = Loader(sources, "train", {"web": 0.5, "web/Crawl of 2026": 0.25, "code": 0.25}, 0, 16)
    assert loader.sources == ["code/repos", "web/Crawl of 2026", "web/wiki"]
    assert loader.domains == ["code", "web"]
    batch = loader.batch(0, 400)
    drawn = Counter(loader.sources[number] for number in batch.sources_B.tolist())
    assert drawn == {"code/repos": 100, "web/Crawl of 2026": 100, "web/wiki": 200}
    for row in range(400):
        domain, source = loader.sources[int(batch.sources_B[row])].split("/", 1)
        assert loader.domains[int(batch.domains_B[row])] == domain
        assert loader.describe(row)[0].document["source"].startswith(f"train/{domain}/{source}/")


def test_epoch_limits_of_domains_sources_and_all(sources: str) -> None:
    loader = Loader(sources, "train", {"web": 0.9, "web/wiki": 0.1}, 0, 16)
    by_source, by_domain = loader.epochs_by_source(4000), loader.epochs(4000)
    loader.require(4000, {"*": max(by_source.values()), "web": by_domain["web"]})
    crawl, web = by_source["web/Crawl of 2026"], by_domain["web"]
    for limits, name, found in (
        ({"*": crawl - 0.1}, "web/Crawl of 2026", crawl),
        ({"web": web - 0.1, "*": 1000}, "web", web),
        ({"web/wiki": 0.5}, "web/wiki", by_source["web/wiki"]),
    ):
        with pytest.raises(OrderError, match=f"'{name}' {found:.2f} times"):
            loader.require(4000, limits)
    with pytest.raises(OrderError, match=f"'web' {2 * web:.2f} times"):
        require([(loader, 4000), (loader, 4000)], {"web": 1.9 * web})
    with pytest.raises(OrderError, match="limit names 'books', which is not drawn"):
        loader.require(4000, {"books": 1})


SKIPPING = {"web": 0.2, "code": 0.8}


@cache
def described(sources: str, kind: Kind) -> list[Span]:
    """The first span of each sample where nothing is skipped: to describe one reads a file."""
    plain = Loader(sources, "train", SKIPPING, 3, 32, kind)
    return [plain.describe(sample)[0] for sample in range(200)]


@given(
    st.dictionaries(
        st.sampled_from(["train/web/wiki/0", "train/web/wiki/2", "train/code/repos/1", "train/code/repos/2"]),
        st.integers(0, 150),
        min_size=1,
    ),
    st.sampled_from(["windows", "best_fit"]),
)
@settings(max_examples=8)  # each looks at every sample, in more than an epoch of code
def test_skipped_shards_give_way_to_others_of_their_source_and_nothing_else_moves(
    sources: str, skipped: dict[str, int], kind: Kind
) -> None:
    before = described(sources, kind)
    loader = Loader(sources, "train", SKIPPING, 3, 32, kind)
    for key, first in skipped.items():
        loader.skip(key, first)
    readers: dict[str, list[int]] = {}
    for sample, was in enumerate(before):
        spans = loader.describe(sample)
        assert skipped.get(spans[0].shard, 201) > sample
        assert spans[0].shard.rpartition("/")[0] == was.shard.rpartition("/")[0]
        if skipped.get(was.shard, 201) > sample:
            assert (spans[0].shard, spans[0].start) == (was.shard, was.start)
        for span in spans:
            readers.setdefault(span.document["id"], []).append(sample)
    # from documents back to the samples that really read them
    for document in ("train-web-wiki-0-0", "train-web-wiki-3-1", "train-code-repos-0-0", "train-code-repos-1-2"):
        assert loader.samples_of(document, len(before)) == readers.get(document, [])
    assert loader.skipped == skipped


def test_a_bad_shard_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    uri = artifact(tmp_path, SOURCES)
    flip(shard_file(uri, "train/web/wiki/1"))
    loader = Loader(uri, "train", {"web/wiki": 1}, 0, 16)
    with pytest.raises(BadShard, match="was altered") as met:
        loader.batch(0, 50)
    assert met.value.key == "train/web/wiki/1"
    loader.skip("train/web/wiki/1", 0)
    assert loader.batch(0, 50).tokens_BS.shape == (50, 16)
    counts = Counter(shard.rpartition("/")[2] for shard in (loader.describe(n)[0].shard for n in range(50)))
    assert set(counts) == {"0", "2", "3"}
    assert 0.2 < loader.skipped_share() < 0.3
    for number in (0, 2):
        loader.skip(f"train/web/wiki/{number}", 0)
    with pytest.raises(ShardError, match="every shard of 'web/wiki' is skipped"):
        loader.skip("train/web/wiki/3", 0)
    with pytest.raises(ShardError, match="no shard train/web/wiki/9"):
        loader.skip("train/web/wiki/9", 0)


# --------------------------------------------------------------------------------------------------------- packed rows


@given(st.lists(st.integers(1, 40), min_size=1, max_size=25), st.integers(1, 16), st.integers(0, 2**16))
@settings(max_examples=25)
def test_packed_rows_read_every_token_once_an_epoch_within_documents(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int, seed: int
) -> None:
    uri = artifact(tmp_path_factory.mktemp("packed"), {"train/web/made/0": lengths, "train/web/made/1": [3, 5]})
    loader = Loader(uri, "train", {"web": 1}, seed, length, "best_fit")
    rows = loader.windows["web"]
    batch = loader.batch(0, rows)
    expected: Counter[tuple[int, int]] = Counter()
    for shard in TokenShards(uri).streams("train")["web", "made"]:
        tokens, start = shard.tokens_T.tolist(), 0
        for end in shard.ends().tolist():
            inner = tokens[start:end]
            expected.update(zip(inner, [*inner[1:], IGNORED], strict=True))
            start = end
    real = batch.document_ids_BS >= 0
    found = Counter(zip(batch.tokens_BS[real].tolist(), batch.targets_BS[real].tolist(), strict=True))
    assert found == expected  # each token once, with the token that follows in its document
    assert (batch.targets_BS[~real] == IGNORED).all()
    assert (batch.tokens_BS[~real] == 0).all()
    waste = loader.waste()["web"]
    assert waste == (sum(expected.values()), 0, batch.padding)
    for row in range(rows):
        spans = loader.describe(row)
        numbers = batch.document_ids_BS[row].tolist()
        assert numbers == sorted(number for number in numbers if number >= 0) + [-1] * numbers.count(-1)
        assert len(set(numbers) - {-1}) == len(spans)
        for number, span in enumerate(spans):
            assert [place for place, other in enumerate(numbers) if other == number] == list(
                range(span.first, span.first + span.end - span.start)
            )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=25), st.integers(1, 16), st.integers(2, 30))
@settings(max_examples=25)
def test_a_stream_of_long_documents_reads_these_alone(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int, least: int
) -> None:
    """Every token of a long document once an epoch, and nothing else; any sample by its id alone."""
    uri = artifact(tmp_path_factory.mktemp("long"), {"train/web/made/0": lengths, "train/web/made/1": [40, 3, 5]})
    loader = Loader(uri, "train", {"web": 1}, 3, length, "best_fit", document_tokens_min=least)
    rows = loader.windows["web"]
    batch = loader.batch(0, rows)
    long = [size for size in (*lengths, 40, 3, 5) if size >= least]
    assert int((batch.document_ids_BS >= 0).sum()) == sum(long)
    for row in range(rows):
        spans = loader.describe(row)
        assert all(span.document["end"] - span.document["start"] >= least for span in spans)
    for row in {0, rows // 2, rows - 1}:
        one = Loader(uri, "train", {"web": 1}, 3, length, "best_fit", document_tokens_min=least).batch(row, 1)
        assert torch.equal(one.tokens_BS[0], batch.tokens_BS[row])
    assert loader.waste()["web"] == (sum(lengths) + 48, sum(lengths) + 48 - sum(long), batch.padding)


@pytest.mark.parametrize("names", [["a", "b", "c"], ["a", "bb", "ccc"]])  # of one length or not
def test_a_packed_row_holds_no_document_twice(tmp_path: Path, names: list[str]) -> None:
    """Each written twice, as a mix says: those of 10 tokens alone would fill a row."""
    ends = np.cumsum([10, 8, 2] * 2)
    tokens = np.where(np.isin(np.arange(40), ends - 1), 0, 1)
    index = pa.table({"id": names * 2, "start": [0, *ends[:-1]], "end": ends})
    folder = folder_of(tmp_path, {"train/web/made/0": (tokens, index)}, {"vocabulary": 2, "end_of_document": 0})
    loader = Loader(folder, "train", None, 0, 20, "best_fit")
    found = [[span.document["id"] for span in loader.describe(sample)] for sample in range(loader.windows["web"])]
    assert [sorted(row) for row in found] == [names, names]


def test_a_full_disk_of_the_cache_names_the_file(uri: str, tmp_path: Path) -> None:
    with full_disk(100), pytest.raises(OSError, match=r"packed/.*\.partial could not be written"):
        Loader(uri, "train", MIX, 0, 16, "best_fit", Cache(tmp_path))


def test_where_no_document_is_long_enough_it_is_said(uri: str) -> None:
    with pytest.raises(OrderError, match="'web', which has no window of this length"):
        Loader(uri, "train", {"web": 1}, 0, 16, "best_fit", document_tokens_min=10_000)
    with pytest.raises(ValueError, match="only packed rows"):
        Loader(uri, "train", {"web": 1}, 0, 16, document_tokens_min=5)


def test_windows_count_what_they_leave_unread(uri: str) -> None:
    waste = Loader(uri, "train", MIX, 0, 16).waste()
    assert waste["math"] == (200, 200 - 12 * 16, 0)
    assert waste["web"] == (134, 134 - 8 * 16, 0)


def test_sources_that_are_too_small_for_a_sample_are_told_and_wasted(tmp_path: Path) -> None:
    uri = artifact(tmp_path, {"train/web/big/0": [300], "train/web/tiny/0": [10], "train/code/small/0": [8, 4]})
    loader = Loader(uri, "train", None, 0, 16)
    assert loader.sources == ["web/big"]
    assert loader.empty == {"web/tiny", "code/small"}
    assert loader.share(loader.empty) == pytest.approx(22 / 322)
    assert loader.waste() == {"code": (12, 12, 0), "web": (310, 310 - 18 * 16, 0)}
    assert Loader(uri, "train", {"web": 1, "web/tiny": 0}, 0, 16).empty == set()  # left out by the mix
    assert Loader(uri, "train", None, 0, 16, "best_fit").empty == set()


def test_packing_is_stored_and_remote_shards_give_the_same_rows(sources: str, tmp_path: Path) -> None:
    remote = f"memory://{tmp_path.name}-packed"
    fsspec.filesystem("memory").put(f"{sources}/", f"{remote}/", recursive=True)
    local = Loader(sources, "train", None, 0, 32, "best_fit", Cache(tmp_path / "a")).batch(0, 200)
    far = Loader(remote, "train", None, 0, 32, "best_fit", Cache(tmp_path / "b", 1 << 14)).batch(0, 200)
    for name in ("tokens_BS", "targets_BS", "document_ids_BS"):
        assert torch.equal(getattr(local, name), getattr(far, name))
    stored = sorted(path.name for path in (tmp_path / "a" / "packed").iterdir())
    assert stored == sorted(path.name for path in (tmp_path / "b" / "packed").iterdir())
    for path in (tmp_path / "a" / "packed").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / "packed" / path.name).read_bytes()
