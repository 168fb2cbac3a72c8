"""The judgement of a document: its route, its lines, the first reason and the others, and time whatever the text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus.config import CorpusConfig
from tasks.corpus.quality import measures
from tasks.corpus.quality.blocks import blocks, outside
from tasks.corpus.quality.formats import generated, is_data, minified
from tasks.corpus.quality.judge import active_route, judge, limit
from tasks.corpus.quality.route import ROUTES, registry, route_of
from tests.linear import assert_linear
from tests.tasks.corpus.quality.texts import PIECES, PROGRAM, PUBLISHED, WHOLE_LINES, prose

WHERE = (("web", "en", False), ("math", "en", False), ("web", "zh", False), ("code", "en", True))
WHOLE = CorpusConfig.model_validate({"prose": {"lines": WHOLE_LINES}})


@pytest.mark.parametrize(
    ("domain", "language", "code", "path", "route"),
    [
        ("web", "en", False, "a.html", "prose"),
        ("math", "en", False, "a.html", "mathematics"),
        ("math", "zh", False, "a.html", "chinese"),
        ("web", "de", False, "a.html", "other"),
        ("code", "en", True, "a.py", "code"),
        ("web", "zh", True, "a.json", "data"),
        ("code", "en", True, "deps/yarn.lock", "data"),
        ("code", "en", True, "deps/package-lock.json", "data"),
    ],
)
def test_routes(domain, language, code, path, route):
    assert route_of("x = 1", domain, language, code, path).name == route


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('{"a": [1, 2]}', True),
        ("[1, 2, 3]", True),
        ('<?xml version="1.0"?><a/>', True),
        ("a,b,c\n" * 6, True),
        ("name: x\nlist:\n  - a\n  - b\nother: 1\nmore: 2\n", True),
        (PROGRAM, False),
        ("{x for x in y}", False),
        ("x = 1", False),
    ],
)
def test_data_is_known_by_its_shape_where_it_has_no_name(text, data):
    assert is_data("", text) is data
    assert is_data("notes", text) is data
    assert not is_data("a/b.py", text)
    assert is_data("a/b.json", text)


def test_names_say_what_was_packed_or_generated():
    assert minified("js/app.min.js")
    assert not minified("js/admin.js")
    assert generated("api/user_pb2.py")
    assert not generated("api/user.py")


def test_line_rules_take_lines_out_and_leave_code_and_formulas_alone():
    text = (
        "A sentence that is long enough stands here.\nMenu\nToo short.\nPlease switch JavaScript on to see this page.\n"
        "You accept our privacy policy by reading this line.\nA line without an end that goes on and on\n"
        "A line that was cut off somewhere in the middle...\nRivers run to the sea [1], as all do [citation needed].\n"
        f"A word as long as this, {'x' * 1001}, is data.\n\n```\nx = [1]\n```\n\n$$\nx + y\n$$"
    )
    judgement = judge(text, "web", "en", False, PUBLISHED)
    assert judgement.text == (
        "A sentence that is long enough stands here.\nRivers run to the sea , as all do .\n\n```\nx = [1]\n```\n\n"
        "$$\nx + y\n$$"
    )
    rules = [rule.name for rule in judgement.active.lines.rules]
    refused = judgement.active.lines.refused(judgement.lines).sum(axis=0)
    assert dict(zip(rules, refused.tolist(), strict=True)) == {
        "c4_line_terminal": 3,
        "c4_line_words": 2,
        "c4_line_word_chars": 1,
        "c4_line_javascript": 1,
        "c4_line_policy": 1,
        "c4_line_citations": 1,
    }
    assert judge(text, "web", "en", False, WHOLE).text == text


def test_the_first_rule_names_the_reason_and_the_others_follow():
    judgement = judge("Lorem ipsum. {x}", "web", "en", False, WHOLE)
    assert (judgement.reason, judgement.number, judgement.limit) == ("gopher_words_min", 3, 50)
    assert judgement.others == (
        *("gopher_stop_words", "c4_sentences", "c4_curly_brackets", "c4_lorem_ipsum"),
        *("fineweb_punctuated_lines", "fineweb_short_lines"),
    )


def test_a_rule_whose_limit_is_null_does_not_judge():
    config = CorpusConfig.model_validate({"prose": {"curly_brackets_max": None, "lines": WHOLE_LINES}})
    judgement = judge(f"{prose()} {{x}}.", "web", "en", False, config)
    assert judgement.reason is None
    assert "c4_curly_brackets" not in [rule.name for rule in judgement.active.documents.rules]


def test_one_limit_changed_leaves_the_others_of_its_route_alone():
    changed = {"lines": {"citations_max": None}, "repetition": {"lines_max": 0.5}}
    config = CorpusConfig.model_validate({"mathematics": changed, "chinese": {"repetition": {"lines_max": 0.5}}})
    for section in ("mathematics", "chinese"):
        ours, published = getattr(config, section).model_dump(), getattr(PUBLISHED, section).model_dump()
        ours["repetition"]["lines_max"] = published["repetition"]["lines_max"]
        if section == "mathematics":
            ours["lines"]["citations_max"] = published["lines"]["citations_max"]
        assert ours == published


def test_another_list_of_bad_words_than_the_one_meant_is_refused(tmp_path):
    (tmp_path / "bad.txt").write_text("heck")
    prose_section = {"bad_words_file": str(tmp_path / "bad.txt"), "bad_words_sha256": "00"}
    with pytest.raises(measures.BadWordsError, match="set it to the former"):
        judge(prose(), "web", "en", False, CorpusConfig.model_validate({"prose": prose_section}))
    with pytest.raises(ValueError, match="needs bad_words_sha256"):
        CorpusConfig.model_validate({"prose": {"bad_words_file": "bad.txt"}})


def test_a_list_of_bad_words_is_known_by_its_content_and_not_by_its_place():
    def literals(**prose_section: str) -> dict:
        return CorpusConfig.model_validate({"prose": prose_section}).literals()

    here = literals(bad_words_file="/here/bad.txt", bad_words_sha256="00")
    assert here == literals(bad_words_file="/there/bad.txt", bad_words_sha256="00")
    assert here not in (
        literals(bad_words_file="/here/bad.txt", bad_words_sha256="01"),
        literals(bad_words_sha256="00"),
    )
    kept = CorpusConfig.model_validate({"prose": {"bad_words_file": "/here/bad.txt", "bad_words_sha256": "00"}})
    assert CorpusConfig.model_validate(kept.model_dump(mode="json")) == kept


def test_every_rule_has_a_field_and_a_measure_on_each_of_its_routes():
    for route in ROUTES.values():
        section = getattr(PUBLISHED, route.section)
        for rule in route.rules:
            limit(section, rule.limit)
            assert rule.measure in (measures.LINE if rule.unit == "line" else route.measures)
            assert rule.measure in measures.MEANINGS
        assert active_route(route.name, section) is active_route(route.name, type(section)())
    assert all(rule.name and rule.why and rule.source for rule in registry().values())


@given(PIECES, st.sampled_from(WHERE))
@settings(max_examples=200, deadline=None)
def test_any_text_is_judged_with_finite_numbers_and_again_with_the_same(text, where):
    one, other = (judge(text, *where, PUBLISHED) for _ in range(2))
    assert one == other
    assert (one.values >= 0).all()
    assert (one.values < 1e9).all()
    assert (one.reason is None) == (one.number is None) == (one.limit is None)


@given(PIECES)
def test_what_is_outside_blocks_is_all_but_the_blocks(text):
    spans = list(blocks(text))
    assert all(a < b <= c for (a, b), (c, _) in itertools.pairwise([*spans, (len(text) + 1, 0)]))
    assert len(outside(text)) == len(text) - sum(end - begin - 1 for begin, end in spans)
    for begin, end in spans:
        assert text[begin:end].startswith(("```", "$$"))
        assert text[begin:end].endswith(("```", "$$"))
        assert end - begin >= 4


LENGTH = 200_000
HOSTILE = {
    "one line": "x" * LENGTH,
    "blank": " " * LENGTH,
    "lines": "\n" * LENGTH,
    "openers": "```x\n" * (LENGTH // 5),
    "dollars": "$" * LENGTH,
    "dollars and blanks": "$$ " * (LENGTH // 3),
    "formulas that never close": "\\( " * (LENGTH // 3),
    "other formulas that never close": "\\[x\n" * (LENGTH // 4),
    "prices": "a $5 b\n" * (LENGTH // 7),
    "brackets": "[1" * (LENGTH // 2),
    "citations": "[1]" * (LENGTH // 3),
    "policies": "use cookies\n" * (LENGTH // 12),
    "javascript": "javascript" * (LENGTH // 10),
    "hexadecimal": "0x1f," * (LENGTH // 5),
    "nearly hexadecimal": "1f " * 6 + "0x1f,0x1f 1g " * (LENGTH // 13),
    "base64": "ABCD" * (LENGTH // 4),
    "dots": "." * LENGTH,
    "quotes after a stop": ("." + '"' * 10) * (LENGTH // 11),
    "the same word": "word " * (LENGTH // 5),
    "two words": "ab cd " * (LENGTH // 6),
    "keys": "a:" * (LENGTH // 2),
    "comments": "#\n" * (LENGTH // 2),
    "backticks": "`x\n" * (LENGTH // 3),
    "braces": "{" * LENGTH,
    "Han": "的" * LENGTH,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_time_is_linear_in_a_hostile_text(text):
    for where in WHERE:
        judge(text[:1000], *where, PUBLISHED)
    assert_linear(lambda size: [judge(text[:size], *where, PUBLISHED) for where in WHERE], len(text) // 4)
