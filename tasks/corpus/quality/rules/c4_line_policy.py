"""A notice on terms of use, privacy or cookies."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_line_policy",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="line_policy",
    refuses="above",
    limit="lines.policy_max",
    unit="line",
)
