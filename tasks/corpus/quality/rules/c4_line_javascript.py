"""A notice that JavaScript should be switched on."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_line_javascript",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="line_javascript",
    refuses="above",
    limit="lines.javascript_max",
    unit="line",
)
