"""Every formula kept, none invented unless the style adds steps."""

from __future__ import annotations

import re

from tasks.rephrase.alignment.pair import CODE, FORMULA, Pair, Verdict, sets
from tasks.rephrase.config import AlignmentConfig

EQUATION = re.compile(
    r"(?<![\w`])[A-Za-z0-9_()^*/+\-.\[\]]+(?:\s*(?:[=<>≤≥≠≈]|<=|>=|==)\s*[A-Za-z0-9_()^*/+\-.\[\]]+)+"
)


def formulas(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Every formula of the source stands in the rewrite, blanks apart; none is invented unless the style adds steps."""
    before, after = formula_set(pair.source), formula_set(pair.rewrite)
    kept = re.sub(r"\s+", "", pair.rewrite)
    lost = sorted(formula for formula in before if formula not in kept)
    whole = re.sub(r"\s+", "", pair.source)
    invented = [] if pair.adds else sorted(formula for formula in after if formula not in whole)
    return sets("formulas", before, after, lost, invented)


def formula_set(text: str) -> set[str]:
    """Formulas between TeX delimiters and plain equations, blanks removed."""
    found = {next(group for group in match.groups() if group is not None) for match in FORMULA.finditer(text)}
    found |= {match.group(6) for match in FORMULA.finditer(text) if match.group(5)}
    found -= {match.group(5) for match in FORMULA.finditer(text) if match.group(5)}
    bare = CODE.sub(" ", FORMULA.sub(" ", text))
    found |= {match.group().strip(".") for match in EQUATION.finditer(bare) if re.search(r"\w", match.group())}
    return {re.sub(r"\s+", "", formula) for formula in found}
