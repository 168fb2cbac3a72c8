"""Characters that extraction had no table for."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="math_garbled_chars",
    why=__doc__,
    source="ours",
    measure="garbled_chars",
    refuses="above",
    limit="garbled_chars_max",
)
