"""What text recognition makes of formulas: words that go to and fro between letters, digits and signs."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="math_garbled_words",
    why=__doc__,
    source="ours",
    measure="garbled_words",
    refuses="above",
    limit="garbled_words_max",
)
