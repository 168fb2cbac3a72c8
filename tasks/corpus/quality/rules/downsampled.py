"""Markup and data formats are plentiful and teach little: a share of them is enough."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="downsampled",
    why=__doc__,
    source="Kimi k1.5 (arXiv 2501.12599), appendix B; the share: StarCoder2 (arXiv 2402.19173), 2.3",
    measure="draw",
    refuses="above",
    limit="share_kept_max",
)
