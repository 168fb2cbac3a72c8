"""Lines that stood before: labels, boilerplate, broken extraction."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="fineweb_duplicate_line_chars",
    why=__doc__,
    source="FineWeb (Penedo et al., arXiv 2406.17557), 3.6",
    measure="duplicate_line_chars",
    refuses="above",
    limit="duplicate_line_chars_max",
)
