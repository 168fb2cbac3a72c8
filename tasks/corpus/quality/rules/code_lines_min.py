"""A marker file or a bare list of imports teaches nothing."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_lines_min",
    why=__doc__,
    source="ours",
    measure="code_lines",
    refuses="below",
    limit="lines_min",
)
