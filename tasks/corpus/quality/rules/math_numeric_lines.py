"""A bare table of numbers."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="math_numeric_lines",
    why=__doc__,
    source="ours",
    measure="numeric_lines",
    refuses="above",
    limit="numeric_lines_max",
)
