"""A long data file repeats itself."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="data_lines",
    why=__doc__,
    source="StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="lines",
    refuses="above",
    limit="lines_max",
)
