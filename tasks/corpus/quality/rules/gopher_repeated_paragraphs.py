"""The same paragraphs again and again."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_repeated_paragraphs",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="repeated_paragraphs",
    refuses="above",
    limit="repetition.paragraphs_max",
)
