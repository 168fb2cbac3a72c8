"""A few long lines that come again are as bad as many short ones."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_repeated_line_chars",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="repeated_line_chars",
    refuses="above",
    limit="repetition.line_chars_max",
)
