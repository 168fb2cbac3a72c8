"""A fragment."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_words_min",
    why=__doc__,
    source="FineWeb-2 (arXiv 2506.20920), its pipeline; Gopher (arXiv 2112.11446), A.1.1",
    measure="words",
    refuses="below",
    limit="words_min",
)
