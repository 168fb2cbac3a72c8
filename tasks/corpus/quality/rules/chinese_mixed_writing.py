"""Simplified and traditional characters mixed: a wrong decoding, or text spun to look new."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_mixed_writing",
    why=__doc__,
    source="ours",
    measure="mixed_writing",
    refuses="above",
    limit="mixed_writing_max",
)
