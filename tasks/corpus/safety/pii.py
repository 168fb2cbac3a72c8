"""Personal data and secrets out of a text, a typed placeholder in the place of each.

The placeholder is `<PII:EMAIL>` and the like, after StarCoder's `<EMAIL>` (arXiv 2305.06161, section 4.3): plain
ASCII in capitals, which a BPE vocabulary cuts into `<`, `PII`, `:`, `EMAIL`, `>` or learns whole. The bare `<EMAIL>`
and `<KEY>` stand in many a manual as names of arguments, and `<|email|>` looks like a control token of a chat
template: this one occurs nowhere by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tasks.corpus.safety.addresses import Span, emails, ipv4s, ipv6s
from tasks.corpus.safety.config import PiiConfig
from tasks.corpus.safety.numbers import numbers
from tasks.corpus.safety.scan import Scan
from tasks.corpus.safety.secrets import GATES, secrets

_SCAN = Scan(GATES)
# Where two claims overlap the surer one holds.
_RANK = {kind: rank for rank, kind in enumerate(("KEY", "PASSWORD", "EMAIL", "IBAN", "ID", "CARD", "IP", "PHONE"))}
# A number that is a term of an expression: `mobile = 13800138000`.
_TERM_BEFORE = re.compile(r"(?:[=(\[,{:]|\breturn)[ \t]*$")
_TERM_AFTER = re.compile(r"[ \t]*(?:[)\]},;]|$|[\r\n])")


class Scrubber:
    """Finds and replaces what a PiiConfig names."""

    def __init__(self, config: PiiConfig) -> None:
        self.config = config
        self._kinds = frozenset(config.kinds)

    def spans(self, text: str) -> list[Span]:
        """(start, end, kind) of everything found, in order and without overlaps."""
        found = sorted(
            (span for span in self._all(text) if span[2] in self._kinds),
            key=lambda span: (_RANK[span[2]], span[0], span[0] - span[1]),
        )
        return _disjoint(found)

    def scrub(self, text: str, code: bool = False) -> tuple[str, dict[str, int]]:
        """`text` with placeholders, and how many of each kind. In code, a number that is a term of an expression
        becomes a string, so that the program can still be parsed."""
        spans = self.spans(text)
        if not spans:
            return text, {}
        pieces: list[str] = []
        known: dict[tuple[str, str], int] = {}
        seen: Counter[str] = Counter()
        reached = 0
        for start, end, kind in spans:
            number = ""
            if self.config.consistent:
                key = (kind, re.sub(r"[ .()\-]", "", text[start:end]).lower())
                number = f":{known.setdefault(key, 1 + sum(one == kind for one, _ in known))}"
            placeholder = f"<PII:{kind}{number}>"
            if code and _term(text, start, end):
                placeholder = f'"{placeholder}"'
            pieces += [text[reached:start], placeholder]
            seen[kind] += 1
            reached = end
        return "".join([*pieces, text[reached:]]), dict(sorted(seen.items()))

    def _all(self, text: str) -> Iterator[Span]:
        kinds = self._kinds
        bits, dense = _SCAN(text.encode("utf-8", "surrogatepass"))
        if "EMAIL" in kinds and "@" in text:
            yield from emails(text)
        if "IP" in kinds:
            yield from ipv4s(text)
            yield from ipv6s(text)
        if dense and kinds & {"PHONE", "CARD", "IBAN", "ID"}:
            yield from numbers(text, dense, self.config.regions)
        if bits and kinds & {"KEY", "PASSWORD"}:
            yield from secrets(text, bits)


def _disjoint(ranked: Iterable[Span]) -> list[Span]:
    """The spans of `ranked` that overlap none before them, by place."""
    taken: list[Span] = []
    for group in _by_rank(ranked):
        merged: list[Span] = []
        held = iter(taken)
        current = next(held, None)
        for span in group:
            while current is not None and current[1] <= span[0]:
                merged.append(current)
                current = next(held, None)
            free = current is None or span[1] <= current[0]
            if free and (not merged or merged[-1][1] <= span[0]):
                merged.append(span)
        if current is not None:
            merged.append(current)
        taken = [*merged, *held]
    return taken


def _by_rank(ranked: Iterable[Span]) -> Iterator[list[Span]]:
    group: list[Span] = []
    for span in ranked:
        if group and group[-1][2] != span[2]:
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def _term(text: str, start: int, end: int) -> bool:
    if not text[start:end].isdigit():
        return False
    line = text[text.rfind("\n", max(0, start - 400), start) + 1 : start]
    if "#" in line or "//" in line or line.count('"') % 2 or line.count("'") % 2:
        return False
    return bool(_TERM_BEFORE.search(line) and _TERM_AFTER.match(text, end))
