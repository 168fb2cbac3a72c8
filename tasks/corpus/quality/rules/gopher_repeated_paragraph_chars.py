"""A few long paragraphs that come again are as bad as many short ones."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_repeated_paragraph_chars",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="repeated_paragraph_chars",
    refuses="above",
    limit="repetition.paragraph_chars_max",
)
