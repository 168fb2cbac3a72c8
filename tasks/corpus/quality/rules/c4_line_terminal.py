"""Menus, headings and captions do not end as a sentence does."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="c4_line_terminal",
    why=__doc__,
    source="C4 (Raffel et al., arXiv 1910.10683), 2.2",
    measure="line_terminal",
    refuses="below",
    limit="lines.terminal_min",
    unit="line",
)
