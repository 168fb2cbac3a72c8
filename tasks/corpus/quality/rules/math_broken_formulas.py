"""LaTeX that extraction cut up: marks that never close, braces that do not pair, environments without an end."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="math_broken_formulas",
    why=__doc__,
    source="ours",
    measure="broken_formulas",
    refuses="above",
    limit="broken_formulas_max",
)
