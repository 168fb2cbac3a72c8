"""The bounded cache: checked once, never half-written, shared by processes; and checked ranges of what does not fit."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import storage
from training import cache as caches
from training.cache import Cache, File, ShardError
from training.ranges import BLOCK, Range, Ranges, block_digests

SIZE = 1000
RANDOM = np.random.default_rng(0)


def put(uri: str, name: str, content: bytes) -> File:
    with fsspec.open(f"{uri}/{name}", "wb") as file:
        file.write(content)
    return File(uri, name, hashlib.sha256(content).hexdigest(), len(content))


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


def held(cache: Cache) -> int:
    return sum(path.stat().st_size for path in (cache.folder / "files").iterdir())


def test_a_remote_file_is_fetched_and_checked_once(memory: str, tmp_path: Path) -> None:
    content = RANDOM.bytes(SIZE)
    file, again = put(memory, "a", content), put(f"{memory}-copy", "b", content)
    cache = Cache(tmp_path)
    assert cache.open(file).read() == cache.open(again).read() == content  # by content: one file for both
    assert Cache(tmp_path).open(file).read() == content
    assert (cache.fetched_files, cache.fetched_bytes) == (1, SIZE)
    fsspec.filesystem("memory").rm(memory, recursive=True)
    assert Cache(tmp_path).open(file).read() == content


def test_a_local_file_is_checked_once_in_a_cache_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = put(str(folder), "a", RANDOM.bytes(SIZE))
    checks = 0
    check = caches._check

    def counted(*arguments) -> None:
        nonlocal checks
        checks += 1
        check(*arguments)

    monkeypatch.setattr(caches, "_check", counted)
    for _ in range(3):  # as many processes, each asking twice
        cache = Cache(tmp_path / "cache")
        assert cache.path(file) == cache.path(file) == folder / "a"
    assert checks == 1
    status = (folder / "a").stat()
    (folder / "a").write_bytes(RANDOM.bytes(SIZE))
    os.utime(folder / "a", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ShardError, match="was altered"):
        Cache(tmp_path / "cache").path(file)


@pytest.mark.parametrize("where", ["memory", "local"])
def test_bad_files_are_named_and_leave_nothing(where: str, memory: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    uri = memory if where == "memory" else str(tmp_path / "data")
    file = put(uri, "shard", RANDOM.bytes(SIZE))
    cache = Cache(tmp_path / "cache")
    for content, said in ((b"x" * SIZE, "was altered"), (b"x" * 9, "has 9 bytes where its manifest lists 1000")):
        put(uri, "shard", content)
        with pytest.raises(ShardError, match=f"shard {said}"):
            cache.path(file)
    fsspec.core.url_to_fs(uri)[0].rm(f"{uri}/shard")
    with pytest.raises(ShardError, match="shard is missing"):
        cache.path(file)
    if where == "memory":
        assert not list((tmp_path / "cache" / "files").iterdir())
        with pytest.raises(ShardError, match=r"1000 bytes and the cache .* may hold 10: raise OPENK2_CACHE_BYTES"):
            Cache(tmp_path / "small", 10).path(file)


def test_the_least_recently_used_leave_and_the_bound_holds(memory: str, tmp_path: Path) -> None:
    files = [put(memory, str(number), RANDOM.bytes(SIZE)) for number in range(6)]
    cache = Cache(tmp_path, 3 * SIZE)

    def use(number: int) -> None:
        cache.open(files[number]).close()
        time.sleep(0.02)  # times of use must differ on any file system
        assert held(cache) <= 3 * SIZE

    for number in (0, 1, 2, 0, 3):  # 1 leaves
        use(number)
    assert cache.fetched_files == 4
    use(0)
    assert cache.fetched_files == 4
    use(1)
    assert cache.fetched_files == 5
    stream = cache.open(files[1])
    for number in (2, 3, 4, 5):
        use(number)
    assert hashlib.sha256(stream.read()).hexdigest() == files[1].sha256  # what is open can be read to its end


def test_what_a_kill_left_is_never_read_and_goes_in_time(memory: str, tmp_path: Path) -> None:
    file = put(memory, "a", RANDOM.bytes(SIZE))
    cache = Cache(tmp_path, 2 * SIZE)
    (tmp_path / "files").mkdir()
    left = tmp_path / "files" / f"{file.sha256}.{SIZE}.1-1.partial"
    left.write_bytes(b"half")
    assert hashlib.sha256(cache.open(file).read()).hexdigest() == file.sha256
    assert left.exists()  # it may be another process's: its room is counted
    other = put(memory, "b", RANDOM.bytes(SIZE))
    cache.path(other)
    assert cache.path(other).exists()
    assert not (tmp_path / "files" / file.sha256).exists()
    past = time.time() - caches.STALE_SECONDS - 1
    os.utime(left, (past, past))
    cache.path(file)
    assert not left.exists()
    assert cache.path(other).exists()


def test_what_lost_its_bytes_with_the_power_is_fetched_again(memory: str, tmp_path: Path) -> None:
    file = put(memory, "a", RANDOM.bytes(SIZE))
    Cache(tmp_path).path(file).write_bytes(b"half")
    assert hashlib.sha256(Cache(tmp_path).open(file).read()).hexdigest() == file.sha256


def test_a_full_disk_leaves_nothing_to_be_read(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(memory, "a", RANDOM.bytes(SIZE))

    def full(url: str, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(target))

    cache = Cache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "fetch", full)
        with pytest.raises(OSError, match="No space left"):
            cache.path(file)
    assert not list((tmp_path / "files").iterdir())
    assert hashlib.sha256(cache.open(file).read()).hexdigest() == file.sha256


def test_prefetch_brings_files_in_and_keeps_bad_ones_for_their_reader(memory: str, tmp_path: Path) -> None:
    files = [put(memory, str(number), RANDOM.bytes(SIZE)) for number in range(8)]
    put(memory, "1", b"x" * SIZE)
    cache = Cache(tmp_path, 8 * SIZE)
    cache.prefetch(files)
    cache.close()  # waits for what is under way
    cache.prefetch(files)
    deadline = time.time() + 60
    while cache.fetched_files < 3 and time.time() < deadline:
        time.sleep(0.01)
    cache.close()
    assert cache.fetched_files == 3  # half the cache is four files, of which one is bad
    with pytest.raises(ShardError, match="/1 was altered"):
        cache.path(files[1])
    assert cache.path(files[7]).exists()
    assert cache.fetched_files == 4


def read_all(folder: str, limit: int, files: list[File], seed: int) -> tuple[int, int]:
    """A rank: reads files at random; how many were not what they should be, and how many it fetched."""
    cache = Cache(Path(folder), limit)
    wrong = 0
    for number in np.random.default_rng(seed).integers(len(files), size=60).tolist():
        with cache.open(files[number]) as file:
            wrong += hashlib.sha256(file.read()).hexdigest() != files[number].sha256
    return wrong, cache.fetched_files


def listed(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, inode and time of what lies in a folder, by name."""
    found = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # it left, or was renamed
            stat = path.stat()
            found[path.name] = (stat.st_size, stat.st_ino, stat.st_mtime_ns)
    return found


def test_processes_share_a_cache_that_is_too_small(kept_bucket: str, tmp_path: Path) -> None:
    files = [put(f"{kept_bucket}/shared", str(number), RANDOM.bytes(50_000 + number)) for number in range(8)]
    limit = 170_000
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        jobs = [pool.apply_async(read_all, (str(tmp_path), limit, files, seed)) for seed in range(3)]
        while not all(job.ready() for job in jobs):
            time.sleep(0.005)
            # Files come and go while they are counted: what is found twice the same was there at once.
            if (tmp_path / "files").exists() and (found := listed(tmp_path / "files")) == listed(tmp_path / "files"):
                assert sum(size for size, _, _ in found.values()) <= limit
        results = [job.get() for job in jobs]
    assert [wrong for wrong, _ in results] == [0, 0, 0]
    whole = [read_all(str(tmp_path / "large"), 1 << 20, files, seed) for seed in range(2)]
    assert sum(fetched for _, fetched in whole) == 8


# ------------------------------------------------------------------------------------------------------------- ranges


@pytest.fixture(scope="module")
def ranged(kept_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, File, File]:
    """A file of three and a half blocks, and the list of their sha256."""
    content = RANDOM.bytes(3 * BLOCK + BLOCK // 2)
    local = tmp_path_factory.mktemp("ranged") / "shard"
    local.write_bytes(content)
    return (
        content,
        put(f"{kept_bucket}/ranged", "shard", content),
        put(f"{kept_bucket}/ranged", "blocks", block_digests(local)),
    )


@given(st.data(), st.booleans())
@settings(max_examples=30)
def test_any_range_is_that_of_the_file(
    ranged: tuple[bytes, File, File], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, ahead: bool
) -> None:
    content, file, blocks = ranged
    start = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(start + 1, len(content)))
    ranges = Ranges(Cache(tmp_path_factory.getbasetemp() / "ranges"))
    wanted = Range(file, blocks, start, end)
    if ahead:
        ranges.prefetch([wanted, wanted])
    assert ranges.read(wanted) == content[start:end]
    assert ranges.fetched_bytes <= end - start + 2 * BLOCK
    ranges.close()


def test_what_is_needed_sooner_never_gives_way_to_what_is_read_further_ahead(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve updates of four blocks each, two of them read ahead with memory for one and a half: each block is fetched
    once, and only those of the first update while it waits."""
    content = RANDOM.bytes(48 * BLOCK)
    (tmp_path / "shard").write_bytes(content)
    file, blocks = put(memory, "shard", content), put(memory, "blocks", block_digests(tmp_path / "shard"))
    monkeypatch.setattr("training.ranges.AHEAD_BYTES", 6 * BLOCK)
    ranges, fetched = Ranges(Cache(tmp_path / "cache")), list[str]()
    fetch = ranges._fetch

    def noting(wanted: Range) -> bytes:
        fetched.append(threading.current_thread().name)
        return fetch(wanted)

    monkeypatch.setattr(ranges, "_fetch", noting)
    updates = [[Range(file, blocks, n * BLOCK, (n + 1) * BLOCK) for n in range(at, at + 4)] for at in range(0, 48, 4)]
    for number, update in enumerate(updates):
        for wanted in update:
            assert ranges.read(wanted) == content[wanted.start : wanted.end]
        ranges.prefetch(wanted for later in updates[number + 1 : number + 3] for wanted in later)
        assert len(ranges._ahead) <= 6
    assert len(fetched) == 48
    assert fetched.count(threading.current_thread().name) == 4
    # what is wanted no more gives way
    ranges.prefetch(updates[0])
    ranges.prefetch(updates[5])
    assert set(updates[5]) <= set(ranges._ahead)
    ranges.close()


def test_a_bad_block_is_an_error_only_where_it_is_read(kept_bucket: str, tmp_path: Path) -> None:
    content = bytearray(RANDOM.bytes(3 * BLOCK))
    (tmp_path / "shard").write_bytes(content)
    digests = block_digests(tmp_path / "shard")
    content[BLOCK + 5] ^= 1
    file, blocks = put(f"{kept_bucket}/bad", "shard", bytes(content)), put(f"{kept_bucket}/bad", "blocks", digests)
    ranges = Ranges(Cache(tmp_path / "cache"))
    assert ranges.read(Range(file, blocks, 0, BLOCK)) == content[:BLOCK]
    assert ranges.read(Range(file, blocks, 2 * BLOCK, 3 * BLOCK)) == content[2 * BLOCK :]
    bad = Range(file, blocks, BLOCK - 1, BLOCK + 1)
    ranges.prefetch([bad])
    with pytest.raises(ShardError, match="shard was altered or cut: block 1 of 65536 bytes"):
        ranges.read(bad)
    put(f"{kept_bucket}/bad", "shard", bytes(content[: 2 * BLOCK + 9]))
    with pytest.raises(ShardError, match="altered or cut: block 2"):
        ranges.read(Range(file, blocks, 2 * BLOCK, 2 * BLOCK + 5))
    fsspec.filesystem("s3").rm(file.name)
    with pytest.raises(ShardError, match="shard is missing"):
        ranges.read(Range(file, blocks, 0, 5))
    ranges.close()


def test_nonsense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        Cache(tmp_path, 0)
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("OPENK2_CACHE_BYTES", "12345")
    assert (Cache.from_environment().folder, Cache.from_environment().limit_bytes) == (tmp_path / "here", 12345)
    monkeypatch.setenv("OPENK2_CACHE_BYTES", "64GB")
    with pytest.raises(ValueError, match="OPENK2_CACHE_BYTES is '64GB': give the bytes as a number"):
        Cache.from_environment()
