"""Hardly a sentence: a title, a menu, an error page."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_sentences",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="sentences",
    refuses="below",
    limit="sentences_min",
)
