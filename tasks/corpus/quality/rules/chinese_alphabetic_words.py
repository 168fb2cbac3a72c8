"""Numbers in place of words."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_alphabetic_words",
    why=__doc__,
    source="FineWeb-2 (Penedo et al., arXiv 2506.20920), configs/cmn_Hani.yml",
    measure="alphabetic_words",
    refuses="below",
    limit="alphabetic_words_min",
)
