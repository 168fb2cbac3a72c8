"""A data file and no configuration."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="data_characters_max",
    why=__doc__,
    source="DeepSeek-Coder (arXiv 2401.14196), 2.1, after StarCoder",
    measure="characters",
    refuses="above",
    limit="characters_max",
)
