"""Thresholds of the quality rules, by route: English prose, mathematics, Chinese, programs, data files.

The defaults are the published ones. A threshold of null (None) switches its rule off. Which of them do not suit
technical text, and why, is said in the presets.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializationInfo, ValidationInfo, field_serializer, field_validator, model_validator

from model.config import Config, for_identity


def share(default: float | None) -> float | None:
    """A field that holds a share, or None."""
    return Field(default=default, ge=0.0, le=1.0)


def count(default: int | None) -> int | None:
    """A field that holds a count, or None."""
    return Field(default=default, ge=0)


def ratio(default: float | None) -> float | None:
    """A field that holds a number that is not negative, or None."""
    return Field(default=default, ge=0.0)


class RepetitionConfig(Config):
    """Gopher's repetition rules (Rae et al., arXiv 2112.11446, A.1.1, table A1)."""

    lines_max: float | None = share(0.30)
    """Lines that stood before, as a share of lines."""
    paragraphs_max: float | None = share(0.30)
    """Paragraphs that stood before, as a share of paragraphs."""
    line_chars_max: float | None = share(0.20)
    """Characters in such lines, as a share of characters."""
    paragraph_chars_max: float | None = share(0.20)
    """Characters in such paragraphs."""
    top_2_gram_max: float | None = share(0.20)
    """Characters in the occurrences of the most frequent pair of words."""
    top_3_gram_max: float | None = share(0.18)
    """The same for three words."""
    top_4_gram_max: float | None = share(0.16)
    """The same for four words."""
    repeated_5_grams_max: float | None = share(0.15)
    """Characters in runs of five words that stood before, each counted once."""
    repeated_6_grams_max: float | None = share(0.14)
    """The same for six words."""
    repeated_7_grams_max: float | None = share(0.13)
    """The same for seven words."""
    repeated_8_grams_max: float | None = share(0.12)
    """The same for eight words."""
    repeated_9_grams_max: float | None = share(0.11)
    """The same for nine words."""
    repeated_10_grams_max: float | None = share(0.10)
    """The same for ten words."""


class LinesConfig(Config):
    """C4's line rules (Raffel et al., arXiv 1910.10683, 2.2): a line that one refuses is taken out of its page before
    the page is judged. Lines of code in fences and of displayed formulas are left alone."""

    terminal_min: int | None = Field(default=1, ge=0, le=1)
    """1: a line must end in . ! ? or a closing quotation mark, and not in an ellipsis."""
    words_min: int | None = count(5)
    """A line must have so many words. (The released code, and later arXiv versions; datatrove says 3 here and 5
    sentences to a page, which first versions are said to have: their history was not checked.)"""
    word_chars_max: int | None = count(1000)
    """No word may be longer (released code only)."""
    javascript_max: int | None = count(0)
    """How often a line may say `javascript`."""
    policy_max: int | None = count(0)
    """How many notices on terms, privacy and cookies a line may hold."""
    citations_max: int | None = count(0)
    """How many citation marks such as [1], [edit] and [citation needed] a line keeps; more, and all of them are cut out
    while the line stays."""


class RouteConfig(Config):
    """What the rules of texts share: sections whose limits are other ones on each route."""

    @field_validator("repetition", "lines", mode="before", check_fields=False)
    @classmethod
    def _completed(cls, value: Any, info: ValidationInfo) -> Any:
        """What a preset leaves out of a section keeps this route's limit, not that of the section's class."""
        default = cls.model_fields[str(info.field_name)].default
        return {**default.model_dump(), **value} if isinstance(value, dict) else value


class ProseConfig(RouteConfig):
    """Rules for English prose. Words, lines and paragraphs are counted outside code and displayed formulas."""

    words_min: int | None = count(50)
    """Gopher (arXiv 2112.11446, A.1.1): a document has 50 to 100,000 words."""
    words_max: int | None = count(100_000)
    """Gopher A.1.1."""
    word_length_min: float | None = ratio(3.0)
    """Gopher A.1.1: the mean length of a word is 3 to 10 characters."""
    word_length_max: float | None = ratio(10.0)
    """Gopher A.1.1."""
    hashes_max: float | None = ratio(0.1)
    """Gopher A.1.1: hash signs to words."""
    ellipses_max: float | None = ratio(0.1)
    """Gopher A.1.1: ellipses to words."""
    bullet_lines_max: float | None = share(0.9)
    """Gopher A.1.1: lines that begin with a bullet."""
    ellipsis_lines_max: float | None = share(0.3)
    """Gopher A.1.1: lines that end with an ellipsis."""
    alphabetic_words_min: float | None = share(0.8)
    """Gopher A.1.1: words with at least one letter."""
    stop_words_min: int | None = count(2)
    """Gopher A.1.1: distinct words of the, be, to, of, and, that, have, with."""
    sentences_min: int | None = count(3)
    """C4 (arXiv 1910.10683, 2.2) drops pages of fewer than three sentences."""
    curly_brackets_max: int | None = count(0)
    """C4 2.2 drops pages with a curly bracket, which stands in programs."""
    lorem_ipsum_max: int | None = count(0)
    """C4 2.2 drops pages with placeholder text."""
    bad_words_max: int | None = count(0)
    """C4 2.2 drops pages with any word of a list; see `bad_words_file`."""
    bad_words_file: str | None = None
    """The list, one word or phrase a line (C4 took github.com/LDNOOBW's); null for none. It is yours to bring. Where it
    lies is not identity: `bad_words_sha256` is."""
    bad_words_sha256: str | None = None
    """What the file must hold: another list is another corpus."""
    punctuated_lines_min: float | None = share(0.12)
    """FineWeb (arXiv 2406.17557, 3.6): lines that end with punctuation."""
    short_lines_max: float | None = share(0.67)
    """FineWeb 3.6: lines of less than 30 characters."""
    short_line_chars: int = Field(default=30, ge=1)
    """FineWeb 3.6; its code counts lines of exactly 30, too."""
    duplicate_line_chars_max: float | None = share(0.1)
    """FineWeb 3.6: characters in lines that stood before. Its code (datatrove) has 0.01 for this default, FineWeb-2's
    pipeline 0.1 again."""
    newlines_max: float | None = ratio(0.3)
    """FineWeb's code (datatrove, not in the paper): line breaks to words, which finds lists. An empty line between two
    paragraphs is no further break."""
    repetition: RepetitionConfig = RepetitionConfig()
    """Gopher's repetition rules."""
    lines: LinesConfig = LinesConfig()
    """C4's line rules."""

    @model_validator(mode="after")
    def _bad_words(self) -> ProseConfig:
        if self.bad_words_file is not None and self.bad_words_sha256 is None:
            raise ValueError(
                f"bad_words_file {self.bad_words_file} needs bad_words_sha256: "
                "take what `sha256sum` says of it, so that the list is part of the corpus's identity"
            )
        return self

    @field_serializer("bad_words_file")
    def _bad_words_identity(self, file: str | None, info: SerializationInfo) -> str | None:
        return self.bad_words_sha256 if file and for_identity(info) else file


class MathematicsConfig(ProseConfig):
    """Rules for mathematics: prose that formulas stand between. No paper publishes thresholds for it; these are ours,
    the shapes of prose made wider and what can go wrong with formulas bounded."""

    words_min: int | None = count(30)
    """A definition with its formulas may have few words."""
    word_length_min: float | None = ratio(2.5)
    """Variables are words of one letter."""
    hashes_max: float | None = ratio(0.2)
    """Cardinalities and primorials are written with #."""
    ellipses_max: float | None = ratio(0.2)
    """`...` stands in sequences."""
    alphabetic_words_min: float | None = share(0.55)
    """Formulas that no delimiter marks count as words."""
    sentences_min: int | None = count(2)
    """See `words_min`."""
    curly_brackets_max: int | None = count(None)
    """Sets and LaTeX are written with them."""
    short_lines_max: float | None = share(0.8)
    """Formulas stand on lines of their own."""
    duplicate_line_chars_max: float | None = share(0.2)
    """Function references repeat their labels."""
    newlines_max: float | None = ratio(0.5)
    """See `short_lines_max`."""
    formula_share_max: float | None = share(0.95)
    """Visible characters within formulas: above it nothing explains them."""
    broken_formulas_max: float | None = share(0.2)
    """Formulas that never close or whose braces do not pair, among formulas: LaTeX cut up by extraction."""
    numeric_lines_max: float | None = share(0.5)
    """Lines with digits and without a letter: bare tables of numbers."""
    garbled_words_max: float | None = share(0.1)
    """Words outside formulas that go to and fro between letters and other signs four times or more: what text
    recognition makes of a formula."""
    garbled_chars_max: float | None = share(0.005)
    """Replacement, private-use and control characters: fonts that extraction had no table for."""
    repetition: RepetitionConfig = RepetitionConfig(
        lines_max=0.4,
        top_2_gram_max=0.25,
        top_3_gram_max=0.22,
        top_4_gram_max=0.20,
        repeated_5_grams_max=0.25,
        repeated_6_grams_max=0.23,
        repeated_7_grams_max=0.21,
        repeated_8_grams_max=0.19,
        repeated_9_grams_max=0.17,
        repeated_10_grams_max=0.15,
    )
    """Notation repeats: `the polynomial f in x` stands in every other sentence."""
    lines: LinesConfig = LinesConfig(terminal_min=None, words_min=None, javascript_max=None)
    """A displayed formula is a line without words or full stop, and manuals of algebra systems name JavaScript."""


class ChineseConfig(RouteConfig):
    """Rules for Chinese: FineWeb-2 (Penedo et al., arXiv 2506.20920) with the thresholds of its configs/cmn_Hani.yml,
    and ours for what web pages in Chinese go wrong by. FineWeb-2 counts words of a segmenter; we have none and count
    characters, 1.7 to a word, and 2n of them for an n-gram of words."""

    words_min: int | None = count(50)
    """Gopher A.1.1, as in FineWeb-2's pipeline."""
    words_max: int | None = count(100_000)
    """Gopher A.1.1, as in FineWeb-2's pipeline."""
    word_length_max: float | None = ratio(5.0)
    """FineWeb-2 cmn_Hani max_avg_word_length."""
    hashes_max: float | None = ratio(0.1)
    """Gopher A.1.1, as in FineWeb-2's pipeline."""
    ellipses_max: float | None = ratio(0.1)
    """Gopher A.1.1, as in FineWeb-2's pipeline."""
    bullet_lines_max: float | None = share(0.9)
    """Gopher A.1.1, as in FineWeb-2's pipeline."""
    ellipsis_lines_max: float | None = share(0.3)
    """Gopher A.1.1, as in FineWeb-2's pipeline."""
    alphabetic_words_min: float | None = share(0.735)
    """FineWeb-2 cmn_Hani max_non_alpha_words_ratio (the share that IS alphabetic)."""
    stop_words_min: int | None = count(2)
    """FineWeb-2's pipeline: distinct stop words of cmn_Hani's list."""
    punctuated_lines_min: float | None = share(0.106)
    """FineWeb-2 cmn_Hani line_punct_thr."""
    short_line_chars: int = Field(default=30, ge=1)
    """What counts as a short line; FineWeb-2's pipeline has no rule on them."""
    duplicate_line_chars_max: float | None = share(0.1)
    """FineWeb-2's pipeline char_duplicates_ratio."""
    newlines_max: float | None = ratio(0.178)
    """FineWeb-2 cmn_Hani new_line_ratio."""
    repetition: RepetitionConfig = RepetitionConfig(
        lines_max=0.287,
        paragraphs_max=None,
        line_chars_max=None,
        paragraph_chars_max=None,
        top_2_gram_max=0.256,
        top_3_gram_max=0.201,
        top_4_gram_max=0.171,
        repeated_5_grams_max=0.198,
        repeated_6_grams_max=0.182,
        repeated_7_grams_max=0.167,
        repeated_8_grams_max=0.154,
        repeated_9_grams_max=0.14,
        repeated_10_grams_max=0.127,
    )
    """FineWeb-2 cmn_Hani dup_line_frac, top_n_grams, dup_n_grams; its pipeline switches the other three off."""
    han_share_min: float | None = share(0.3)
    """Han characters to Han characters plus other words. Ours: below it the text is another language's."""
    halfwidth_marks_max: float | None = share(0.9)
    """Half-width , . ! ? ; among the marks that follow a Han character. Ours: printed Chinese has full-width ones; a
    page without any was converted or written by a machine."""
    marks_min: float | None = ratio(0.01)
    """Punctuation marks after Han characters, to Han characters. Ours: prose has about one in twelve, lists of key
    words have none."""
    garbled_chars_max: float | None = share(0.005)
    """Replacement, private-use and control characters, and the characters that a wrong decoding leaves. Ours."""
    mixed_writing_max: float | None = share(0.3)
    """The rarer of simplified-only and traditional-only characters, among both. Ours: text is in one writing; a mixture
    comes from a wrong decoding or from spun text."""
    spam_phrases_max: float | None = ratio(0.01)
    """Phrases of advertisements for contacts, lotteries, invoices and downloads, to words. Ours."""
    separators_max: float | None = ratio(0.1)
    """Bars, guillemets and middle dots, to words. Ours: menus and lists of links."""


class FilesConfig(Config):
    """Rules that programs and data files share."""

    encoded_share_max: float | None = share(0.5)
    """StarCoder2 (Lozhkov et al., arXiv 2402.19173, 2.1): characters in runs of base64, of spelled-out bytes or of
    spelled-out characters."""
    encoded_run_max: int | None = count(1024)
    """StarCoder2 2.1: the longest such run."""
    generated_max: int | None = count(0)
    """StarCoder2 2.1: notices in the first five lines that a generator wrote the file; ours: its name."""
    minified_max: int | None = count(0)
    """Ours: names such as `x.min.js`, which say that a file was packed."""


class CodeConfig(FilesConfig):
    """Rules for programs. What is said of StarCoder, CodeParrot and SantaCoder is taken from code and papers that cite
    them and was not checked against their own text."""

    lines_min: int | None = count(5)
    """Ours: a package marker or a list of imports teaches nothing."""
    lines_max: int | None = count(100_000)
    """StarCoder2 2.1: longer files are data or generated."""
    line_chars_max: int | None = count(1000)
    """StarCoder (Li et al., arXiv 2305.06161, 3.1), StarCoder2 2.1, CodeParrot: the longest line."""
    line_chars_mean_max: float | None = ratio(100.0)
    """StarCoder 3.1, StarCoder2 2.1, CodeParrot: the mean length of a line."""
    alphabetic_min: float | None = share(0.25)
    """StarCoder 3.1, StarCoder2 2.1: letters among the characters."""
    alphanumeric_min: float | None = share(0.25)
    """CodeParrot, and StarCoder's basic filter: letters and digits among the characters."""
    blanks_min: float | None = share(0.03)
    """Ours: white space among the characters; packed programs have hardly any."""
    comment_lines_max: float | None = share(0.8)
    """SantaCoder (arXiv 2301.03988): comments to code, there by characters and here by lines."""
    header_max: float | None = share(0.5)
    """Ours: lines of a leading comment that states a licence, among the lines: nothing much comes after it."""


class DataConfig(FilesConfig):
    """Rules for JSON, YAML, XML, CSV, lock files and notebooks in their raw form."""

    share_kept_max: float | None = share(0.1)
    """The share that is kept, drawn by the hash of the text. Kimi k1.5 (arXiv 2501.12599, appendix B) samples markup
    languages such as JSON and YAML down and gives no number; StarCoder2 2.3 keeps 10 % of large ones."""
    lines_max: int | None = count(512)
    """StarCoder2 2.1, for JSON, YAML and text."""
    line_chars_max: int | None = count(100_000)
    """StarCoder2 2.1: the longest line of the formats that may have long ones."""
    characters_min: int | None = count(50)
    """DeepSeek-Coder (arXiv 2401.14196), 2.1, after StarCoder: JSON and YAML files of 50 to 5,000 characters."""
    characters_max: int | None = count(5000)
    """DeepSeek-Coder 2.1."""
