"""A menu or a bare list."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_bullet_lines",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="bullet_lines",
    refuses="above",
    limit="bullet_lines_max",
)
