"""Evaluation sets kept out of the corpus: runs of words that a document shares with an item, and which, and where.

After GPT-3 (arXiv 2005.14165, appendix C). The hashes of all runs of all items stand in a sorted array behind a bit map
that a clean document leaves after microseconds; what passes is verified on the words themselves, so that a collision of
hashes never costs a document. Words are in lower case without punctuation: case, signs and indentation hide nothing,
nor do the labels of list items and the numbers of lines (`A. `, `(b) `, `12) `) and full-width letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.corpus.codepoints import Tokens, rolling, tokens
from tasks.corpus.repair import repair
from tasks.corpus.safety.config import DecontaminationConfig

HITS = pa.schema(
    [
        pa.field("set", pa.string(), nullable=False),  # the evaluation set's name
        pa.field("item", pa.string(), nullable=False),  # the item's id within it
        pa.field("words", pa.int64(), nullable=False),  # of the document, that runs shared with the item cover
        pa.field("share", pa.float64(), nullable=False),  # of the item's words that they cover
        pa.field("begin", pa.int64(), nullable=False),  # the first such run's place in the document, in characters
        pa.field("end", pa.int64(), nullable=False),
        pa.field("passage", pa.string(), nullable=False),  # that run as the document has it
    ]
)
PASSAGE_CHARS = 400
_BITMAP_BITS_MIN, _BITMAP_BITS_MAX = 16, 27
_BATCH = 4096
# What stands before a line of a list or of a numbered listing. It begins with a literal: looking for that is fast.
_LABEL = re.compile(r"\n[ \t>|*+-]*\(?(?:[0-9]{1,3}|[A-Za-z])(?:[.):][ \t]|[．、）：])")
_WIDE = re.compile("[０-９Ａ-Ｚａ-ｚ]")
_NARROW = {ord(wide): chr(ord(wide) - 0xFEE0) for wide in map(chr, range(0xFF10, 0xFF5B)) if wide.isalnum()}


@dataclass(frozen=True)
class Item:
    """One question of an evaluation set."""

    set: str
    item: str
    text: str


@dataclass(frozen=True)
class Hit:
    """What a document shares with one item; the fields are the columns of HITS."""

    set: str
    item: str
    words: int
    share: float
    begin: int
    end: int
    passage: str
    spans: tuple[tuple[int, int], ...] = ()
    """Every passage, in characters; no column."""

    def row(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "spans"}

    def sentence(self) -> str:
        """The explanation that a person reads."""
        return (
            f"{self.set} {self.item}: {self.words} words, {self.share:.0%} of the item, "
            f"at characters {self.begin} to {self.end}"
        )


class Decontamination:
    """Looks for the items of evaluation sets in documents."""

    def __init__(self, config: DecontaminationConfig, items: Iterable[Item]) -> None:
        self.config = config
        self.items: list[Item] = []
        """Those that are long enough to be looked for."""
        self._words: list[tuple[str, ...]] = []
        parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        short: list[np.ndarray] = [np.empty(0, np.uint64)]
        held = iter(items)
        while batch := list(islice(held, _BATCH)):
            short.append(self._index(batch, parts))
        # Who shares a long run shares what it begins with: a clean document is asked for the shortest runs alone.
        self._short = _Keys(np.unique(np.concatenate(short)))
        self._tables = {
            n: _Table(np.concatenate([keys for keys, _ in found]), np.concatenate([owners for _, owners in found]))
            for n, found in sorted(parts.items())
        }

    def hits(self, text: str) -> list[Hit]:
        """Every item of which `text` holds enough, the one most covered first; [] for a clean document."""
        if not self._tables:
            return []
        plain = _plain(text)
        found = tokens([plain])
        windows, _ = rolling(found.hashes, found.starts, self.config.ngram_min)
        if not len(self._short.found(windows)[0]):
            return []
        claims: dict[int, set[tuple[int, int]]] = {}
        for n, table in self._tables.items():
            windows, _ = rolling(found.hashes, found.starts, n)
            for at, item in table.matches(windows):
                claims.setdefault(item, set()).add((at, n))
        if not claims:
            return []
        words = _words(plain, found, 0)
        hits = [self._verify(item, sorted(places), words, text, found) for item, places in sorted(claims.items())]
        return sorted((hit for hit in hits if hit is not None), key=lambda hit: (-hit.share, hit.set, hit.item))

    def cleaned(self, text: str) -> tuple[str | None, list[Hit]]:
        """(`text` as it may enter, its hits, the most covered first); None for it where it must be dropped."""
        hits = self.hits(text)
        if not hits:
            return text, []
        return (self._cut(text, hits) if self.config.action == "remove" else None), hits

    def _cut(self, text: str, hits: Sequence[Hit]) -> str | None:
        """`text` without the passages of `hits` and `margin` characters on either side; None where too many pieces
        would be left, or nothing."""
        margin = self.config.margin
        pieces: list[str] = []
        reached = 0
        for begin, end in sorted(span for hit in hits for span in hit.spans):
            if begin - margin > reached:
                # A line that the margin would halve goes as a whole.
                border = text.rfind("\n", reached, begin - margin)
                pieces.append(text[reached : border if border > reached else begin - margin])
            border = text.find("\n", end + margin)
            reached = max(reached, border if 0 <= border < end + 3 * margin else min(len(text), end + margin))
        pieces.append(text[reached:])
        kept = [piece.strip("\n") for piece in pieces if piece.strip()]
        return "\n\n".join(kept) if 0 < len(kept) <= self.config.pieces_max else None

    def _index(self, batch: list[Item], parts: dict[int, list[tuple[np.ndarray, np.ndarray]]]) -> np.ndarray:
        """Add the runs of some items to `parts`: `ngram` words to a run, or all the words of an item that has fewer.
        Returns the hashes of their runs of `ngram_min` words."""
        config = self.config
        # As every document is: what is mended there must not stand apart here.
        texts = [_plain(repair(item.text, code=False)) for item in batch]
        found = tokens(texts)
        by_length: dict[int, list[tuple[int, str]]] = {}
        for at, (item, text) in enumerate(zip(batch, texts, strict=True)):
            count = int(found.starts[at + 1] - found.starts[at])
            if count < config.ngram_min:
                continue
            by_length.setdefault(min(config.ngram, count), []).append((len(self.items), text))
            self.items.append(item)
            self._words.append(_words(text, found, at))
        for n, held in by_length.items():
            members = [member for member, _ in held]
            same = tokens([text for _, text in held], places=False)
            windows, starts = rolling(same.hashes, same.starts, n)
            telling = np.array([good for one in members for good in _telling(self._words[one], n, config.words_min)])
            owners = np.repeat(np.array(members, np.int32), np.diff(starts))
            parts.setdefault(n, []).append((windows[telling], owners[telling]))
        return rolling(found.hashes, found.starts, config.ngram_min)[0]

    def _verify(
        self, item: int, places: list[tuple[int, int]], words: Sequence[str], text: str, found: Tokens
    ) -> Hit | None:
        """The hit of one item, its runs compared word by word; None where hashes lied or too little is shared."""
        wanted = self._words[item]
        runs: dict[tuple[str, ...], list[int]] = {}
        n = places[0][1]
        for at in range(len(wanted) - n + 1):
            runs.setdefault(wanted[at : at + n], []).append(at)
        covered, matched = np.zeros(len(wanted), bool), np.zeros(len(words), bool)
        for at, _ in places:
            for place in runs.get(tuple(words[at : at + n]), ()):
                covered[place : place + n] = True
                matched[at : at + n] = True
        share = float(covered.mean())
        if not covered.any() or share < self.config.share_min:
            return None
        edges = np.flatnonzero(np.diff(np.concatenate([[0], matched.view(np.int8), [0]]))).reshape(-1, 2)
        spans = tuple((int(found.begins[first]), int(found.ends[stop - 1])) for first, stop in edges)
        one = self.items[item]
        begin, end = spans[0]
        passage = text[begin : min(end, begin + PASSAGE_CHARS)]
        return Hit(one.set, one.item, int(matched.sum()), round(share, 4), begin, end, passage, spans)


class _Keys:
    """Hashes in order, behind a bit map that most questions end at."""

    def __init__(self, keys: np.ndarray) -> None:
        self._keys = np.sort(keys)
        bits = min(_BITMAP_BITS_MAX, max(_BITMAP_BITS_MIN, (32 * len(keys)).bit_length()))
        self._mask = np.uint64((1 << bits) - 1)
        self._bitmap = np.zeros(1 << bits, bool)
        self._bitmap[keys & self._mask] = True

    def found(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(place, first, stop) of every window that is among them, as keys[first:stop]."""
        places = self._bitmap[windows & self._mask].nonzero()[0]
        if not len(places):
            return places, places, places
        first = self._keys.searchsorted(windows[places], "left")
        stop = self._keys.searchsorted(windows[places], "right")
        held = stop > first
        return places[held], first[held], stop[held]


class _Table:
    """Which items have a run, by the run's hash."""

    def __init__(self, keys: np.ndarray, owners: np.ndarray) -> None:
        self._owners = owners[np.lexsort((owners, keys))]
        self._keys = _Keys(keys)

    def matches(self, windows: np.ndarray) -> list[tuple[int, int]]:
        """(place, item) of every window that an item's run has the hash of."""
        return [
            (int(at), int(owner))
            for at, first, stop in zip(*self._keys.found(windows), strict=True)
            for owner in self._owners[first:stop]
        ]


def read_items(paths: Iterable[Path]) -> Iterable[Item]:
    """The items of evaluation parts: JSON lines of set, item and text."""
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                yield Item(row["set"], row["item"], row["text"])


def _plain(text: str) -> str:
    """`text` as it is compared, every character at its place: without labels, full-width letters as others."""
    if not text.isascii() and _WIDE.search(text):
        text = text.translate(_NARROW)
    return _LABEL.sub(lambda label: " " * len(label[0]), f"\n{text}")[1:]


def _words(text: str, found: Tokens, index: int) -> tuple[str, ...]:
    """The words of text `index` of a batch, in lower case."""
    places = slice(int(found.starts[index]), int(found.starts[index + 1]))
    return tuple(
        text[begin:end].lower()
        for begin, end in zip(found.begins[places].tolist(), found.ends[places].tolist(), strict=True)
    )


def _telling(words: Sequence[str], n: int, words_min: int) -> list[bool]:
    """Whether each run of `n` words says something: so many different words, single letters and numbers apart."""
    return [len({word for word in words[at : at + n] if _word(word)}) >= words_min for at in range(len(words) - n + 1)]


def _word(token: str) -> bool:
    """Whether a token is a word: `0 1 2 ... 9 A B C D E F` has none. A Han character is one."""
    return not token.isdigit() and (len(token) > 1 or not token.isascii())
