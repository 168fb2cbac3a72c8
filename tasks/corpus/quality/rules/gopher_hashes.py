"""Hash tags, and what is left of markup. The marks of our own headings do not count."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="gopher_hashes",
    why=__doc__,
    source="Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering",
    measure="hashes",
    refuses="above",
    limit="hashes_max",
)
