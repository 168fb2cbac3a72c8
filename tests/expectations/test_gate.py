from __future__ import annotations

import re

import polars as pl
import pytest
from lxml import html

from expectations.config import CorpusGate, TokensGate
from expectations.docs import index_page, offline
from expectations.gate import GateFailed, judge
from expectations.rules import Rule, Table, say
from expectations.suite import validate
from tasks.artifact import NotReady, Step
from tasks.code import closure
from tasks.gate import verdict
from tests.expectations.data import CORPUS_GATE, TOKENS_GATE, corpus, tokens

REMOTE = re.compile(
    r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//|@import|url\(\s*["']?\s*(?:https?:)?//""", re.IGNORECASE
)


def gate_of(subject: Step, gate=CORPUS_GATE) -> Step:
    return Step(f"{subject.name}-gate", gate, subject.root, (subject,))


def without_math(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("domain") != "math")


def test_failed_gate_leaves_pages_to_read_and_says_where(tmp_path):
    subject = corpus(tmp_path, without_math)
    step = gate_of(subject)
    with pytest.raises(GateFailed) as caught:
        judge(step, subject)
    message = str(caught.value)
    assert message.startswith("corpus-gate stopped the run: ")
    for words in ("Every domain that the recipe names is there", "observed math 0 documents", "What to do:"):
        assert words in message
    page = caught.value.page
    assert page in message
    assert "math" in (tmp_path / page).read_text(encoding="utf-8")
    assert step.artifact() is None
    with pytest.raises(GateFailed):  # the same data again: the same refusal, never a silent pass
        judge(step, subject)


def test_data_docs_open_without_a_network(tmp_path):
    good = corpus(tmp_path / "good")
    artifact = judge(gate_of(good), good)
    bad = corpus(tmp_path / "bad", without_math)
    with pytest.raises(GateFailed) as caught:
        judge(gate_of(bad), bad)
    pages = [*artifact.files("docs"), *(tmp_path / "bad").glob("corpus-gate/*/docs/*.html")]
    assert len(pages) == 12
    assert caught.value.page in {str(page) for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not REMOTE.search(text), page
        assert "<script" not in text
        assert "<img" not in text
        for target in re.findall(r'href="([^"#]+)"', text):
            assert (page.parent / target).exists(), f"{page} links to {target}"


def test_pages_show_what_great_expectations_found(tmp_path):
    bad = corpus(tmp_path, without_math)
    with pytest.raises(GateFailed):
        judge(gate_of(bad), bad)
    text = next(tmp_path.glob("corpus-gate/*/docs/domains.html")).read_text(encoding="utf-8")
    assert "Unsuccessful Expectations" in text
    assert "unexpected values found" in text


def test_same_data_same_bytes(tmp_path):
    first, second = (tokens(tmp_path / name) for name in ("a", "b"))
    one, other = judge(gate_of(first, TOKENS_GATE), first), judge(gate_of(second, TOKENS_GATE), second)
    assert one.manifest["content"] == other.manifest["content"]
    assert one.statistics == other.statistics


def test_published_gate_is_not_judged_again(tmp_path, monkeypatch):
    subject = corpus(tmp_path)
    artifact = judge(gate_of(subject), subject)
    monkeypatch.setattr("expectations.gate.validate", lambda *_, **__: pytest.fail("judged again"))
    assert judge(gate_of(subject), subject) == artifact


def test_pages_of_a_failure_go_once_it_is_put_right(tmp_path):
    subject = corpus(tmp_path)
    step = gate_of(subject)
    stale = tmp_path / "corpus-gate" / step.fingerprint / "docs"
    stale.mkdir(parents=True)
    (stale / "index.html").write_text("failed")
    judge(step, subject)
    assert not stale.exists()


def test_nothing_to_judge_yet(tmp_path):
    subject = Step("corpus", CORPUS_GATE, str(tmp_path))
    with pytest.raises(NotReady, match="openk2 status"):
        judge(gate_of(subject), subject)


def test_verdict_reads_as_markdown(tmp_path):
    bad = corpus(tmp_path, without_math)
    with pytest.raises(GateFailed) as caught:
        judge(gate_of(bad), bad)
    text = verdict("corpus-gate", caught.value.statistics, caught.value.page)
    failed = caught.value.statistics["failed"]
    assert text.startswith(f"# corpus-gate: **{failed} of {caught.value.statistics['evaluated']} expectations failed**")
    assert text.count("\n- ✗ ") == failed


def test_upside_down_band_is_refused():
    with pytest.raises(ValueError, match="rejected is a band"):
        CorpusGate(rejected=(0.9, 0.1))
    with pytest.raises(ValueError, match=r"bytes_per_token\.web"):
        TokensGate(bytes_per_token={"web": (4.0, 2.0)})


def test_rows_of_one_value_are_named_where_they_are_few():
    rule = Rule("s", "x", "w", "r", least=1, unit="documents")
    few = Table("t", "title", "k", pl.DataFrame({"k": ["web", "math"], "x": [0, 0]}), (rule,))
    assert rule.observed(few) == "0 documents in each of 2 (web, math)"
    many = Table("t", "title", "k", pl.DataFrame({"k": [f"k{n}" for n in range(7)], "x": [0] * 7}), (rule,))
    assert rule.observed(many) == "0 documents in each of 7"


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><a href="javascript:alert(1)">',
    "\x1b[31m\x00",
    "</table><style>*{}</style>",
    "$v ${k} %s {k}",
)


def test_names_from_data_are_text_on_the_pages():
    frame = pl.DataFrame({"k": HOSTILE, "v": [0, 1, 2, 0, 0], "of": HOSTILE})
    rules = (
        Rule("Enough", "v", "why", "what", least=1),
        Rule("Known", "of", "why", "what", among=HOSTILE[1:]),
    )
    table = Table("t", "t", "k", frame, rules)
    judgements, pages = validate([table], "3482019115230103")  # a fingerprint may be all digits, and is no date
    assert [judgement.rows for judgement in judgements] == [
        tuple(sorted((HOSTILE[0], *HOSTILE[3:]))),
        (HOSTILE[0],),
    ]
    for page in (offline(pages["t"], table), index_page("g", "s", judgements, [table], {})):
        elements = list(html.document_fromstring(page).iter())
        assert not [name for one in elements for name in one.attrib if name.startswith("on") or name == "src"]
        assert not [one for one in elements if "javascript" in str(one.get("href"))]
        assert {one.tag for one in elements}.isdisjoint({"img", "script"})
        assert "\x1b" not in page
        assert page.count("<style") == 1


def test_a_value_beside_its_threshold_is_told_apart_from_it():
    table = Table("t", "t", "k", pl.DataFrame({"k": ["a", "b"], "v": [0.19999, 0.2], "f": [0.2, 0.2]}), ())
    assert Rule("S", "v", "w", "r", least=0.2, unit="share").observed(table) == "a 19.999 %, b 20 %"
    assert Rule("S", "v", "w", "r", floor="f", unit="share").observed(table) == "a 19.999 %, b 20 %"


def test_metric_without_a_value_is_an_error_not_a_pass():
    rule = Rule("s", "x", "w", "r", least=0)
    with pytest.raises(ValueError, match="empty values"):
        Table(
            "t", "title", "k", pl.DataFrame({"k": ["a"], "x": [None]}, schema={"k": pl.String, "x": pl.Int64}), (rule,)
        )
    with pytest.raises(ValueError, match="no threshold"):
        Rule("s", "x", "w", "r").expectation()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.125, "share", "12.5 %"),
        (0.0, "share", "0 %"),
        (3_100_000, "bytes", "3.1 MB"),
        (999_999, "bytes", "1.0 MB"),
        (1204, "tokens", "1,204 tokens"),
        (2**53 + 1, "tokens", "9,007,199,254,740,993 tokens"),
    ],
)
def test_numbers_read_as_people_write_them(value, unit, text):
    assert say(value, unit) == text


def test_a_gate_knows_nothing_of_the_rooms_above_it():
    reader = {"training", "training.shards", "training.cache", "training.ranges"}
    known = set(closure("expectations.gate"))
    # Of training only what reads token shards: what passes the gate is what is trained on, byte for byte.
    assert {name for name in known if name.startswith("training")} == reader
    # `tasks` is named for the type checker alone.
    assert {name.split(".")[0] for name in known - reader - {"tasks"}} == {"expectations", "model"}
