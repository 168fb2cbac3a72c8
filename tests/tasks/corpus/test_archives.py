"""Packed and compressed files: what is whole is read, what is damaged is named, nothing unfolds past the limit."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import struct
import sys
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus import archives, compression
from tasks.corpus.archives import File, Unreadable, members
from tasks.corpus.compression import DamagedError, decompressed, read_whole
from tasks.corpus.sources import FolderSource
from tests import raw
from tests.raw import PACK, ar, folder, tar

LIMIT = 1_000_000


def decompress(path: str, data: bytes, limit: int) -> tuple[str, bytes]:
    inner, stream = decompressed(path, io.BytesIO(data))
    return inner, read_whole(stream, limit)


def read(path: str, data: bytes, limit: int = LIMIT) -> list[File | Unreadable]:
    return list(members(path, io.BytesIO(data), limit))


@pytest.mark.parametrize("suffix", PACK)
@given(parts=st.lists(st.binary(max_size=3000), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_what_was_compressed_comes_back_several_streams_in_a_row_too(suffix, parts):
    if suffix == ".zst":
        parts = parts[:1]
    packed = b"".join(PACK[suffix](part) for part in parts)
    assert decompress(f"a.txt{suffix}", packed, LIMIT) == ("a.txt", b"".join(parts))


@pytest.mark.parametrize("suffix", PACK)
def test_every_truncation_is_seen(suffix):
    packed = PACK[suffix](bytes(range(256)) * 40 + b"the end")
    for keep in {0, 1, 5, len(packed) // 2, len(packed) - 1}:
        with pytest.raises(DamagedError):
            decompress(f"a{suffix}", packed[:keep], LIMIT)


@pytest.mark.parametrize("suffix", PACK)
def test_a_bomb_stops_at_the_limit(suffix):
    with pytest.raises(DamagedError, match="larger than 1,000,000 bytes"):
        decompress(f"a{suffix}", PACK[suffix](b"\0" * 10_000_000), LIMIT)


def test_damage_at_the_end_of_what_unfolds_far_takes_no_step_for_every_byte():
    packed = bytearray(bz2.compress(b"\0" * 20_000_000))
    packed[-6] ^= 1
    calls = 0

    class Counted:
        def __init__(self):
            self.inner = bz2.BZ2Decompressor()

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def decompress(self, data, size):
            nonlocal calls
            calls += 1
            return self.inner.decompress(data, size)

    found = bytearray()
    with pytest.raises(DamagedError, match="damaged bzip2"):
        list(map(found.extend, compression._streams(compression._Counted(io.BytesIO(packed)), Counted, "bzip2")))
    assert len(found) == 20_000_000
    assert calls < 400_000


def test_gzip_padded_with_zeros_is_whole_and_other_trailing_bytes_are_damage():
    packed = gzip.compress(b"text")
    assert decompress("a.gz", packed + b"\0" * 512, LIMIT)[1] == b"text"
    with pytest.raises(DamagedError):
        decompress("a.gz", packed + b"junk", LIMIT)


@pytest.mark.parametrize("suffix", ["", *PACK])
def test_a_debian_package_gives_the_files_of_its_data_member(suffix):
    data = tar({"./usr/share/doc/a": b"one", "./usr/share/b": b"two"}, link=True)
    inner = PACK[suffix](data) if suffix else data
    deb = ar({"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar{suffix}": inner})
    *files, link = read("p.deb", deb)
    assert files == [File("p.deb/usr/share/doc/a", b"one"), File("p.deb/usr/share/b", b"two")]
    assert link == Unreadable("p.deb", "1 links or devices in it were passed over", "link")


def test_a_truncated_package_gives_what_lies_before_the_cut_and_is_named():
    data = tar({"a": b"x" * 2000, "b": b"y" * 200_000})
    deb = ar({"debian-binary": b"2.0\n", "data.tar": data})
    found = read("p.deb", deb[: len(deb) // 2])
    assert found[0] == File("p.deb/a", b"x" * 2000)
    assert isinstance(found[-1], Unreadable)
    assert found[-1].path == "p.deb"
    assert "damaged archive" in found[-1].reason


PLAIN = tar({name: name.encode() * 700 for name in ("a", "b", "c")})
HEADER = 512 + 1024
"""Where in PLAIN the second header begins."""


@pytest.mark.parametrize("keep", range(0, len(PLAIN), 101))
def test_every_cut_of_a_plain_tar_is_named_and_what_lies_before_it_is_read(keep):
    found = read("p.tar", PLAIN[:keep])
    whole = [one for one in found if isinstance(one, File)]
    assert [one.data for one in whole] == [name.encode() * 700 for name in ("a", "b", "c")][: len(whole)]
    assert len(whole) == min(3, keep // HEADER + (keep % HEADER >= 512 + 700))
    # a block of zeros is the mark of the end
    assert isinstance(found[-1], Unreadable) == (keep < 3 * HEADER + 512)


@pytest.mark.parametrize("name", ["p.tar", "p.tar.gz", "p.tgz"])
def test_a_damaged_header_within_a_tar_is_not_its_end(name):
    data = bytearray(PLAIN)
    data[HEADER + 10] ^= 1
    lone = PLAIN[:HEADER] + bytes(512) + PLAIN[HEADER:]
    for wrong, why in ((bytes(data), "bad checksum"), (lone, "what follows the mark of its end is passed over")):
        found = read(name, wrong if name == "p.tar" else gzip.compress(wrong))
        assert found == [File(f"{name}/a", b"a" * 700), Unreadable(name, f"damaged archive: {why}")]


def test_a_tar_is_held_to_the_checksum_of_its_compression():
    packed = bytearray(gzip.compress(PLAIN))
    packed[-5] ^= 1  # of the checksum, behind everything that tarfile reads
    *files, last = read("p.tar.gz", bytes(packed))
    assert len(files) == 3
    assert isinstance(last, Unreadable)
    assert "incorrect" in last.reason


@pytest.mark.parametrize("data", [b"", b"not an archive", b"!<arch>\n", b"!<arch>\nshort header"])
@pytest.mark.parametrize("name", ["p.deb", "p.zip", "p.tar.gz", "p.tar.zst"])
def test_what_is_no_archive_is_one_unreadable(name, data):
    assert [type(found) for found in read(name, data)] == [Unreadable]


def test_a_damaged_member_of_a_zip_does_not_hide_the_others():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "A" * 100)
        archive.writestr("b.txt", "B" * 100)
        archive.writestr("big.txt", "C" * 2000)
    data = out.getvalue().replace(b"A" * 100, b"A" * 50 + b"Z" * 50)
    found = read("z.zip", data, limit=1000)
    assert [type(one) for one in found] == [Unreadable, File, Unreadable]
    assert "CRC" in found[0].reason
    assert found[1] == File("z.zip/b.txt", b"B" * 100)
    assert found[2].reason == "larger than 1,000 bytes"


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_one_unreadable_whatever_it_is_packed_with(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("a.txt", "".join(map(str, range(5000))))
        archive.writestr("b.txt", "B")
    data = bytearray(out.getvalue())
    data[200:400] = bytes(200)
    found = read("z.zip", bytes(data))
    assert [type(one) for one in found] == [Unreadable, File]
    assert found[0].path == "z.zip/a.txt"


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_a_bomb_of_members_that_share_their_bytes_stops(monkeypatch):
    monkeypatch.setattr(compression, "EXPANSION_FREE", 5_000_000)
    data = zipped({"a.txt": b"\0" * 900_000})
    at, end = data.find(b"PK\1\2"), data.rfind(b"PK\5\6")
    # One directory entry 400 times, each for the same bytes.
    directory = data[at:end] * 400
    record = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 400, 400, len(directory), at, 0)
    found = read("z.zip", data[:at] + directory + record)
    assert found[-1].reason == "damaged archive: its members overlap"
    assert len(found) < 40


def test_members_that_unfold_as_only_a_bomb_does_stop_together(monkeypatch):
    monkeypatch.setattr(compression, "EXPANSION_FREE", 5_000_000)
    found = read("z.zip", zipped({f"{n}.txt": bytes(900_000) for n in range(40)}, zipfile.ZIP_BZIP2))
    assert "a bomb" in found[-1].reason
    assert len(found) < 10


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_comes_back_whatever_it_is_packed_with(method):
    files = {"empty": b"", "a": b"word " * 10, "random": random.Random(1).randbytes(600_000), "zeros": bytes(700_000)}
    assert read("z.zip", zipped(files, method)) == [File(f"z.zip/{name}", data) for name, data in files.items()]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_holds_far_more_than_it_says_fills_no_memory(method):
    data = bytearray(zipped({"a.txt": bytes(60_000_000)}, method))
    at = data.find(b"PK\1\2")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    tracemalloc.start()
    (found,) = read("z.zip", bytes(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, Unreadable)
    assert peak < 20_000_000  # LZMA has a dictionary of 8 MB


def test_a_member_that_is_larger_than_it_says_is_damaged_and_its_neighbour_is_read():
    data = bytearray(zipped({"a.txt": b"A" * 5000, "b.txt": b"B" * 100}))
    at = data.find(b"PK\1\2")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    found = read("z.zip", bytes(data))
    assert [type(one) for one in found] == [Unreadable, File]


def test_an_archive_of_too_many_members_is_named_before_it_fills_memory(monkeypatch):
    monkeypatch.setattr(archives, "ZIP_DIRECTORY_MAX", 10_000)
    (found,) = read("z.zip", zipped({f"{number}": b"x" for number in range(1000)}))
    assert "too many members" in found.reason


def test_a_tar_of_many_members_or_of_a_huge_name_takes_little_memory():
    many = tar({f"{number}": b"" for number in range(20_000)})
    tracemalloc.start()
    count = sum(1 for _ in members("a.tar", io.BytesIO(many), LIMIT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, peak < 5_000_000) == (20_000, True)
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 500_000_000
    (found,) = read("a.tar", header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    assert "a header of 500,000,000 bytes" in found.reason
    header.size = 1
    chain = (header.tobuf(tarfile.GNU_FORMAT) + b"x" + bytes(511)) * 5_000
    assert all(isinstance(one, Unreadable) for one in read("a.tar", chain))


def sparse(name: str, size: int, extended: bool = False) -> bytes:
    """A header in GNU's old form of a file that is one hole."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[386:410] = b"%011o\0" % 0 * 2
    block[482], block[483:495] = extended, b"%011o\0" % size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


MAP = (b"%011o\0" % 1 * 42)[:504] + b"\1" + bytes(7)
"""One block of a sparse map that another one follows."""
LAST = MAP[:504] + bytes(8)


def described(kind: bytes, records: bytes, size: int | None = None) -> bytes:
    """A header that holds `records` for what follows."""
    info = tarfile.TarInfo("described")
    info.type, info.size = kind, len(records) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + records + bytes(-len(records) % 512)


def plain(name: str, data: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


def pax(**attributes: str) -> bytes:
    records = b""
    for key, value in attributes.items():
        body = f" {key.replace('__', '.')}={value}\n".encode()
        records += b"%d" % (len(body) + len(str(len(body) + 2))) + body
    return described(tarfile.XHDTYPE, records)


@pytest.mark.parametrize(
    "member",
    [
        sparse("s.txt", 31_000_000),
        sparse("s.txt", 10, extended=True) + MAP * 3 + LAST,
        pax(GNU__sparse__map="0,1", GNU__sparse__size="31000000", path="s.txt") + plain("x", b"1"),
        pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__name="s.txt", GNU__sparse__realsize="9")
        + plain("x", b"999999999999\n" + b"1\n" * 5_000),
    ],
    ids=["old", "old and long", "attributes 0.1", "attributes 1.0"],
)
def test_a_sparse_file_within_a_tar_is_named_and_its_neighbours_are_read(member):
    special, file = read("a.tar", member + plain("b.txt", b"B") + bytes(1024))
    assert isinstance(special, Unreadable)
    assert (special.path, special.kind) == ("a.tar/s.txt", "special_file")
    assert file == File("a.tar/b.txt", b"B")


def test_the_map_of_a_sparse_file_is_not_kept():
    data = sparse("s.txt", 10, extended=True) + MAP * 20_000 + LAST + bytes(1024)
    tracemalloc.start()
    (found,) = read("a.tar", data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, Unreadable)
    assert peak < 2_000_000


@pytest.mark.parametrize(
    "data",
    [
        sparse("s.txt", 10, extended=True) + MAP + MAP[:100],  # cut within the map
        pax(GNU__sparse__map="0", path="a") + sparse("s.txt", 10, extended=True) + MAP,
        pax(size="-512") + plain("a.txt", b"A" * 512),
        pax(size="x") + plain("a.txt", b"A" * 512),
        described(tarfile.XHDTYPE, b"1" * 900_000),  # a search of it takes quadratic time
        described(tarfile.XHDTYPE, b"30 path=short\n"),
        described(b"X", b"", 500_000_000),
        pax(path="a.txt") + bytes(1024),
    ],
)
def test_a_tar_with_damaged_attributes_or_a_cut_map_is_one_unreadable(data):
    found = read("a.tar", data)
    assert isinstance(found[-1], Unreadable)
    assert "damaged archive" in found[-1].reason
    assert not any(isinstance(one, File) for one in found)


def test_a_member_of_any_size_ends_where_its_archive_does():
    info = tarfile.TarInfo("a.txt")
    info.size = 1 << 60
    member, rest = read("a.tar", info.tobuf(tarfile.GNU_FORMAT) + b"x" * 1000)
    assert (member.path, rest.path) == ("a.tar/a.txt", "a.tar")
    assert "bytes early" in member.reason


def test_what_holds_for_all_members_is_not_copied_to_each():
    common = b"".join(b"12 k%06d=\n" % n for n in range(60_000))

    def steps(members: int) -> int:
        lines = 0

        def count(*_: object) -> object:
            nonlocal lines
            lines += 1
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            read("a.tar", described(tarfile.XGLTYPE, common) + plain("a", b"") * members + bytes(1024))
        finally:
            sys.settrace(before)
        return lines

    assert steps(20) - steps(10) < 60_000


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_a_tar_is_read_as_the_standard_library_reads_it(form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name in ("a.txt", f"d/{'x' * 90}.txt", f"{'p' * 90}/{'y' * 60}.txt", "\xe9.txt", "empty", "caf\udce9"):
            if form != tarfile.PAX_FORMAT and name == "\xe9.txt":
                continue
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 0 if name == "empty" else 700, 1.5
            archive.addfile(info, io.BytesIO(name.encode("utf-8", "surrogateescape") * 700))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("q" * 150 if form != tarfile.USTAR_FORMAT else "q")
            info.type, info.linkname = kind, "r" * 90
            archive.addfile(info)
        if form != tarfile.USTAR_FORMAT:
            info = tarfile.TarInfo("z" * 300)
            info.size = 5
            archive.addfile(info, io.BytesIO(b"after"))
    with tarfile.open(fileobj=io.BytesIO(out.getvalue()), errors="surrogateescape") as archive:
        expected = [
            File(archives._label("a.tar", info.name), archive.extractfile(info).read())
            for info in archive
            if info.isfile()
        ]
    *files, links = read("a.tar", out.getvalue())
    assert files == expected
    assert links.reason.startswith("3 links")


@pytest.mark.parametrize("make", [zipped, tar])
def test_paths_that_lead_out_are_names_and_no_places(make, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    suffix = "zip" if make is zipped else "tar"
    found = read(f"a.{suffix}", make({"../../evil.txt": b"1", "/abs.txt": b"2", "x" * 5000: b"3"}))
    assert [one.data for one in found] == [b"1", b"2", b"3"]
    assert all(len(one.path) < 1100 for one in found)
    assert list(tmp_path.rglob("*.txt")) == []


def test_an_archive_within_an_archive_is_named_and_not_opened():
    inner = zipped({"a.txt": b"deep"})
    source = FolderSource(**folder("x"))
    for item in members("z.zip", io.BytesIO(zipped({"b.zip": inner, "c.jsonl.gz.gz": b"x", "d.txt": b"D"})), LIMIT):
        (found,) = raw.read(item.path, item.data, source, LIMIT)
        if item.path.endswith("d.txt"):
            assert found.text == "D"
        else:
            assert found.kind == "no_reader"


@given(st.binary(max_size=2000), st.sampled_from(["a.zip", "a.tar", "a.deb", "a.tar.gz", "a.tar.zst"]))
@settings(max_examples=100, deadline=None)
def test_no_bytes_crash_an_archive_reader(data, name):
    for head in (b"", b"!<arch>\n", b"PK\3\4", b"PK\5\6"):
        assert all(isinstance(one, File | Unreadable) for one in read(name, head + data))


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4), st.sampled_from([zipped, tar]))
@settings(max_examples=100, deadline=None)
def test_no_damage_crashes_an_archive_reader(at, junk, make):
    data = bytearray(make({f"{number}.txt": bytes([number]) * 200 for number in range(4)}))
    at %= len(data)
    data[at : at + len(junk)] = junk
    assert all(isinstance(one, File | Unreadable) for one in read(f"a.{make.__name__.replace('ped', '')}", bytes(data)))
