"""Tables of numbers and spelled-out letters have short words."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_word_length_min",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="word_length",
    refuses="below",
    limit="word_length_min",
)
