"""One endless line of data."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="data_line_chars",
    why=__doc__,
    source="StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="line_chars",
    refuses="above",
    limit="line_chars_max",
)
