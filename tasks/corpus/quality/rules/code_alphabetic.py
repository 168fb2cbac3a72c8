"""Digits and symbols: data, drawings, rulers."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="code_alphabetic",
    why=__doc__,
    source="StarCoder (Li et al., arXiv 2305.06161), 3.1; StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1",
    measure="alphabetic",
    refuses="below",
    limit="alphabetic_min",
)
