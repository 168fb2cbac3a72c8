"""The table of every rule in docs/corpus/rules.md, made from the registry so that the two cannot drift.

`python -m tasks.corpus.quality.table docs/corpus/rules.md` writes it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tasks.corpus.config import CorpusConfig
from tasks.corpus.quality.judge import limit
from tasks.corpus.quality.measures import MEANINGS
from tasks.corpus.quality.route import ROUTES, registry
from tasks.corpus.quality.rules import Rule

BEGIN, END = "<!-- rules: made by tasks.corpus.quality.table -->", "<!-- end of rules -->"
_COLUMNS = ("rule", "routes", "refuses", "measure", "limit, by section of `corpus`", "why", "source")


def table() -> str:
    """A Markdown table with a line for every rule, in the order of the routes."""
    return "\n".join(map(_line, [_COLUMNS, ("---",) * len(_COLUMNS), *map(_cells, registry().values())]))


def renewed(text: str) -> str:
    """A document with the table between its two marks replaced by today's.

    Raises:
        ValueError: the document lacks a mark.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no place for the table of rules: put '{BEGIN}' and '{END}' into it")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(rule: Rule) -> tuple[str, ...]:
    routes = ", ".join(route.name for route in ROUTES.values() if rule in route.rules)
    why = f"{rule.why} Needs `{rule.needs}`." if rule.needs else rule.why
    unit = "lines " if rule.unit == "line" else ""
    return (f"`{rule.name}`", routes, unit + rule.refuses, MEANINGS[rule.measure], _limits(rule), why, rule.source)


def _limits(rule: Rule) -> str:
    """`section.field` value, once for each section whose routes have the rule."""
    config = CorpusConfig()
    sections = dict.fromkeys(route.section for route in ROUTES.values() if rule in route.rules)
    values = {section: limit(getattr(config, section), rule.limit) for section in sections}
    said = ", ".join(f"{section} {'off' if value is None else f'{value:,}'}" for section, value in values.items())
    return f"`{rule.limit}`: {said}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
