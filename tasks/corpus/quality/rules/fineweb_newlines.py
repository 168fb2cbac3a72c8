"""A line break every few words: lists."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="fineweb_newlines",
    why=__doc__,
    source="FineWeb's released code (datatrove, FineWebQualityFilter)",
    measure="newlines",
    refuses="above",
    limit="newlines_max",
)
