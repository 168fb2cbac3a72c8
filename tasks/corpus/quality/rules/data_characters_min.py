"""An empty or trivial data file."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="data_characters_min",
    why=__doc__,
    source="DeepSeek-Coder (arXiv 2401.14196), 2.1, after StarCoder",
    measure="characters",
    refuses="below",
    limit="characters_min",
)
