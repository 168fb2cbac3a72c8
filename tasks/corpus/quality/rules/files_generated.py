"""A generator wrote it: its head or its name says so."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="files_generated",
    why=__doc__,
    source="StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="generated",
    refuses="above",
    limit="generated_max",
)
