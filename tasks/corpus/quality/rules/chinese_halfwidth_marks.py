"""Printed Chinese has full-width marks; a page without any was converted or written by a machine."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_halfwidth_marks",
    why=__doc__,
    source="ours",
    measure="halfwidth_marks",
    refuses="above",
    limit="halfwidth_marks_max",
)
