"""Tallies count what was judged, and adding them up in any order gives the same."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus.config import CorpusConfig
from tasks.corpus.quality.judge import judge
from tasks.corpus.quality.tally import BINS, Tally, TallyError, edges, merged
from tests.tasks.corpus.quality.texts import PROGRAM, PUBLISHED, WHOLE_LINES, chinese, prose

WHOLE = CorpusConfig.model_validate({"prose": {"lines": WHOLE_LINES}})
TEXTS = [prose(sentences, seed) for seed, sentences in enumerate((1, 3, 9, 30, 40))] + ["{x}", "", "a line\n" * 40]


def tallied(texts: list[str], config: CorpusConfig = WHOLE) -> Tally:
    tally = Tally()
    for text in texts:
        tally.add(judge(text, "web", "en", False, config))
    return tally


def test_a_tally_counts_every_rule_over_every_document():
    record = tallied(TEXTS).record()
    judgements = [judge(text, "web", "en", False, WHOLE) for text in TEXTS]
    for item in record.values():
        refusing = [(j.reason, *j.others) if j.reason else () for j in judgements]
        assert item["judged"] == len(TEXTS)
        assert item["failed"] == sum(item["rule"] in names for names in refusing)
        assert item["only"] == sum(names == (item["rule"],) for names in refusing)
        assert sum(item["counts"]) == item["judged"]
        assert len(item["counts"]) == len(item["edges"]) == BINS + 1
    words = record["prose/gopher_words_min"]
    assert (words["limit"], words["direction"], words["unit"]) == (50, "below", "document")
    assert sum(words["counts"][:12]) == words["failed"] == 4
    assert json.loads(json.dumps(record)) == record


def test_lines_are_counted_one_by_one():
    text = "Menu\nA sentence that is long enough stands here.\nAnother menu that does not end"
    item = tallied([text], PUBLISHED).record()["prose/c4_line_terminal"]
    assert (item["unit"], item["judged"], item["failed"], item["only"]) == ("line", 3, 2, 1)


@given(st.permutations(TEXTS), st.integers(0, len(TEXTS)))
@settings(max_examples=25, deadline=None)
def test_tallies_add_up_whatever_the_order_and_the_parts(texts, cut):
    whole = tallied(TEXTS).record()
    first, second = tallied(texts[:cut]), tallied(texts[cut:])
    assert merged([second.record(), first.record()]) == whole
    first.merge(second.record())
    assert first.record() == whole
    assert merged([whole]) == whole


def test_the_record_of_another_limit_is_not_added():
    other = CorpusConfig.model_validate({"prose": {"words_min": 40, "lines": WHOLE_LINES}})
    with pytest.raises(TallyError, match=r"prose/gopher_words_min.*50.*40"):
        tallied(TEXTS).merge(tallied(TEXTS, other).record())
    mixed = tallied(TEXTS)
    mixed.add(judge(prose(), "web", "en", False, other))
    with pytest.raises(TallyError, match="two configurations"):
        mixed.record()


def test_routes_keep_apart_and_many_documents_pass_through():
    tally = Tally()
    pick = random.Random(1)
    for number in range(600):
        tally.add(judge(prose(pick.randint(1, 12), number), "web", "en", False, WHOLE))
    tally.add(judge(chinese(), "web", "zh", False, WHOLE))
    tally.add(judge(PROGRAM, "code", "en", True, WHOLE))
    record = tally.record()
    assert record["prose/gopher_words_min"]["judged"] == 600
    assert record["chinese/chinese_words_min"]["judged"] == 1
    assert record["code/code_lines_min"]["counts"][BINS] == 1
    assert list(record) == sorted(record)


def test_edges_follow_from_the_limit():
    assert edges(0.3)[0] == 0
    assert np.allclose(edges(0.3)[12], 0.3)
    assert edges(0.3)[-1] == 0.6
    assert edges(0) == list(range(25))
