"""No sentences: English prose cannot do without the, be, to, of, and, that, have, with."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_stop_words",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="stop_words",
    refuses="below",
    limit="stop_words_min",
)
