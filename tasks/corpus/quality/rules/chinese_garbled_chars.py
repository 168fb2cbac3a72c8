"""Characters that a wrong decoding leaves."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_garbled_chars",
    why=__doc__,
    source="ours",
    measure="garbled_chars",
    refuses="above",
    limit="garbled_chars_max",
)
