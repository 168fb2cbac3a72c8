"""Block lists: domains with their subdomains, beginnings of addresses, and words in addresses.

A long list is compiled once, when the sources are acquired, into one file: a line of JSON, then the xxh3-64 of every
entry in order, where each bucket of them begins, and the category of each. Workers map that file into memory, all the
same pages, and a look-up reads one bucket of about four entries whatever the length of the list. Two different entries
have the same hash once in 10^19: of 10^10 addresses against 10^7 entries that blocks some 0.1 by mistake.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from urllib.parse import unquote

import idna
import numpy as np
import xxhash

from tasks.corpus.safety.config import BlockConfig

ADDRESS_CHARS = 2048
"""Of a longer address only so much is looked at."""
DEPTH_MAX = 32
"""Labels of a host, and folders of a path, that are looked up."""
_WORD = re.compile(r"[a-z0-9]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:/*")
_SCHEME_PATTERN = re.compile(r"^(?:\*|[a-z][a-z0-9+.\-]*):/+")
_BUCKET = 4
_ALIGN = 8


@dataclass(frozen=True)
class Address:
    """An address in the one spelling that lists and documents are compared in."""

    host: str
    """In lower case and ASCII (IDNA, UTS 46), without user, port and final dot."""
    path: str
    """Path and query, percent signs resolved, in lower case, without the first slash."""

    @property
    def text(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host


def address(url: str) -> Address:
    """The parts of a web address, with or without scheme; what is none has an odd host and no more."""
    text = re.sub(r"[\t\r\n]", "", url[:ADDRESS_CHARS]).strip().replace("\\", "/")
    found = _SCHEME.match(text.lower())
    if found and (found[0].endswith("/") or "." not in found[0]):
        text = text[found.end() :]
    host, slash, path = re.sub(r"^/+", "", text).partition("/")
    if not slash:
        host, mark, query = host.partition("?")
        path = mark + query
    path = re.sub(r"/{2,}", "/", unquote(path.partition("#")[0]).lower())
    return Address(domain(host.partition("#")[0]), path)


def domain(host: str) -> str:
    """A host's name in lower case and ASCII, without user, port and final dot."""
    name = unquote(host).rpartition("@")[2].strip().lower()
    name = re.sub(r":[0-9]*$", "", name).strip(".")
    if not name.isascii():
        try:
            # UTS 46 also folds full-width letters and the ideographic full stop, as browsers do.
            name = idna.encode(name[:253], uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            return name
    return name


def compile_list(entries: Iterable[tuple[str, str, str]], write: Path) -> dict[str, int]:
    """Write the compiled form of (kind, category, entry) to `write`; kinds are `domains`, `urls` and `words`. Returns
    how many different entries of each kind it holds. Takes some fifty bytes of memory an entry."""
    keys, labels = array("Q"), array("H")
    categories: dict[str, int] = {}
    words: set[tuple[str, str]] = set()
    counts = {"domains": 0, "urls": 0, "words": 0}
    for kind, category, entry in entries:
        if kind == "words":
            words.add((entry.lower(), category))
            continue
        keys.append(_key(kind, _canonical(kind, entry)))
        labels.append(categories.setdefault(category, len(categories)))
        counts[kind] += 1
    sorted_keys, first = np.unique(
        np.frombuffer(keys, np.uint64) if keys else np.empty(0, np.uint64), return_index=True
    )
    sorted_labels = (np.frombuffer(labels, np.uint16) if labels else np.empty(0, np.uint16))[first]
    bits = max(0, (len(sorted_keys) // _BUCKET).bit_length())
    borders = (
        np.searchsorted(sorted_keys, np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)) if bits else [0]
    )
    starts = np.append(np.asarray(borders, np.int64), len(sorted_keys))
    counts["words"] = len(words)
    head = json.dumps(
        {"entries": len(sorted_keys), "bits": bits, "categories": list(categories), "words": sorted(words)},
        ensure_ascii=True,
        sort_keys=True,
    ).encode()
    head += b" " * (-(len(head) + 1) % _ALIGN) + b"\n"
    with write.open("wb") as file:
        for block in (head, sorted_keys.tobytes(), starts.tobytes(), sorted_labels.tobytes()):
            file.write(block)
    return counts


class Compiled:
    """A compiled list, mapped into memory."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            line = file.readline()
        head = json.loads(line)
        count, self._shift = head["entries"], 64 - head["bits"]
        whole = np.asarray(np.memmap(path, np.uint8, "r"))  # the same pages, without the subclass that slows an index
        sizes = np.cumsum([len(line), 8 * count, 8 * ((1 << head["bits"]) + 1), 2 * count])
        if sizes[-1] != len(whole):
            raise ValueError(f"{path} holds {len(whole)} bytes, not {sizes[-1]}: acquire the sources again")
        self._keys = whole[sizes[0] : sizes[1]].view(np.uint64)
        self._starts = whole[sizes[1] : sizes[2]].view(np.int64)
        self._labels = whole[sizes[2] :].view(np.uint16)
        self._categories: list[str] = head["categories"]
        self.words: dict[str, str] = dict(head["words"])

    def category(self, kind: str, entry: str) -> str | None:
        """The category of an entry in its canonical spelling, or None where the list does not have it."""
        key = _key(kind, entry)
        bucket = key >> self._shift if self._shift < 64 else 0
        first, stop = int(self._starts[bucket]), int(self._starts[bucket + 1])
        for at in range(first, stop):
            if int(self._keys[at]) == key:
                return self._categories[self._labels[at]]
        return None


class Blocklist:
    """What a BlockConfig and compiled lists keep out."""

    def __init__(self, config: BlockConfig, compiled: Sequence[Path] = ()) -> None:
        self.config = config
        self._lists = [Compiled(path) for path in compiled]
        self._domains = {_canonical("domains", entry) for entry in config.domains}
        self._urls = {_canonical("urls", entry) for entry in config.urls if "*" not in entry}
        # `translate` makes atomic groups of what stands between asterisks: no pattern backtracks.
        # Addresses are compared without their scheme.
        self._patterns = [
            (entry, re.compile(translate(_SCHEME_PATTERN.sub("", entry.lower()))))
            for entry in config.urls
            if "*" in entry
        ]
        self._words = dict.fromkeys((word.lower() for word in config.words), "words")
        for one in self._lists:
            self._words |= one.words
        self._soft = frozenset(word.lower() for word in config.soft_words)
        self._idle = not (self._lists or self._domains or self._urls or self._patterns or self._words)
        self._idle = self._idle and not (self._soft or config.subwords)

    def blocked(self, url: str, web_url: str = "") -> tuple[str, str] | None:
        """(reason, what matched) where a document's web address, or its `source:path`, is blocked.

        Reasons: blocked_domain, blocked_url.
        """
        if self._idle:
            return None
        places = [address(web_url)] if web_url else []
        if self.config.paths:
            places += _mirrored(url)
        for place in places:
            found = self._judge(place)
            if found is not None:
                return found
        return None

    def _judge(self, place: Address) -> tuple[str, str] | None:
        for name in _parents(place.host):
            category = "" if name in self._domains else self._listed("domains", name)
            if category is not None:
                return "blocked_domain", f"{name} ({category})" if category else name
        for start in _beginnings(place):
            category = "" if start in self._urls else self._listed("urls", start)
            if category is not None:
                return "blocked_url", f"{start} ({category})" if category else start
        text = place.text
        # A host's first page has no path left, and `host/*` means it too.
        whole = text if place.path else f"{text}/"
        for entry, pattern in self._patterns:
            if pattern.match(text) or pattern.match(whole):
                return "blocked_url", entry
        return self._spoken(text)

    def _spoken(self, text: str) -> tuple[str, str] | None:
        if not (self._words or self._soft or self.config.subwords):
            return None
        for subword in self.config.subwords:
            if subword.lower() in text:
                return "blocked_url", f"holds '{subword}'"
        spoken = _WORD.findall(text)
        for word in spoken:
            if word in self._words:
                return "blocked_url", f"the word '{word}'"
        soft = sorted(self._soft.intersection(spoken))
        if len(soft) >= self.config.soft_words_min:
            return "blocked_url", f"the words {', '.join(soft)}"
        return None

    def _listed(self, kind: str, entry: str) -> str | None:
        return next((found for one in self._lists if (found := one.category(kind, entry)) is not None), None)


def _parents(host: str) -> Iterator[str]:
    """A host, its domain, and so on up to the last label."""
    labels = host.split(".") if host else []  # an entry without a name is no entry for every place without one
    for count in range(min(len(labels), DEPTH_MAX), 0, -1):
        yield ".".join(labels[-count:])


def _beginnings(place: Address) -> Iterator[str]:
    """An address cut after its host and after each folder, the whole of it included; with and without `www.`."""
    hosts = [place.host, place.host.removeprefix("www.")]
    for host in dict.fromkeys(hosts):
        path, _, query = place.path.partition("?")
        folders = path.strip("/").split("/")[:DEPTH_MAX] if path.strip("/") else []
        for count in range(0 if host else 1, len(folders) + 1):
            yield f"{host}/{'/'.join(folders[:count])}"
        if query:
            yield f"{host}/{path}?{query}"


def _mirrored(url: str) -> list[Address]:
    """The addresses that a path within a source may be a mirror of: from each folder on that is named like a host."""
    path = url.partition(":")[2].partition("#")[0]
    folders = path[:ADDRESS_CHARS].split("/")
    found = [
        address("/".join(folders[at:])) for at, name in enumerate(folders[:-1][:DEPTH_MAX]) if "." in name.strip(".")
    ]
    # Words may stand anywhere in the path.
    return [*found, Address("", unquote(path[:ADDRESS_CHARS]).lower())]


def _canonical(kind: str, entry: str) -> str:
    if kind == "domains":
        name = entry.removeprefix("*.").lstrip(".")
        return address(name).host if "/" in name else domain(name)
    place = address(entry)
    path = place.path if "?" in place.path else place.path.rstrip("/")
    return f"{place.host}/{path}"


def _key(kind: str, entry: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{kind}:{entry}".encode("utf-8", "surrogatepass"))
