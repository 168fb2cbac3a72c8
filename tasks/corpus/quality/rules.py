"""What a rule is, and all rules by the paper that has them: one measure, one limit, one reason each. Which documents
they judge is said by the routes (`route.py`).

Where a paper says `at least` of what it drops, a document exactly at the limit passes here and not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["above", "below"]


@dataclass(frozen=True)
class Rule:
    """Refuses what lies on one side of a limit; a value equal to the limit passes."""

    name: str
    """The reason that stands in the rejected table."""
    measure: str
    """Which of a route's measures (`measures.MEANINGS` says what each is)."""
    refuses: Side
    """The side of the limit that is refused."""
    limit: str
    """The field of the route's configuration that holds the limit, with dots for nesting; null there is off."""
    source: str
    """The paper and its section or table, or `ours`."""
    why: str
    """Why such text is not wanted."""
    needs: str = ""
    """A field without which the rule has nothing to go by, or ''."""
    unit: Literal["document", "line"] = "document"
    """What it judges: a line rule takes lines out, before the document is judged."""


_GOPHER_REPETITION = "Gopher (Rae et al., arXiv 2112.11446), A.1.1, table A1"
_GOPHER = "Gopher (Rae et al., arXiv 2112.11446), A.1.1, quality filtering"
_C4 = "C4 (Raffel et al., arXiv 1910.10683), 2.2"
_STARCODER2 = "StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1"
_FINEWEB2 = "FineWeb-2 (Penedo et al., arXiv 2506.20920), configs/cmn_Hani.yml"
_STARCODER = "StarCoder (Li et al., arXiv 2305.06161), 3.1; StarCoder2 (Lozhkov et al., arXiv 2402.19173), 2.1"
_FINEWEB = "FineWeb (Penedo et al., arXiv 2406.17557), 3.6"
_FINEWEB2_GOPHER = "FineWeb-2 (arXiv 2506.20920), its pipeline; Gopher (arXiv 2112.11446), A.1.1"
_DEEPSEEK_CODER = "DeepSeek-Coder (arXiv 2401.14196), 2.1, after StarCoder"
_OURS = "ours"

# fmt: off
C4_LINES = (
    Rule("c4_line_terminal", "line_terminal", "below", "lines.terminal_min", _C4,
         "Menus, headings and captions do not end as a sentence does.", unit="line"),
    Rule("c4_line_words", "line_words", "below", "lines.words_min", _C4,
         "A line of a few words is a button or a label.", unit="line"),
    Rule("c4_line_word_chars", "line_word_chars", "above", "lines.word_chars_max",
         "C4's released code (tensorflow_datasets, c4_utils)",
         "A word of a thousand characters is data.", unit="line"),
    Rule("c4_line_javascript", "line_javascript", "above", "lines.javascript_max", _C4,
         "A notice that JavaScript should be switched on.", unit="line"),
    Rule("c4_line_policy", "line_policy", "above", "lines.policy_max", _C4,
         "A notice on terms of use, privacy or cookies.", unit="line"),
    Rule("c4_line_citations", "line_citations", "above", "lines.citations_max", _C4,
         "Marks such as [1], [edit] and [citation needed] are no part of the text: they are cut out, the line stays.",
         unit="line"),
)
C4_PAGES = (
    Rule("c4_sentences", "sentences", "below", "sentences_min", _C4,
         "Hardly a sentence: a title, a menu, an error page."),
    Rule("c4_curly_brackets", "curly_brackets", "above", "curly_brackets_max", _C4,
         "Curly brackets stand in programs and not in natural language."),
    Rule("c4_lorem_ipsum", "lorem_ipsum", "above", "lorem_ipsum_max", _C4,
         "Placeholder text of a page template."),
    Rule("c4_bad_words", "bad_words", "above", "bad_words_max", _C4,
         "A word of your list of obscene or otherwise bad words.", needs="bad_words_file"),
)
GOPHER_WORDS = (
    Rule("gopher_words_min", "words", "below", "words_min", _GOPHER,
         "A fragment: a stub page or an empty entry, too short for any share of it to mean much."),
    Rule("gopher_words_max", "words", "above", "words_max", _GOPHER,
         "A dump: an index, a log, a concordance."),
    Rule("gopher_word_length_min", "word_length", "below", "word_length_min", _GOPHER,
         "Tables of numbers and spelled-out letters have short words."),
    Rule("gopher_word_length_max", "word_length", "above", "word_length_max", _GOPHER,
         "Paths, keys and identifiers without blanks have long words."),
)
GOPHER_SIGNS = (
    Rule("gopher_hashes", "hashes", "above", "hashes_max", _GOPHER,
         "Hash tags, and what is left of markup. The marks of our own headings do not count."),
    Rule("gopher_ellipses", "ellipses", "above", "ellipses_max", _GOPHER,
         "Teasers: sentences cut off so that one clicks."),
    Rule("gopher_bullet_lines", "bullet_lines", "above", "bullet_lines_max", _GOPHER,
         "A menu or a bare list."),
    Rule("gopher_ellipsis_lines", "ellipsis_lines", "above", "ellipsis_lines_max", _GOPHER,
         "A page of teasers."),
)
GOPHER_SENSE = (
    Rule("gopher_alphabetic_words", "alphabetic_words", "below", "alphabetic_words_min", _GOPHER,
         "Numbers and symbols in place of words."),
    Rule("gopher_stop_words", "stop_words", "below", "stop_words_min", _GOPHER,
         "No sentences: English prose cannot do without the, be, to, of, and, that, have, with."),
)
REPETITION = (
    Rule("gopher_repeated_lines", "repeated_lines", "above", "repetition.lines_max", _GOPHER_REPETITION,
         "The same lines again and again: menus, forms, logs."),
    Rule("gopher_repeated_paragraphs", "repeated_paragraphs", "above", "repetition.paragraphs_max", _GOPHER_REPETITION,
         "The same paragraphs again and again."),
    Rule("gopher_repeated_line_chars", "repeated_line_chars", "above", "repetition.line_chars_max", _GOPHER_REPETITION,
         "A few long lines that come again are as bad as many short ones."),
    Rule("gopher_repeated_paragraph_chars", "repeated_paragraph_chars", "above", "repetition.paragraph_chars_max",
         _GOPHER_REPETITION,
         "A few long paragraphs that come again are as bad as many short ones."),
    *(
        Rule(f"gopher_top_{n}_gram", f"top_{n}_gram", "above", f"repetition.top_{n}_gram_max", _GOPHER_REPETITION,
             f"One phrase of {words} words makes up much of the text: key words for search engines.")
        for n, words in ((2, "two"), (3, "three"), (4, "four"))
    ),
    *(
        Rule(f"gopher_repeated_{n}_grams", f"repeated_{n}_grams", "above", f"repetition.repeated_{n}_grams_max",
             _GOPHER_REPETITION,
             f"Runs of {words} words come again: templates filled in, text that goes round in circles.")
        for n, words in enumerate(("five", "six", "seven", "eight", "nine", "ten"), start=5)
    ),
)
FINEWEB = (
    Rule("fineweb_punctuated_lines", "punctuated_lines", "below", "punctuated_lines_min", _FINEWEB,
         "Hardly a line ends as a sentence does: menus, tables, lists of links."),
    Rule("fineweb_short_lines", "short_lines", "above", "short_lines_max", _FINEWEB,
         "Most lines are too short for a sentence."),
    Rule("fineweb_duplicate_line_chars", "duplicate_line_chars", "above", "duplicate_line_chars_max", _FINEWEB,
         "Lines that stood before: labels, boilerplate, broken extraction."),
    Rule("fineweb_newlines", "newlines", "above", "newlines_max",
         "FineWeb's released code (datatrove, FineWebQualityFilter)",
         "A line break every few words: lists."),
)
MATHEMATICS = (
    Rule("math_formula_share", "formula_share", "above", "formula_share_max", _OURS,
         "Formulas and nothing that explains them."),
    Rule("math_broken_formulas", "broken_formulas", "above", "broken_formulas_max", _OURS,
         "LaTeX that extraction cut up: marks that never close, braces that do not pair, environments without an end."),
    Rule("math_numeric_lines", "numeric_lines", "above", "numeric_lines_max", _OURS,
         "A bare table of numbers."),
    Rule("math_garbled_words", "garbled_words", "above", "garbled_words_max", _OURS,
         "What text recognition makes of formulas: words that go to and fro between letters, digits and signs."),
    Rule("math_garbled_chars", "garbled_chars", "above", "garbled_chars_max", _OURS,
         "Characters that extraction had no table for."),
)
CHINESE_WORDS = (
    Rule("chinese_words_min", "words", "below", "words_min", _FINEWEB2_GOPHER,
         "A fragment."),
    Rule("chinese_words_max", "words", "above", "words_max", _FINEWEB2_GOPHER,
         "A dump."),
    Rule("chinese_han_share", "han_share", "below", "han_share_min", _OURS,
         "Another language with some Chinese in it."),
    Rule("chinese_word_length", "word_length", "above", "word_length_max", _FINEWEB2,
         "Long runs of Latin letters and digits: keys, paths, encoded data."),
)
CHINESE_SENSE = (
    Rule("chinese_alphabetic_words", "alphabetic_words", "below", "alphabetic_words_min", _FINEWEB2,
         "Numbers in place of words."),
    Rule("chinese_stop_words", "stop_words", "below", "stop_words_min", _FINEWEB2,
         "No sentences: names, menus, glossaries."),
)
CHINESE_MARKS = (
    Rule("chinese_halfwidth_marks", "halfwidth_marks", "above", "halfwidth_marks_max", _OURS,
         "Printed Chinese has full-width marks; a page without any was converted or written by a machine."),
    Rule("chinese_marks", "marks", "below", "marks_min", _OURS,
         "Hardly a punctuation mark: lists of key words, names, menus."),
    Rule("chinese_garbled_chars", "garbled_chars", "above", "garbled_chars_max", _OURS,
         "Characters that a wrong decoding leaves."),
    Rule("chinese_mixed_writing", "mixed_writing", "above", "mixed_writing_max", _OURS,
         "Simplified and traditional characters mixed: a wrong decoding, or text spun to look new."),
    Rule("chinese_spam_phrases", "spam_phrases", "above", "spam_phrases_max", _OURS,
         "Advertisements for contacts, lotteries, invoices and downloads."),
    Rule("chinese_separators", "separators", "above", "separators_max", _OURS,
         "Bars and middle dots between links: a menu."),
)
FILES = (
    Rule("files_encoded_share", "encoded_share", "above", "encoded_share_max", _STARCODER2,
         "Binary data spelled out."),
    Rule("files_encoded_run", "encoded_run", "above", "encoded_run_max", _STARCODER2,
         "One long run of binary data."),
    Rule("files_generated", "generated", "above", "generated_max", _STARCODER2,
         "A generator wrote it: its head or its name says so."),
    Rule("files_minified", "minified", "above", "minified_max", _OURS,
         "Its name says that it was packed."),
)
CODE = (
    Rule("code_lines_min", "code_lines", "below", "lines_min", _OURS,
         "A marker file or a bare list of imports teaches nothing."),
    Rule("code_lines_max", "lines", "above", "lines_max", _STARCODER2,
         "So many lines are data, or a generator wrote them."),
    Rule("code_line_chars", "line_chars", "above", "line_chars_max", _STARCODER,
         "A packed program, or data."),
    Rule("code_line_chars_mean", "line_chars_mean", "above", "line_chars_mean_max", _STARCODER,
         "A packed program, or data."),
    Rule("code_alphabetic", "alphabetic", "below", "alphabetic_min", _STARCODER,
         "Digits and symbols: data, drawings, rulers."),
    Rule("code_alphanumeric", "alphanumeric", "below", "alphanumeric_min",
         "CodeParrot; BigCode's basic filter (bigcode-dataset, preprocessing)",
         "Symbols: drawings, rulers, tables."),
    Rule("code_blanks", "blanks", "below", "blanks_min", _OURS,
         "Hardly any white space: a packed program."),
    Rule("code_comment_lines", "comment_lines", "above", "comment_lines_max",
         "SantaCoder (arXiv 2301.03988); BigCode's comment filter (bigcode-dataset, preprocessing)",
         "Nearly all comment: a licence, a switched-off program, a document."),
    Rule("code_header", "header", "above", "header_max", _OURS,
         "A licence, and hardly a program after it."),
)
DATA = (
    Rule("data_lines", "lines", "above", "lines_max", _STARCODER2,
         "A long data file repeats itself."),
    Rule("data_line_chars", "line_chars", "above", "line_chars_max", _STARCODER2,
         "One endless line of data."),
    Rule("data_characters_min", "characters", "below", "characters_min", _DEEPSEEK_CODER,
         "An empty or trivial data file."),
    Rule("data_characters_max", "characters", "above", "characters_max", _DEEPSEEK_CODER,
         "A data file and no configuration."),
    Rule("downsampled", "draw", "above", "share_kept_max",
         "Kimi k1.5 (arXiv 2501.12599), appendix B; the share: StarCoder2 (arXiv 2402.19173), 2.3",
         "Markup and data formats are plentiful and teach little: a share of them is enough."),
)
# fmt: on
