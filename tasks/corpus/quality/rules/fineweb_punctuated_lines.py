"""Hardly a line ends as a sentence does: menus, tables, lists of links."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="fineweb_punctuated_lines",
    why=__doc__,
    source="FineWeb (Penedo et al., arXiv 2406.17557), 3.6",
    measure="punctuated_lines",
    refuses="below",
    limit="punctuated_lines_min",
)
