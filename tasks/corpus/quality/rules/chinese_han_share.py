"""Another language with some Chinese in it."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_han_share",
    why=__doc__,
    source="ours",
    measure="han_share",
    refuses="below",
    limit="han_share_min",
)
