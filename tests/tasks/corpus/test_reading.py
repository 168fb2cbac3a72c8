"""Reading: one record at a time, from anywhere; what is damaged is named once and what stands beside it is read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zlib
from pathlib import Path

import brotli
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus import compression
from tasks.corpus.acquire import acquire
from tasks.corpus.archives import Unreadable
from tasks.corpus.extract.passage import Passage
from tasks.corpus.licence import refusal
from tasks.corpus.reading import passages
from tasks.corpus.sources import FolderSource
from tests.linear import assert_linear
from tests.raw import PACK, SHARED, folder, read, step, warc

PAGES = [f"<title>T{number}</title><p>Page {number} has a few words.</p>" for number in range(4)]
WORDS = [f"Page {number} has a few words." for number in range(4)]


def source(**more) -> FolderSource:
    return FolderSource(**{"name": "own", "kind": "folder", "path": "x", **SHARED, **more})


def found(path: str, data: bytes, limit: int = 1_000_000, **more) -> list[Passage | Unreadable]:
    return read(path, data, source(**more), limit)


def texts(items) -> list[str]:
    return [one.text for one in items if isinstance(one, Passage)]


def reasons(items) -> list[str]:
    return [f"{one.path}: {one.reason}" for one in items if isinstance(one, Unreadable)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_warc_gives_its_pages_with_their_addresses(pack):
    info = warc("software: x", kind="warcinfo")
    data = b"".join(pack(one) for one in [info, *(warc(page, f"http://a/{n}") for n, page in enumerate(PAGES))])
    items = found("a.warc.gz" if pack is gzip.compress else "a.warc", data)
    assert texts(items) == WORDS
    assert [(one.title, one.url, one.anchor) for one in items[:2]] == [
        ("T0", "http://a/0", "2"),
        ("T1", "http://a/1", "3"),
    ]


def test_wet_records_are_plain_text():
    data = b"".join(gzip.compress(warc(f"<not> html {n}", f"http://a/{n}", "conversion")) for n in range(3))
    assert texts(found("a.warc.wet.gz", data)) == ["<not> html 0", "<not> html 1", "<not> html 2"]


def http(body: bytes, status: str = "200 OK", media: str = "text/html", **more) -> bytes:
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in more.items())
    return f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\n{fields}\r\n".encode() + body


def chunked(body: bytes) -> bytes:
    parts = [body[at : at + 20] for at in range(0, len(body), 20)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


PAGE = PAGES[1].encode()


@pytest.mark.parametrize(
    "response",
    [
        http(chunked(PAGE), Transfer_Encoding="chunked"),
        http(gzip.compress(PAGE, mtime=0), Content_Encoding="gzip"),
        http(zlib.compress(PAGE), Content_Encoding="deflate"),
        http(brotli.compress(PAGE), Content_Encoding="br"),
        http(chunked(gzip.compress(PAGE, mtime=0)), Transfer_Encoding="chunked", Content_Encoding="gzip"),
        # Many crawlers undo the encodings and keep the header.
        http(PAGE, Transfer_Encoding="chunked", Content_Encoding="gzip"),
        http(PAGE, Content_Encoding="br"),
        http(PAGE, media="text/html; charset=utf-16"),
        http(PAGES[1].replace("few", "f\u00e9w").encode(), media="text/html; charset=iso-8859-1"),
    ],
)
def test_http_bodies_come_out_whatever_was_done_to_them_and_whatever_charset_they_declare(response):
    (text,) = texts(found("a.warc", warc(response)))
    assert text.replace("\u00e9", "e") == WORDS[1]


@pytest.mark.parametrize(
    ("record", "kind", "reason"),
    [
        (warc(http(b"gone", "404 Not Found")), "http_status", "404"),
        (warc(http(b"x", "301 Moved", Location="/")), "http_status", "301"),
        (warc(http(b"%PDF", media="application/pdf")), "media_type", "application/pdf"),
        (warc(http(b"body{}", media="text/css")), "media_type", "text/css"),
        (warc("<p>begun", WARC_Truncated="length"), "truncated", "length"),
        (warc("<p>rest", kind="continuation", WARC_Segment_Number=2), "unreadable", "segment"),
        (warc(b"HTTP/garbage"), "http_status", "nothing that is HTTP"),
        (warc(http(gzip.compress(PAGE, mtime=0)[:-12], Content_Encoding="gzip")), "unreadable", "end early"),
        (warc(http(chunked(PAGE)[:-30], Transfer_Encoding="chunked")), "unreadable", "damaged"),
        (warc(http(gzip.compress(bytes(5_000_000), mtime=0), Content_Encoding="gzip")), "unreadable", "larger than"),
        (warc(http(brotli.compress(bytes(5_000_000)), Content_Encoding="br")), "unreadable", "larger than"),
        (warc("x" * 1_000_001), "unreadable", "larger than 1,000,000 bytes"),
        (warc(http(bytes(range(256)) * 9)), "unreadable", "binary data"),
    ],
)
def test_a_record_without_a_document_is_named_by_its_kind_and_the_next_is_read(record, kind, reason):
    items = found("a.warc", record + warc(PAGES[0]))
    assert [type(one) for one in items] == [Unreadable, Passage]
    assert (items[0].kind, items[0].path) == (kind, "a.warc#1")
    assert reason in items[0].reason
    assert items[1].text == WORDS[0]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("wrong", [9, -9, 300])
def test_a_wrong_content_length_costs_one_record(pack, wrong):
    records = [warc(PAGES[0]), warc(PAGES[1], wrong=wrong), warc(PAGES[2]), warc(PAGES[3] + "x" * 600)]
    items = found("a.warc.gz" if pack is gzip.compress else "a.warc", b"".join(map(pack, records)))
    assert [text[:23] for text in texts(items)] == [WORDS[0], *WORDS[2:]]
    assert "a.warc" in reasons(items)[0]
    assert "Content-Length" in reasons(items)[0]


def test_a_damaged_gzip_member_costs_one_record():
    packed = [gzip.compress(warc(page + " filler" * 40)) for page in PAGES]
    packed[1] = packed[1][:60] + b"\xff\xff\xff\xff" + packed[1][64:]
    items = found("a.warc.gz", b"".join(packed))
    assert [text[:23] for text in texts(items)] == [WORDS[0], *WORDS[2:]]
    assert len(reasons(items)) == 1


@given(cut=st.integers(min_value=1, max_value=900), packed=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_cut_warc_gives_what_lies_before_the_cut_and_says_that_it_was_cut(cut, packed):
    records = [gzip.compress(warc(page)) if packed else warc(page) for page in PAGES]
    data = b"".join(records)
    keep = len(data) - cut % len(data)
    ends = {sum(map(len, records[:number])): number for number in range(5)}
    items = found("a.warc.gz" if packed else "a.warc", data[:keep])
    whole = max(number for end, number in ends.items() if end <= keep)
    # The last record is whole without the empty lines that follow it.
    if not packed and any(0 <= end - keep <= 4 for end in ends):
        return
    # A compressed record may be whole but for the checksum behind it.
    assert texts(items) == WORDS[:whole] or (packed and texts(items) == WORDS[: whole + 1])
    assert len(reasons(items)) == (0 if keep in ends else 1)


def test_nothing_but_wrong_lengths_takes_linear_time():
    record = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 900000\r\n\r\nx\r\n"
    assert "given up" in reasons(found("a.warc", record * 15_000))[-1]
    assert_linear(lambda size: found("a.warc", record * size), 15_000)


def test_records_within_one_of_a_wrong_length_take_linear_time():
    inner = warc("x", kind="conversion")
    outer = warc(inner * 20, kind="conversion", wrong=5)
    assert len(found("a.warc", outer)) == 21
    limit = 100_000_000
    assert_linear(lambda size: found("a.warc", warc(inner * size, kind="conversion", wrong=5), limit=limit), 4_000)


@given(st.binary(max_size=400), st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_rubbish_between_records_never_hides_them(rubbish, at):
    rubbish = rubbish.replace(b"WARC/1.", b"")
    records = [warc(page) for page in PAGES]
    records.insert(at, rubbish + b"\r\n")
    items = found("a.warc", b"".join(records))
    assert texts(items) == WORDS or (at == 0 and set(texts(items)) <= set(WORDS))
    assert len(reasons(items)) <= 2


@pytest.mark.parametrize("suffix", ["", *PACK])
def test_json_lines_of_every_compression(suffix):
    lines = b"\xef\xbb\xbf" + b"\r\n".join(
        json.dumps({"text": f"t{n}", "url": f"http://{n}"}).encode() for n in range(3)
    )
    items = found(f"a.jsonl{suffix}", PACK[suffix](lines) if suffix else lines)
    assert [(one.text, one.url) for one in items] == [("t0", "http://0"), ("t1", "http://1"), ("t2", "http://2")]


def test_json_lines_under_another_name_are_read_where_the_source_says_so():
    """C4 and Dolma call theirs `.json.gz`."""
    data = gzip.compress(b'{"text": "a", "url": "http://1"}\n{"text": "b"}\n')
    (refused,) = found("c4-train.00000-of-01024.json.gz", data)
    assert "`reading: jsonl`" in refused.reason
    assert texts(found("c4-train.00000-of-01024.json.gz", data, reading="jsonl")) == ["a", "b"]


BAD_LINES = {
    "is not JSON": b"[" * 100_000,
    "no text under": b"[1, 2]",
    "is not JSON: Exceeds": b'{"text": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"text": "\xff\xfe"}',
    "larger than 200,000": b'{"text": "' + b"x" * 300_000 + b'"}',
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_line_that_is_no_record_is_named_and_the_next_is_read(reason):
    items = found("a.jsonl", b'{"text": "a"}\n' + BAD_LINES[reason] + b'\n\n{"text": "b"}', limit=200_000)
    assert texts(items) == ["a", "b"]
    assert len(items) == 3
    assert reasons(items)[0].startswith("a.jsonl#2: ")
    assert reason in reasons(items)[0]


def test_lone_surrogates_and_nul_bytes_can_be_written_down():
    items = found("a.jsonl", b'{"text": "a\\ud800b\\u0000c", "url": "\\udfff"}')
    assert [(one.text, one.url) for one in items] == [("a\ufffdb\0c", "\ufffd")]
    assert pa.array([items[0].text]).to_pylist() == [items[0].text]
    (utf16,) = found("a.jsonl", '{"text": "a"}'.encode("utf-16"))
    assert "UTF-16" in utf16.reason


@pytest.mark.parametrize("suffix", PACK)
def test_the_lines_before_a_cut_are_read(suffix):
    lines = b"".join(json.dumps({"text": f"{n} {hash_like(n)}"}).encode() + b"\n" for n in range(60_000))
    packed = PACK[suffix](lines)
    items = found(f"a.jsonl{suffix}", packed[: len(packed) // 2])
    # bzip2 has blocks of 900 kB: half of one is nothing.
    assert 0 < len(texts(items)) < 59_000
    assert texts(items) == [f"{n} {hash_like(n)}" for n in range(len(texts(items)))]
    assert len(reasons(items)) == 1


def hash_like(number: int) -> str:
    return f"{number * 2654435761 % 2**32:08x}{number * 40503 % 65521:05x}"


def parquet(tmp_path: Path, **columns) -> bytes:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    return (tmp_path / "x.parquet").read_bytes()


def test_parquet_of_every_kind_of_string_and_of_none(tmp_path):
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        data = parquet(tmp_path, text=pa.array(["a", "b"] * 100).cast(kind), url=["http://u"] * 200)
        items = found("a.parquet", data)
        assert texts(items) == ["a", "b"] * 100
        assert {one.url for one in items} == {"http://u"}
    (number,) = found("a.parquet", parquet(tmp_path, text=[1, 2]))
    assert "column 'text' holds int64" in number.reason
    assert found("a.parquet", parquet(tmp_path, text=pa.array([], pa.string()))) == [Passage("")]
    (empty,) = found("a.parquet", b"")
    assert "not readable as Parquet" in empty.reason
    large = found("a.parquet", parquet(tmp_path, text=["x" * 2000, "y"]), limit=1000)
    assert [type(one) for one in large] == [Unreadable, Passage]


def test_the_limit_of_a_row_is_one_of_bytes(tmp_path):
    items = found("a.parquet", parquet(tmp_path, text=["中" * 400, "中" * 300]), limit=1000)
    assert reasons(items) == ["a.parquet#1: row 1 is larger than 1,000 bytes"]
    assert texts(items) == ["中" * 300]


@pytest.mark.parametrize("licence", [["GPL-3.0-only"], {"id": "GPL-3.0-only"}, 3, "MIT AND " * 60 + "GPL-3.0-only"])
def test_a_licence_that_is_no_text_or_a_long_one_does_not_enter_as_another(tmp_path, licence):
    line = json.dumps({"text": "a", "l": licence}).encode()
    for name, data in (("a.jsonl", line), ("a.parquet", parquet(tmp_path, text=["a"], l=[licence]))):
        (one,) = found(name, data, licence_field="l")
        assert isinstance(one, Passage)
        assert refusal(one.licence, ("MIT",)) in ("licence_unknown", "licence_not_allowed")
    (none,) = found("a.jsonl", b'{"text": "a", "l": null}', licence_field="l")
    assert isinstance(none, Passage)
    assert none.licence == ""


def test_a_parquet_file_that_unfolds_as_only_a_bomb_does_stops(monkeypatch):
    monkeypatch.setattr(compression, "EXPANSION_FREE", 2_000_000)
    out = io.BytesIO()
    rows = 20_000
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 1000])
    pq.write_table(pa.table({"text": column}), out, compression="zstd")
    assert 1_100 * len(out.getvalue()) < 1_000 * rows
    items = found("a.parquet", out.getvalue())
    assert "a bomb" in reasons(items)[-1]
    assert len(items) < rows


def test_a_damaged_page_of_parquet_gives_the_rows_before_it(tmp_path):
    data = bytearray(parquet(tmp_path, text=[f"{n} {hash_like(n)}" * 9 for n in range(20_000)]))
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    items = found("a.parquet", bytes(data))
    assert any(isinstance(one, Unreadable) for one in items[-1:])
    assert texts(items) == [f"{n} {hash_like(n)}" * 9 for n in range(len(texts(items)))]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("src/main.rs", None),
        ("Makefile", None),
        ("Dockerfile", None),
        ("lib/a.test.ts", None),
        ("node_modules/x/index.js", "vendored"),
        ("a/third_party/b.c", "vendored"),
        ("usr/lib/python3/dist-packages/own/a.py", None),
        ("usr/lib/python3/dist-packages/own/vendor/a.py", "vendored"),
        ("logo.png", "no_reader"),
        ("inner.zip", "no_reader"),
        ("a.tar.gz", "no_reader"),
    ],
)
def test_source_trees_are_read_without_other_peoples_code(path, kind):
    (item,) = found(path, b"int main() { return 0; }\n")
    assert (item.kind == kind) if kind else item.code


LARGE = """
import json, resource, sys
from pathlib import Path
from tasks.corpus.reading import passages
from tasks.corpus.sources import FolderSource
from tests.raw import SHARED
source = FolderSource(name="own", kind="folder", path=sys.argv[1], **SHARED)
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]),) * 2)
for path, one in passages(Path(sys.argv[2]), source, 4_000_000):
    print(json.dumps([path, getattr(one, "text", "")[:20], getattr(one, "reason", "")]))
"""


def limited(root: Path, partition: Path, memory: int = 400_000_000) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(root), str(partition), str(memory)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_line_of_500_mb_is_named_once_and_what_follows_is_read_in_little_memory(tmp_path):
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    with (tmp_path / "a.jsonl.gz").open("wb") as file:
        file.write(packer.compress(b'{"text": "first"}\n{"text": "'))
        for _ in range(500):
            file.write(packer.compress(b"x" * 1_000_000))
        file.write(packer.compress(b'"}\n{"text": "last"}\n') + packer.flush())
    artifact = acquire(step(tmp_path / "data", folder(tmp_path / "a.jsonl.gz")), tmp_path)
    (partition,) = artifact.files("raw")
    assert limited(tmp_path / "a.jsonl.gz", partition) == [
        ["a.jsonl.gz", "first", ""],
        ["a.jsonl.gz", "", "line 2 is larger than 4,000,000 bytes"],
        ["a.jsonl.gz", "last", ""],
    ]


def test_a_file_larger_than_memory_is_read_record_by_record(tmp_path):
    block = b"".join(warc("word " * 200_000 + str(number), kind="conversion") for number in range(10))
    with gzip.open(tmp_path / "a.warc.wet.gz", "wb", compresslevel=1) as file:
        for _ in range(32):  # 320 MB
            file.write(block)
    artifact = acquire(step(tmp_path / "data", folder(tmp_path)), tmp_path)
    (partition,) = artifact.files("raw")
    records = limited(tmp_path, partition, 250_000_000)
    assert len(records) == 320
    assert {text for _, text, _ in records} == {"word word word word "}


def test_every_file_gives_at_least_one_item(tmp_path):
    root = tmp_path / "in"
    root.mkdir()
    for name in ("a.txt", "b.html", "c.jsonl", "d.warc", "e.jsonl.gz", "f.parquet"):
        (root / name).write_bytes(b"")
    artifact = acquire(step(tmp_path / "data", folder(root)), tmp_path)
    items = [one for part in artifact.files("raw") for one in passages(part, source(path=str(root)))]
    assert sorted(path for path, _ in items) == ["a.txt", "b.html", "c.jsonl", "d.warc", "e.jsonl.gz", "f.parquet"]
    kinds = {path: type(one) for path, one in items}
    assert kinds["e.jsonl.gz"] is kinds["f.parquet"] is Unreadable
    assert [one for path, one in items if path == "a.txt"] == [Passage("")]


def wrong_checksum(suffix: str, data: bytes) -> bytes:
    """`data` compressed, the checksum of the whole wrong and nothing else."""
    if suffix == ".zst":
        packed = bytearray(zstd_with_checksum(data))
        packed[-1] ^= 1
        return bytes(packed)
    packed = bytearray({".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix](data))
    index = 4 * (int.from_bytes(packed[-8:-4], "little") + 1)  # xz: the check stands before index and footer
    packed[{".gz": -6, ".bz2": -2, ".xz": -12 - index - 4}[suffix]] ^= 1
    return bytes(packed)


def zstd_with_checksum(data: bytes) -> bytes:
    """A frame (RFC 8878) of raw blocks and a checksum: Arrow writes none."""
    blocks = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b00000100, 0x58])  # a checksum follows; a window of 2 MB
    for number, block in enumerate(blocks, start=1):
        frame += (len(block) << 3 | (number == len(blocks))).to_bytes(3, "little") + block
    return frame + (xxhash.xxh64_intdigest(data) & 0xFFFFFFFF).to_bytes(4, "little")


@pytest.mark.parametrize("count", [3, 5_000, 30_000])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_wrong_checksum_loses_no_record_and_is_named(suffix, end, count):
    lines = [json.dumps({"text": f"record {number} {number**5}"}) for number in range(count)]
    items = found(f"a.jsonl{suffix}", wrong_checksum(suffix, ("\n".join(lines) + end).encode()))
    assert len(texts(items)) == count
    (damage,) = reasons(items)
    assert damage.startswith(f"a.jsonl{suffix}: ")
    assert "damaged" in damage


def test_after_a_gzip_stream_with_a_wrong_checksum_the_next_one_is_read():
    first, second = (json.dumps({"text": text}).encode() + b"\n" for text in ("one", "two"))
    items = found("a.jsonl.gz", wrong_checksum(".gz", first) + gzip.compress(second))
    assert texts(items) == ["one", "two"]
    assert "incorrect data check" in reasons(items)[-1]


def test_a_warc_of_one_gzip_stream_with_a_wrong_checksum_gives_every_page():
    items = found("a.warc.gz", wrong_checksum(".gz", b"".join(warc(http(page.encode())) for page in PAGES * 20)))
    assert texts(items) == WORDS * 20
    assert len(reasons(items)) == 1
