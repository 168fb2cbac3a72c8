"""One phrase of three words makes up much of the text: key words for search engines."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_top_3_gram",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="top_3_gram",
    refuses="above",
    limit="repetition.top_3_gram_max",
)
