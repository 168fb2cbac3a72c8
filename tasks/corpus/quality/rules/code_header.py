"""A licence, and hardly a program after it."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_header",
    why=__doc__,
    source="ours",
    measure="header",
    refuses="above",
    limit="header_max",
)
