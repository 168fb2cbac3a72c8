"""Paths, keys and identifiers without blanks have long words."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_word_length_max",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="word_length",
    refuses="above",
    limit="word_length_max",
)
