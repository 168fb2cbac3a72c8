"""A fragment: a stub page or an empty entry, too short for any share of it to mean much."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_words_min",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="words",
    refuses="below",
    limit="words_min",
)
