"""Which rules judge which documents: the registry of every rule, and the routes through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.corpus.quality import formats, measures
from tasks.corpus.quality.rules import RULES, Rule

GOPHER = (
    "gopher_words_min", "gopher_words_max", "gopher_word_length_min", "gopher_word_length_max", "gopher_hashes",
    "gopher_ellipses", "gopher_bullet_lines", "gopher_ellipsis_lines", "gopher_alphabetic_words", "gopher_stop_words",
)  # fmt: skip
C4_LINES = (
    "c4_line_terminal", "c4_line_words", "c4_line_word_chars", "c4_line_javascript", "c4_line_policy",
    "c4_line_citations",
)  # fmt: skip
C4 = ("c4_sentences", "c4_curly_brackets", "c4_lorem_ipsum", "c4_bad_words")
FINEWEB = ("fineweb_punctuated_lines", "fineweb_short_lines", "fineweb_duplicate_line_chars", "fineweb_newlines")
REPETITION = (
    "gopher_repeated_lines", "gopher_repeated_paragraphs", "gopher_repeated_line_chars",
    "gopher_repeated_paragraph_chars", "gopher_top_2_gram", "gopher_top_3_gram", "gopher_top_4_gram",
    "gopher_repeated_5_grams", "gopher_repeated_6_grams", "gopher_repeated_7_grams", "gopher_repeated_8_grams",
    "gopher_repeated_9_grams", "gopher_repeated_10_grams",
)  # fmt: skip
MATHEMATICS = (
    "math_formula_share", "math_broken_formulas", "math_numeric_lines", "math_garbled_words", "math_garbled_chars",
)  # fmt: skip
CHINESE = (
    "chinese_words_min", "chinese_words_max", "chinese_han_share", "chinese_word_length", "gopher_hashes",
    "gopher_ellipses", "gopher_bullet_lines", "gopher_ellipsis_lines", "chinese_alphabetic_words",
    "chinese_stop_words", "fineweb_punctuated_lines", "fineweb_duplicate_line_chars", "fineweb_newlines",
    "chinese_halfwidth_marks", "chinese_marks", "chinese_garbled_chars", "chinese_mixed_writing",
    "chinese_spam_phrases", "chinese_separators",
)  # fmt: skip
FILES = ("files_encoded_share", "files_encoded_run", "files_generated", "files_minified")
CODE = (
    "code_lines_min", "code_lines_max", "code_line_chars", "code_line_chars_mean", "code_alphabetic",
    "code_alphanumeric", "code_blanks", "code_comment_lines", "code_header",
)  # fmt: skip
DATA = ("data_lines", "data_line_chars", "data_characters_min", "data_characters_max", "downsampled")


def _rules(*names: str) -> tuple[Rule, ...]:
    return tuple(RULES[name] for name in names)


@dataclass(frozen=True)
class Route:
    """The rules for one kind of document, in the order in which the first that refuses names the reason."""

    name: str
    section: str
    """The field of CorpusConfig that holds the limits."""
    measure: Callable[[str, Any, str], list[float]]
    """(text, limits, path of the file) -> the numbers of `measures`."""
    measures: tuple[str, ...]
    rules: tuple[Rule, ...]


ROUTES = {
    route.name: route
    for route in (
        Route(
            "prose", "prose", measures.prose, tuple(measures.PROSE),
            _rules(*C4_LINES, *GOPHER, *C4, *FINEWEB, *REPETITION),
        ),
        Route(
            "other", "prose", measures.prose, tuple(measures.PROSE),
            _rules(*C4_LINES, *(name for name in GOPHER if name != "gopher_stop_words"), *C4, *FINEWEB, *REPETITION),
        ),
        Route(
            "mathematics", "mathematics", measures.mathematics, tuple(measures.MATHEMATICS),
            _rules(*C4_LINES, *GOPHER, *C4, *FINEWEB, *MATHEMATICS, *REPETITION),
        ),
        Route("chinese", "chinese", measures.chinese, tuple(measures.CHINESE), _rules(*CHINESE, *REPETITION)),
        Route("code", "code", measures.file, tuple(measures.FILE), _rules(*CODE, *FILES)),
        Route("data", "data", measures.file, tuple(measures.FILE), _rules(*DATA, *FILES)),
    )
}  # fmt: skip
"""English prose; prose in languages whose stop words we do not have; English mathematics; Chinese; programs; data."""


def registry() -> dict[str, Rule]:
    """Every rule, by name, in the order of the routes."""
    return {rule.name: rule for route in ROUTES.values() for rule in route.rules}


def route_of(text: str, domain: str, language: str, code: bool, path: str = "") -> Route:
    """The route of a document; `path` is its file's, '' where unknown."""
    if code:
        return ROUTES["data" if formats.file_language(path, text) in formats.DATA else "code"]
    if language == "zh":
        return ROUTES["chinese"]
    if language != "en":
        return ROUTES["other"]
    return ROUTES["mathematics" if domain == "math" else "prose"]
