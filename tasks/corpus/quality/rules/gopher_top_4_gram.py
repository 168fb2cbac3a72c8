"""One phrase of four words makes up much of the text: key words for search engines."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_top_4_gram",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="top_4_gram",
    refuses="above",
    limit="repetition.top_4_gram_max",
)
