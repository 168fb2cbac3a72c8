"""Symbols: drawings, rulers, tables."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_alphanumeric",
    why=__doc__,
    source="CodeParrot; BigCode's basic filter (bigcode-dataset, preprocessing)",
    measure="alphanumeric",
    refuses="below",
    limit="alphanumeric_min",
)
