"""Bars and middle dots between links: a menu."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_separators",
    why=__doc__,
    source="ours",
    measure="separators",
    refuses="above",
    limit="separators_max",
)
