"""Advertisements for contacts, lotteries, invoices and downloads."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_spam_phrases",
    why=__doc__,
    source="ours",
    measure="spam_phrases",
    refuses="above",
    limit="spam_phrases_max",
)
