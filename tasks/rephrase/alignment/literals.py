"""Code spans, URLs and identifiers: every one kept, none invented."""

from __future__ import annotations

import re

from tasks.rephrase.alignment.pair import CODE, FORMULA, URL, Pair, Verdict, sets
from tasks.rephrase.config import AlignmentConfig

IDENTIFIER = re.compile(
    r"(?<![\w/$\\])(?:--?[A-Za-z][\w-]*\w|(?:/[\w.-]+){2,}|[A-Za-z_]\w*\(\)|[A-Za-z]\w*(?:_\w+)+|_+\w+"
    r"|[a-z]+(?:[A-Z][a-z0-9]*)+|[A-Za-z]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|[A-Za-z]+\d\w*)(?![\w])"
)


def code(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Code spans, URLs and identifiers: every one kept, none invented."""
    before, after = _literals(pair.source), _literals(pair.rewrite)
    lost = sorted(literal for literal in before if literal not in pair.rewrite)
    invented = sorted(literal for literal in after if literal not in pair.source)
    return sets("code", before, after, lost, invented)


def _literals(text: str) -> set[str]:
    bare = FORMULA.sub(" ", text)
    found = {match.group(2).strip() for match in CODE.finditer(bare)}
    bare = CODE.sub(" ", bare)
    found |= {match.group().rstrip(".,;:!?)") for match in URL.finditer(bare)}
    return found | {match.group().rstrip(".") for match in IDENTIFIER.finditer(URL.sub(" ", bare))}
