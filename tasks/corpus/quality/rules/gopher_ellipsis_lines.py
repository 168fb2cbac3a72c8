"""A page of teasers."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_ellipsis_lines",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="ellipsis_lines",
    refuses="above",
    limit="ellipsis_lines_max",
)
