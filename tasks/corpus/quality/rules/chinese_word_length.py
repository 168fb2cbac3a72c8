"""Long runs of Latin letters and digits: keys, paths, encoded data."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="chinese_word_length",
    why=__doc__,
    source="FineWeb-2 (Penedo et al., arXiv 2506.20920), configs/cmn_Hani.yml",
    measure="word_length",
    refuses="above",
    limit="word_length_max",
)
