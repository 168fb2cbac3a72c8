"""Nearly all comment: a licence, a switched-off program, a document."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_comment_lines",
    why=__doc__,
    source="SantaCoder (arXiv 2301.03988); BigCode's comment filter (bigcode-dataset, preprocessing)",
    measure="comment_lines",
    refuses="above",
    limit="comment_lines_max",
)
