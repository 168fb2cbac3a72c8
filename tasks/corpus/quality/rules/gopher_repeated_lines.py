"""The same lines again and again: menus, forms, logs."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_repeated_lines",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="repeated_lines",
    refuses="above",
    limit="repetition.lines_max",
)
