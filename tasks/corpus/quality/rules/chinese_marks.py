"""Hardly a punctuation mark: lists of key words, names, menus."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_marks",
    why=__doc__,
    source="ours",
    measure="marks",
    refuses="below",
    limit="marks_min",
)
