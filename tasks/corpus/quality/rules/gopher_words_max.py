"""A dump: an index, a log, a concordance."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_words_max",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="words",
    refuses="above",
    limit="words_max",
)
