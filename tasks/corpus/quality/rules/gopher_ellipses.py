"""Teasers: sentences cut off so that one clicks."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_ellipses",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="ellipses",
    refuses="above",
    limit="ellipses_max",
)
