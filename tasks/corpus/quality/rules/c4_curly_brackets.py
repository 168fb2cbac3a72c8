"""Curly brackets stand in programs and not in natural language."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_curly_brackets",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="curly_brackets",
    refuses="above",
    limit="curly_brackets_max",
)
