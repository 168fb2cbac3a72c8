"""Hardly any white space: a packed program."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_blanks",
    why=__doc__,
    source="ours",
    measure="blanks",
    refuses="below",
    limit="blanks_min",
)
