"""One long run of binary data."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="files_encoded_run",
    why=__doc__,
    source="StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="encoded_run",
    refuses="above",
    limit="encoded_run_max",
)
