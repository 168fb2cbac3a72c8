"""Most lines are too short for a sentence."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="fineweb_short_lines",
    why=__doc__,
    source="FineWeb (Penedo et al., arXiv 2406.17557), 3.6",
    measure="short_lines",
    refuses="above",
    limit="short_lines_max",
)
