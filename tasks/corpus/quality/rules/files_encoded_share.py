"""Binary data spelled out."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="files_encoded_share",
    why=__doc__,
    source="StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="encoded_share",
    refuses="above",
    limit="encoded_share_max",
)
