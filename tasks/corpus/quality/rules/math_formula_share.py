"""Formulas and nothing that explains them."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="math_formula_share",
    why=__doc__,
    source="ours",
    measure="formula_share",
    refuses="above",
    limit="formula_share_max",
)
