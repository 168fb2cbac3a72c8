"""A word of a thousand characters is data."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_line_word_chars",
    why=__doc__,
    source="C4's released code (tensorflow_datasets, c4_utils)",
    measure="line_word_chars",
    refuses="above",
    limit="lines.word_chars_max",
    unit="line",
)
