"""A line of a few words is a button or a label."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_line_words",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="line_words",
    refuses="below",
    limit="lines.words_min",
    unit="line",
)
