"""Raw files for tests: packed, compressed, and as a crawler keeps them; sources and the step that acquires them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa

from tasks.artifact import Step
from tasks.corpus.archives import Unreadable
from tasks.corpus.extract.passage import Passage
from tasks.corpus.reading import passages
from tasks.corpus.sources import Source, SourcesConfig

SHARED = {"domain": "knowledge", "language": "en", "licence": "CC0-1.0"}


def folder(path: Path | str, name: str = "own", **more) -> dict:
    return {"name": name, "kind": "folder", "path": str(path), **SHARED, **more}


def step(root: Path, *sources: dict, fallbacks: tuple[dict, ...] = (), **more) -> Step:
    config = SourcesConfig(sources=sources, fallbacks=fallbacks, **more)
    return Step("sources", config, str(root), leaf=True)


def read(path: str, data: bytes, source: Source, limit: int) -> list[Passage | Unreadable]:
    """What curation reads of a partition with this raw file alone."""
    with tempfile.TemporaryDirectory() as name:
        partition = Path(name, "000.zip")
        with zipfile.ZipFile(partition, "w") as shard:
            shard.writestr(path, data)
        return [one for _, one in passages(partition, source, limit)]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}


def tar(files: dict[str, bytes], link: bool = False) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if link:
            info = tarfile.TarInfo("./link")
            info.type, info.linkname = tarfile.SYMTYPE, "a"
            archive.addfile(info)
    return out.getvalue()


def ar(parts: dict[str, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, data in parts.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return out


def warc(body: bytes | str, url: str = "http://a.example/", kind: str = "response", wrong: int = 0, **more) -> bytes:
    """One WARC record; `more` are header fields with _ for -; a response is given its HTTP header. `wrong` is added to
    the true Content-Length."""
    body = body.encode() if isinstance(body, str) else body
    if kind == "response" and not body.startswith(b"HTTP/"):
        body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    media = "application/http; msgtype=response" if kind == "response" else "text/plain"
    fields = {"WARC-Type": kind, "WARC-Target-URI": url, "Content-Type": media, "Content-Length": len(body) + wrong}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"WARC/1.0\r\n{head}\r\n".encode() + body + b"\r\n\r\n"
