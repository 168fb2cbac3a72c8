"""Numbers and symbols in place of words."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_alphabetic_words",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="alphabetic_words",
    refuses="below",
    limit="alphabetic_words_min",
)
