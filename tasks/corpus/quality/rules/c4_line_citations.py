"""Marks such as [1], [edit] and [citation needed] are no part of the text: they are cut out, the line stays."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_line_citations",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="line_citations",
    refuses="above",
    limit="lines.citations_max",
    unit="line",
)
