"""Placeholder text of a page template."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_lorem_ipsum",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="lorem_ipsum",
    refuses="above",
    limit="lorem_ipsum_max",
)
