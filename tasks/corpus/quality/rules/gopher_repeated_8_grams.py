"""Runs of eight words come again: templates filled in, text that goes round in circles."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_repeated_8_grams",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1",
    measure="repeated_8_grams",
    refuses="above",
    limit="repetition.repeated_8_grams_max",
)
