"""No sentences: names, menus, glossaries."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_stop_words",
    why=__doc__,
    source="FineWeb-2 (Penedo et al., arXiv 2506.20920), configs/cmn_Hani.yml",
    measure="stop_words",
    refuses="below",
    limit="stop_words_min",
)
