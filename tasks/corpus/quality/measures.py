"""What the rules measure: each route's numbers for one text, all of them from one pass over its characters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import xxhash

from tasks.corpus.codepoints import classes, codepoints
from tasks.corpus.quality import formats, formulas, program, repetition, scan
from tasks.corpus.quality.blocks import outside
from tasks.corpus.quality.characters import marks
from tasks.corpus.quality.config import ChineseConfig, CodeConfig, DataConfig, MathematicsConfig, ProseConfig
from tasks.corpus.wordlist import words

STOP_WORDS = words("the be to of and that have with")
"""Gopher (arXiv 2112.11446), A.1.1."""
CHINESE_STOP_WORDS = words("的 年 在 月 是 和 日 了 於 为 為 有 被 人 中 他 與 後 也 而 由")
"""FineWeb-2's for cmn_Hani, without its middle dot: simplified and traditional."""
HAN_PER_WORD = 1.7
"""Characters of a Chinese word on average."""
SPAM = words(
    "加微信 微信号 加我微信 加QQ QQ群 扣扣群 代开发票 开发票 办证 六合彩 时时彩 彩票平台 博彩 娱乐城 赌场 棋牌游戏 "
    "百家乐 在线观看 免费下载 免费观看 高清无码 成人电影 点击购买 点击进入 立即抢购 包邮 加盟热线 客服热线 咨询热线 "
    "联系电话 刷单 贷款热线 信用卡套现 代孕 减肥药 壮阳 一夜情 裸聊 色情 私服 外挂 招商加盟 代理加盟 全国包邮 限时抢购"
)
"""Phrases of Chinese advertisements. Ours."""
# What UTF-8 read as GBK, and uninitialised memory of a Windows program, look like.
_GARBAGE = ("锟斤拷", "烫烫烫", "屯屯屯", "锘")

SHARED = {
    "words": "words with a letter or digit (Chinese: Han characters at 1.7 to a word, and other words)",
    "word_length": "mean characters of such a word",
    "hashes": "hash signs to words; marks of headings are none",
    "ellipses": "ellipses to words",
    "bullet_lines": "share of lines that begin with a bullet",
    "ellipsis_lines": "share of lines that end with an ellipsis",
    "alphabetic_words": "share of words with a letter",
    "stop_words": "distinct stop words",
    "sentences": "sentences",
    "punctuated_lines": "share of lines that end with . ! ? a quotation mark or a full stop of another script",
    "short_lines": "share of lines of at most `short_line_chars` characters",
    "duplicate_line_chars": "characters in lines that stood before, to characters that are no line break",
    "newlines": "line breaks to words",
    "repeated_lines": "share of lines that stood before",
    "repeated_paragraphs": "share of paragraphs that stood before",
    "repeated_line_chars": "characters in lines that stood before, to characters",
    "repeated_paragraph_chars": "characters in paragraphs that stood before, to characters",
    **{f"top_{n}_gram": f"characters in the most frequent {n}-gram, to characters" for n in (2, 3, 4)},
    **{f"repeated_{n}_grams": f"characters in {n}-grams that stood before, to characters" for n in range(5, 11)},
    "garbled_chars": "share of replacement, private-use and control characters, and of what wrong decodings leave",
}  # fmt: skip
"""The measures that prose, mathematics and Chinese have in common, in the order of `_shared`."""
PROSE = {
    **SHARED,
    "curly_brackets": "opening curly brackets",
    "lorem_ipsum": "occurrences of `lorem ipsum`",
    "bad_words": "words and phrases of the list",
}
MATHEMATICS = {
    **PROSE,
    "formula_share": "share of visible characters within formulas",
    "broken_formulas": "broken formulas and environments, to formulas (to 5 where there are fewer)",
    "numeric_lines": "share of lines with digits and without a letter",
    "garbled_words": "share of words outside formulas that turn four times between letters and other signs",
}
CHINESE = {
    **SHARED,
    "han_share": "Han characters, to Han characters and other words",
    "halfwidth_marks": "share of half-width marks among those after a Han character",
    "marks": "marks after a Han character, to Han characters",
    "mixed_writing": "the rarer of simplified-only and traditional-only characters, to both",
    "spam_phrases": "phrases of advertisements, to words",
    "separators": "bars, guillemets and middle dots, to words",
}
FILE = {
    "characters": "characters",
    "lines": "lines",
    "line_chars": "characters of the longest line",
    "line_chars_mean": "mean characters of a line",
    "code_lines": "lines that are not blank",
    "alphabetic": "share of letters among the characters",
    "alphanumeric": "share of letters and digits among the characters",
    "blanks": "share of white space among the characters",
    "comment_lines": "share of comments among the lines that are not blank",
    "header": "share of lines, among those that are not blank, of a leading comment that names a licence",
    "encoded_share": "share of characters in runs of base64, bytes or characters spelled out",
    "encoded_run": "characters of the longest such run",
    "generated": "notices in the first five lines, and in the name, that a generator wrote the file",
    "minified": "1 where the name says that the file was packed",
    "draw": "a number from 0 to 1 drawn by the hash of the text",
}
LINE = {
    "line_terminal": "1 where the line ends in . ! ? or a quotation mark and not in an ellipsis",
    "line_words": "words of the line",
    "line_word_chars": "characters of its longest word",
    "line_javascript": "occurrences of `javascript`",
    "line_policy": "notices on terms of use, privacy and cookies",
    "line_citations": "citation marks",
}
MEANINGS = {**LINE, **FILE, **CHINESE, **MATHEMATICS}
"""What each measure is."""

# One stray dollar sign in a text without formulas is no cut-up LaTeX. Ours.
_FORMULAS_MIN = 5
_HEAD_LINES = 5
# StarCoder2 (arXiv 2402.19173), 2.1, and what else generators write.
_GENERATED = re.compile(
    r"auto-?generated|automatically generated|generated automatically|this file (?:is|was) generated|code generated by"
    r"|do not (?:edit|modify)[^\n]{0,40}generated|generated[^\n]{0,60}do not (?:edit|modify)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"[ \t]*(?:#(?![a-z])|//|/\*|\*|--|;|\"\"\"|<!--)")
_LICENCE = re.compile(r"licen[cs]e|copyright|all rights reserved", re.IGNORECASE)


class BadWordsError(ValueError):
    """The list of bad words cannot be read, or is not the one that the configuration names."""


def prose(text: str, config: ProseConfig, path: str = "") -> list[float]:
    """The numbers of PROSE, in its order."""
    plain = outside(text)
    return [*_shared(plain, config.short_line_chars, False)[0], *_pages(plain, config)]


def mathematics(text: str, config: MathematicsConfig, path: str = "") -> list[float]:
    """The numbers of MATHEMATICS, in its order."""
    plain = outside(text)
    shared, counts = _shared(plain, config.short_line_chars, False)
    whole = outside(text, formulas=False)
    f = formulas.scan(codepoints(whole), classes()).tolist()
    cut = abs(whole.count("\\begin{") - whole.count("\\end{"))
    return [
        *shared,
        *_pages(plain, config),
        f[formulas.IN_FORMULAS] / max(f[formulas.VISIBLE], 1),
        (f[formulas.BROKEN] + cut) / max(f[formulas.FORMULAS] + cut, _FORMULAS_MIN),
        counts[scan.NUMERIC_LINES] / max(counts[scan.LINES], 1),
        f[formulas.GARBLED_WORDS] / max(f[formulas.WORDS], 1),
    ]


def chinese(text: str, config: ChineseConfig, path: str = "") -> list[float]:
    """The numbers of CHINESE, in its order."""
    shared, c = _shared(outside(text), config.short_line_chars, True)
    han, number = c[scan.HAN_CHARS], max(shared[0], 1.0)
    one, other = c[scan.SIMPLIFIED_CHARS], c[scan.TRADITIONAL_CHARS]
    return [
        *shared,
        han / max(c[scan.WORDS], 1),
        c[scan.NARROW_AFTER_HAN] / max(c[scan.MARKS_AFTER_HAN], 1),
        c[scan.MARKS_AFTER_HAN] / max(han, 1),
        min(one, other) / max(one + other, 1),
        sum(map(text.count, SPAM)) / number,
        c[scan.SEPARATORS] / number,
    ]


def file(text: str, config: CodeConfig | DataConfig, path: str = "") -> list[float]:
    """The numbers of FILE, in its order."""
    c = program.scan(codepoints(text), classes()).tolist()
    characters, filled = max(c[program.CHARACTERS], 1), max(c[program.FILLED_LINES], 1)
    head = text.split("\n", _HEAD_LINES)[:_HEAD_LINES]
    notices = sum(bool(_GENERATED.search(line[:1000])) for line in head) + formats.generated(path)
    drawn = xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) / 2**64
    return [
        c[program.CHARACTERS],
        c[program.LINES],
        c[program.LONGEST],
        (c[program.CHARACTERS] - c[program.LINES] + 1) / max(c[program.LINES], 1),
        c[program.FILLED_LINES],
        c[program.LETTERS] / characters,
        c[program.ALPHANUMERICS] / characters,
        c[program.BLANKS] / characters,
        c[program.COMMENT_LINES] / filled,
        _header_lines(text) / filled,
        c[program.ENCODED] / characters,
        c[program.ENCODED_LONGEST],
        notices,
        float(formats.minified(path)),
        drawn,
    ]


def _shared(plain: str, short: int, han: bool) -> tuple[list[float], list[int]]:
    """The numbers of SHARED for a text without blocks, and the counts of the pass."""
    points = codepoints(plain)
    counts, words_W, lengths_W, *items = scan.scan(points, classes(), marks(), han, _stops(han), short)
    lines_L, line_lengths_L, paragraphs_P, paragraph_lengths_P = items
    c = counts.tolist()
    tops, shares = np.zeros(3, np.int64), np.zeros(6, np.int64)
    repetition.ngrams(words_W, lengths_W, 0 if han else 1, 2 if han else 1, tops, shares)
    lines, line_chars = repetition.repeated(lines_L, line_lengths_L)
    paragraphs, paragraph_chars = repetition.repeated(paragraphs_P, paragraph_lengths_P)
    characters, all_words, all_lines = max(len(plain), 1), max(c[scan.WORDS], 1), max(c[scan.LINES], 1)
    number = float(c[scan.LEXICAL_WORDS])
    if han:
        number += c[scan.HAN_CHARS] / HAN_PER_WORD - c[scan.HAN_CHARS]
        all_words = max(number, 1.0)  # type: ignore[assignment]
    garbled = c[scan.GARBLED_CHARS] + (sum(plain.count(mark) * len(mark) for mark in _GARBAGE) if han else 0)
    return [
        number,
        c[scan.LEXICAL_CHARS] / max(number, 1.0),
        c[scan.HASHES] / all_words,
        c[scan.ELLIPSES] / all_words,
        c[scan.BULLET_LINES] / all_lines,
        c[scan.ELLIPSIS_LINES] / all_lines,
        c[scan.ALPHABETIC_WORDS] / max(c[scan.WORDS], 1),
        c[scan.STOP_WORDS],
        c[scan.SENTENCES],
        c[scan.PUNCTUATED_LINES] / all_lines,
        c[scan.SHORT_LINES] / all_lines,
        line_chars / max(len(plain) - c[scan.NEWLINES], 1),
        c[scan.BREAKS] / all_words,
        lines / all_lines,
        paragraphs / max(c[scan.PARAGRAPHS], 1),
        line_chars / characters,
        paragraph_chars / characters,
        *(top / characters for top in tops.tolist()),
        *(share / characters for share in shares.tolist()),
        garbled / characters,
    ], c


def _pages(plain: str, config: ProseConfig) -> list[float]:
    """C4's page rules: curly brackets, placeholders, bad words."""
    lower = plain.lower()
    bad = 0
    if listed := bad_words(config):
        single, phrases = listed
        bad = len(single.intersection(re.findall(r"\w+", lower))) + sum(phrase in lower for phrase in phrases)
    return [plain.count("{"), lower.count("lorem ipsum"), bad]


def bad_words(config: ProseConfig) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """(words, phrases) of the list that is configured. Raises BadWordsError."""
    if config.bad_words_file is None:
        return None
    return _bad_words(config.bad_words_file, config.bad_words_sha256 or "")


@lru_cache(maxsize=4)
def _bad_words(path: str, sha256: str) -> tuple[frozenset[str], tuple[str, ...]]:
    try:
        data = Path(path).read_bytes()
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadWordsError(f"the list of bad words {path} cannot be read: {error}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise BadWordsError(
            f"the list of bad words {path} has the SHA-256 {found} and bad_words_sha256 is {sha256}: "
            "set it to the former if that is the list you mean"
        )
    listed = sorted({line.strip().lower() for line in text.splitlines() if line.strip()})
    return frozenset(w for w in listed if re.fullmatch(r"\w+", w)), tuple(
        w for w in listed if not re.fullmatch(r"\w+", w)
    )


@cache
def _stops(han: bool) -> np.ndarray:
    listed: Iterable[str] = CHINESE_STOP_WORDS if han else STOP_WORDS
    return np.array(sorted(scan.word_hash(word) for word in listed), np.uint64)


def _header_lines(text: str) -> int:
    """Lines of a comment that the file begins with and that names a licence or a copyright; 0 if it names none."""
    number, at, named = 0, 0, False
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at : min(end, at + 1000)]
        if line.strip():
            if not _COMMENT.match(line):
                break
            number += 1
            named = named or bool(_LICENCE.search(line))
        at = end + 1
    return number if named else 0
