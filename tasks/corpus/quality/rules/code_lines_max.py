"""So many lines are data, or a generator wrote them."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_lines_max",
    why=__doc__,
    source="StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="lines",
    refuses="above",
    limit="lines_max",
)
