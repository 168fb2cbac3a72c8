"""Its name says that it was packed."""

from tasks.corpus.quality.rule import Rule

RULE = Rule(
    name="files_minified",
    why=__doc__,
    source="ours",
    measure="minified",
    refuses="above",
    limit="minified_max",
)
