"""Every rule: a text that it alone refuses, next to one that is just inside its limit."""

from __future__ import annotations

import base64
import hashlib
import random
import string
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tasks.corpus.config import CorpusConfig
from tasks.corpus.quality.judge import Judgement, judge, limit
from tasks.corpus.quality.route import ROUTES, registry
from tests.tasks.corpus.quality.texts import PROGRAM, PUBLISHED, WHOLE_LINES, chinese, prose, sentence

NGRAMS = {f"repeated_{n}_grams_max": None for n in range(5, 11)}
DUPLICATES = {"duplicate_line_chars_max": None, "lines": WHOLE_LINES}


class Case(NamedTuple):
    """Texts of which the rule refuses some."""

    make: Callable[[int, random.Random], str]
    """A text that grows with a number, more or less refusable."""
    numbers: range
    """Some of these are refused, by this rule alone, and a neighbour of one is kept."""
    overrides: dict = {}
    """Limits, by section, of rules that would always speak first."""
    path: str = ""


def coined(pick: random.Random, length: int, alphabet: str = string.ascii_lowercase) -> str:
    return "".join(pick.choices(alphabet, k=length))


def mixed(pick: random.Random, special: list[str], plain: int = 400, length: int = 6) -> str:
    """`special` words scattered among coined ones, after three English sentences."""
    words = [*special, *(coined(pick, length) for _ in range(plain - len(special)))]
    pick.shuffle(words)
    return f"{prose(3)} {' '.join(words)}."


def lines(pick: random.Random, count: int) -> list[str]:
    return [sentence(pick) for _ in range(count)]


def runs(n: int, every: int, total: int = 500) -> Callable[[int, random.Random], str]:
    """A run of n words, k times, `every` coined words apart."""

    def make(k: int, pick: random.Random) -> str:
        run = [coined(pick, 6) for _ in range(n)]
        words: list[str] = []
        for _ in range(k):
            words += [*run, *(coined(pick, 6) for _ in range(every))]
        words += [coined(pick, 6) for _ in range(total - len(words))]
        return f"{prose(3)} {' '.join(words)}."

    return make


def shuffled(pick: random.Random, items: list[str], joint: str) -> str:
    pick.shuffle(items)
    return joint.join(items)


def stop_words(k: int, pick: random.Random) -> str:
    words = [coined(pick, 6) for _ in range(100)] + "the and with".split()[:k]
    pick.shuffle(words)
    return ". ".join(" ".join(words[at : at + 20]) for at in range(0, len(words), 20)) + "."


PROSE = {
    "gopher_words_min": Case(lambda k, pick: " ".join(prose().split()[:k]) + ".", range(45, 55)),
    "gopher_words_max": Case(lambda k, pick: prose(7692) + " word" * k, range(2, 7)),
    "gopher_word_length_min": Case(
        lambda k, pick: mixed(pick, [coined(pick, 1) for _ in range(k)], 400, 4), range(130, 190, 2)
    ),
    "gopher_word_length_max": Case(
        lambda k, pick: mixed(pick, [coined(pick, 20) for _ in range(k)], 400, 5), range(130, 170)
    ),
    "gopher_hashes": Case(lambda k, pick: mixed(pick, [f"#{coined(pick, 5)}" for _ in range(k)]), range(35, 55)),
    "gopher_ellipses": Case(lambda k, pick: mixed(pick, [f"{coined(pick, 5)}..." for _ in range(k)]), range(35, 55)),
    "gopher_bullet_lines": Case(
        lambda k, pick: "\n".join(("- " if at < k else "") + line for at, line in enumerate(lines(pick, 30))),
        range(25, 31),
    ),
    "gopher_ellipsis_lines": Case(
        lambda k, pick: "\n".join(line + (".." if at < k else "") for at, line in enumerate(lines(pick, 30))),
        range(5, 13),
    ),
    "gopher_alphabetic_words": Case(
        lambda k, pick: mixed(pick, [coined(pick, 6, string.digits) for _ in range(k)]), range(75, 100)
    ),
    "gopher_stop_words": Case(stop_words, range(4)),
    "gopher_repeated_lines": Case(lambda k, pick: shuffled(pick, lines(pick, 30) + ["No."] * k, "\n"), range(8, 18)),
    "gopher_repeated_paragraphs": Case(
        lambda k, pick: shuffled(pick, ["\n".join(lines(pick, 3)) for _ in range(20)] + ["No."] * k, "\n\n"),
        range(6, 14),
    ),
    "gopher_repeated_line_chars": Case(
        lambda k, pick: "\n".join([*lines(pick, 40), *[lines(random.Random(2), 1)[0]] * k]),
        range(5, 20),
        {"prose": {**DUPLICATES, "repetition": NGRAMS | {f"top_{n}_gram_max": None for n in (2, 3, 4)}}},
    ),
    "gopher_repeated_paragraph_chars": Case(
        # the lines of the paragraphs differ by what stands before them, the paragraphs do not
        lambda k, pick: "\n\n".join([*lines(pick, 40), *[lines(random.Random(2), 1)[0]] * k]),
        range(5, 20),
        {
            "prose": {
                **DUPLICATES,
                "repetition": NGRAMS | {f"top_{n}_gram_max": None for n in (2, 3, 4)} | {"line_chars_max": None},
            }
        },
    ),
    "gopher_top_2_gram": Case(runs(2, 3), range(40, 80)),
    "gopher_top_3_gram": Case(runs(3, 4), range(20, 60)),
    "gopher_top_4_gram": Case(runs(4, 5), range(15, 50)),
    **{f"gopher_repeated_{n}_grams": Case(runs(n, 15, 500 + 30 * n), range(1, 32)) for n in range(5, 11)},
    "c4_sentences": Case(lambda k, pick: " ".join(lines(pick, 20)).replace(".", "").lower() + " so. " * k, range(1, 5)),
    "c4_curly_brackets": Case(lambda k, pick: f"{prose()} {'{x}' * k}.", range(3)),
    "c4_lorem_ipsum": Case(lambda k, pick: prose() + " Lorem ipsum." * k, range(3)),
    "c4_bad_words": Case(lambda k, pick: prose() + " Darn it all." * k, range(3)),
    "fineweb_punctuated_lines": Case(
        lambda k, pick: "\n".join(line + " so" * (at < k) for at, line in enumerate(lines(pick, 30))), range(22, 30)
    ),
    "fineweb_short_lines": Case(
        lambda k, pick: "\n".join(
            lines(pick, 10) + [f"{' '.join(coined(pick, 4) for _ in range(5))}." for _ in range(k)]
        ),
        range(15, 26),
    ),
    "fineweb_duplicate_line_chars": Case(
        lambda k, pick: "\n".join(lines(pick, 60) + [f"{' '.join(coined(random.Random(2), 6) for _ in range(4))}"] * k),
        range(5, 30),
        {"prose": {"lines": WHOLE_LINES, "repetition": NGRAMS | {f"top_{n}_gram_max": None for n in (2, 3, 4)}}},
    ),
    "fineweb_newlines": Case(
        lambda k, pick: "\n".join(
            lines(pick, 4) + [f"{coined(pick, 10)} {coined(pick, 10)} {coined(pick, 9)}." for _ in range(k)]
        ),
        range(100, 140),
    ),
}
MATHEMATICS = {
    "math_formula_share": Case(
        lambda k, pick: prose(4) + "".join(f"\n\n$$\n{'x+y=' * 100} {at}\n$$\n" for at in range(k)), range(5, 25)
    ),
    "math_broken_formulas": Case(
        lambda k, pick: prose() + "\n\n" + " ".join(f"${'{' * (at < k)}x_{at}$" for at in range(20)) + ".", range(8)
    ),
    "math_numeric_lines": Case(
        lambda k, pick: "\n".join(
            lines(pick, 20) + [" ".join(coined(pick, 9, string.digits) for _ in range(4)) for _ in range(k)]
        ),
        range(15, 25),
    ),
    "math_garbled_words": Case(
        lambda k, pick: mixed(
            pick, ["".join(a + b for a, b in zip(coined(pick, 3), "123", strict=True)) for _ in range(k)]
        ),
        range(35, 55),
    ),
    "math_garbled_chars": Case(lambda k, pick: f"{prose()} {chr(0xFFFD) * k}.", range(5, 20)),
}


def han(
    pick: random.Random,
    length: int,
    alphabet: str = "春夏秋冬山川河海城市村路桥学校老生天空云雨雪花草木牛羊虫金石土水火光",
) -> str:
    return "".join(pick.choices(alphabet, k=length))


def chinese_mixed(pick: random.Random, special: list[str], plain: int = 60) -> str:
    items = [*special, *(f"{han(pick, 5)}的{han(pick, 5)}，{han(pick, 6)}在{han(pick, 4)}。" for _ in range(plain))]
    pick.shuffle(items)
    return "\n".join("".join(items[at : at + 4]) for at in range(0, len(items), 4)) + "。"


CHINESE = {
    "chinese_words_min": Case(lambda k, pick: chinese(60).replace("\n", "")[:k] + "。", range(70, 110)),
    "chinese_words_max": Case(lambda k, pick: chinese_mixed(pick, [], 7700 + 10 * k), range(10), {}),
    "chinese_word_length": Case(
        lambda k, pick: chinese_mixed(pick, [coined(pick, 60) for _ in range(k)]), range(20, 70)
    ),
    "chinese_han_share": Case(
        lambda k, pick: chinese(3) + "\n" + " ".join(coined(pick, 5) for _ in range(k)) + "。", range(60, 200)
    ),
    "chinese_alphabetic_words": Case(
        lambda k, pick: (
            chinese(8).replace("\n\n", "\n") + " ".join(coined(pick, 3, string.digits) for _ in range(k)) + "。"
        ),
        range(40, 120),
    ),
    "chinese_stop_words": Case(
        lambda k, pick: "，".join(han(pick, 8) for _ in range(20)) + "的在是"[:k] + "。", range(3)
    ),
    "chinese_halfwidth_marks": Case(
        lambda k, pick: (
            "".join(f"{han(pick, 6)}的{han(pick, 6)}是{',' if at < k else '，'}" for at in range(40)) + "\n完。"
        ),
        range(30, 41),
    ),
    "chinese_marks": Case(
        lambda k, pick: f"{han(pick, 10)}的{han(pick, 10)}是{han(pick, 10 * k)}。\n" + f"{han(pick, 50)}。",
        range(1, 40),
    ),
    "chinese_garbled_chars": Case(lambda k, pick: chinese() + chr(0xFFFD) * k + "。", range(10)),
    "chinese_mixed_writing": Case(
        lambda k, pick: (
            "，".join(han(pick, 8, "门车东马鸟鱼龙书" if at >= k else "門車東馬鳥魚龍書") for at in range(40))
            + "的是在。"
        ),
        range(5, 25),
    ),
    "chinese_spam_phrases": Case(lambda k, pick: chinese_mixed(pick, ["包邮"] * k), range(20)),
    "chinese_separators": Case(lambda k, pick: chinese_mixed(pick, ["｜"] * k), range(60, 140)),
}


def program(length: int, lines: int, pick: random.Random) -> list[str]:
    return [f"    value_{at} = {coined(pick, length)}(value)" for at in range(lines)]


NOTICE = "# This file is generated by a tool.\n"
BLOB = base64.b64encode(random.Random(0).randbytes(2000)).decode()
CODE = {
    "code_lines_min": Case(lambda k, pick: "\n".join(program(8, k, pick)), range(2, 8)),
    "code_lines_max": Case(lambda k, pick: "a = (b + c)\n" * (99_998 + k), range(1, 5)),
    "code_line_chars": Case(
        lambda k, pick: PROGRAM + "x = " + " ".join(coined(pick, 7) for _ in range(k)), range(110, 140)
    ),
    "code_line_chars_mean": Case(
        lambda k, pick: "\n".join(f"x = {' '.join(coined(pick, 7) for _ in range(k))}" for _ in range(10)), range(8, 16)
    ),
    "code_alphabetic": Case(
        lambda k, pick: PROGRAM + "\n".join(f"{coined(pick, 9, string.digits)}, {at}" for at in range(k)),
        range(10, 120),
    ),
    "code_alphanumeric": Case(
        lambda k, pick: PROGRAM + "\n".join("+= -* &! <>" for _ in range(k)),
        range(10, 120),
        {"code": {"alphabetic_min": None}},
    ),
    "code_blanks": Case(
        lambda k, pick: "\n".join(f"{coined(pick, 3)}=({coined(pick, k)});" for _ in range(10)), range(15, 60)
    ),
    "code_comment_lines": Case(
        lambda k, pick: PROGRAM + "\n" + "\n".join(f"# {coined(pick, 8)} remark" for _ in range(k)), range(60, 100)
    ),
    "code_header": Case(lambda k, pick: "# Licence: MIT\n" + "# and so on\n" * k + PROGRAM, range(10, 30)),
    "files_encoded_share": Case(
        lambda k, pick: PROGRAM + "\n".join(f"'{BLOB[at * 76 : at * 76 + 76]}'" for at in range(k)), range(2, 14)
    ),
    "files_encoded_run": Case(
        lambda k, pick: PROGRAM * 5 + "\n" + "'" + BLOB[:900] + "' '" + BLOB[: 1020 + k] + "'",
        range(8),
        {"code": {"line_chars_max": None, "encoded_share_max": None, "line_chars_mean_max": None, "blanks_min": None}},
    ),
    "files_generated": Case(lambda k, pick: NOTICE * k + PROGRAM, range(3)),
    "files_minified": Case(lambda k, pick: PROGRAM, range(1), path="lib/jquery.min.js"),
}


def drawn(k: int, pick: random.Random) -> str:
    return "{" + ", ".join(f'"{coined(pick, 5)}": {at}' for at in range(5 + k)) + "}"


ALL_KEPT = {"data": {"share_kept_max": 1.0}}
DATA = {
    "data_lines": Case(lambda k, pick: "{" + '"a": 1,\n' * (508 + k) + '"b": 1}', range(8), ALL_KEPT, "a.json"),
    "data_line_chars": Case(
        lambda k, pick: "[" + "1, " * (33_330 + k) + "1]",
        range(10),
        {"data": {"share_kept_max": 1.0, "characters_max": None, "encoded_share_max": None, "encoded_run_max": None}},
        "a.json",
    ),
    "data_characters_min": Case(lambda k, pick: "{" + '"a": ' + "1" * k + "}", range(35, 50), ALL_KEPT, "a.json"),
    "data_characters_max": Case(
        lambda k, pick: "{" + ", ".join(f'"key {at}": "{coined(pick, 7)}"' for at in range(200 + k)) + "}",
        range(60),
        ALL_KEPT,
        "a.json",
    ),
    "downsampled": Case(drawn, range(40), {}, "a.json"),
}
CASES = {
    ("web", "en", False): PROSE,
    ("math", "en", False): MATHEMATICS,
    ("web", "zh", False): CHINESE,
    ("code", "en", True): CODE | DATA,
}
PARAMETERS = [(name, *where, case) for where, cases in CASES.items() for name, case in cases.items()]


@pytest.fixture(scope="module")
def bad_words(tmp_path_factory) -> dict:
    listed = tmp_path_factory.mktemp("words") / "bad.txt"
    listed.write_text("darn it\nheck\n")
    return {"bad_words_file": str(listed), "bad_words_sha256": hashlib.sha256(listed.read_bytes()).hexdigest()}


@pytest.mark.parametrize(("name", "domain", "language", "code", "case"), PARAMETERS, ids=[p[0] for p in PARAMETERS])
def test_each_rule_refuses_alone_what_is_just_outside_its_limit(name, domain, language, code, case, bad_words):
    sections = {"prose": {"lines": WHOLE_LINES}, "mathematics": {"lines": WHOLE_LINES}} | case.overrides
    sections["prose"] = sections["prose"] | bad_words
    config = CorpusConfig.model_validate(sections)

    def judged(k: int) -> Judgement:
        return judge(case.make(k, random.Random(1)), domain, language, code, config, case.path)

    found = [judged(k) for k in case.numbers]
    alone = [at for at, judgement in enumerate(found) if judgement.reason == name and not judgement.others]
    assert alone, sorted({(judgement.reason, *judgement.others) for judgement in found}, key=str)
    if len(found) == 1:  # all or nothing: the same text under another name
        assert judge(case.make(0, random.Random(1)), domain, language, code, config, "x.js").reason is None
        return
    assert any(found[near].reason is None for at in alone for near in (at - 1, at + 1) if 0 <= near < len(found))
    rule = registry()[name]
    side = 1 if rule.refuses == "above" else -1
    for at in alone:
        assert (found[at].number - found[at].limit) * side > 0
        assert found[at].limit == limit(getattr(config, ROUTES[found[at].active.route].section), rule.limit)


def test_every_rule_that_judges_documents_is_tested_above():
    tested = {name for cases in CASES.values() for name in cases}
    assert tested == {name for name, rule in registry().items() if rule.unit == "document"}


@pytest.mark.parametrize("domain", ["web", "knowledge", "math"])
def test_good_prose_passes_every_published_rule(domain):
    judgement = judge(prose(), domain, "en", False, PUBLISHED)
    assert (judgement.reason, judgement.others, judgement.text) == (None, (), prose())


def test_good_chinese_and_good_programs_pass_every_rule():
    assert judge(chinese(), "web", "zh", False, PUBLISHED).reason is None
    assert judge(PROGRAM, "code", "en", True, PUBLISHED).reason is None
    assert judge(prose(), "web", "de", False, PUBLISHED).reason is None
