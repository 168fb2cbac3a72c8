"""A packed program, or data."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_line_chars_mean",
    why=__doc__,
    source="StarCoder (Li et al., arXiv 2305.06161), 3.1; StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="line_chars_mean",
    refuses="above",
    limit="line_chars_mean_max",
)
