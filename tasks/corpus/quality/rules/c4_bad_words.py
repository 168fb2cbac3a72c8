"""A word of your list of obscene or otherwise bad words."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_bad_words",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="bad_words",
    refuses="above",
    limit="bad_words_max",
    needs="bad_words_file",
)
