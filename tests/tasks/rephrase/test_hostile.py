"""The whole stage against endpoints and documents that mean no good: nothing is lost, nothing hangs, all is told."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from benchmarks.endpoint import Behaviour, Endpoint, serving
from model.engines.engine import EngineError, RequestLimits
from tasks.artifact import Artifact, Step
from tasks.rephrase import rewriting
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tasks.rephrase.document import REFUSED
from tests.tasks.rephrase.conftest import Remembering, row, write_corpus
from tests.tasks.rephrase.pairs import PARAPHRASES

KNOWN = {" ".join(source.split()): rewrite for source, rewrite in PARAPHRASES}
CONFIG = RephraseConfig(
    engine="endpoint",
    model="simulated",
    documents=None,
    math_documents=None,
    characters=(1, 10_000_000),
    prompt="full",
    segments=SegmentsConfig(tokens=60, window=256),
    attempts=2,
)
PASSING = ("die", "garbage", "html", "truncated", "empty", "error_in_200", "no_choices", "wrong_type", "error_500")


CHINESE = (
    "水星是太阳系中最小的行星，没有卫星。它每八十八天绕太阳一周，白天的表面温度可以超过四百摄氏度，夜里则非常寒冷。"
    "早晨的街道上行人很少，只有卖豆浆的老人推着车慢慢走过。图书馆九点开门，学生们已经在台阶上排起了长队。"
    "春天来得很晚，河边的柳树到四月才发芽，孩子们却早已脱下棉衣，在草地上放起风筝。"
)


def documents(count: int = 4) -> list[dict[str, str]]:
    texts = [source for source, _ in PARAPHRASES[:7]]
    return [row(f"{texts[at % 7]}\n\n{texts[(at + 1 + at // 7) % 7]}") for at in range(count)]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, once: Remembering, tmp_path: Path):
    """`go` runs the stage against an endpoint of that behaviour: in the same folder for the same rows, so that a second
    run goes on where the first one stopped."""
    monkeypatch.setattr("tasks.rephrase.alignment.networks.Networks", lambda _: once)

    def go(
        behaviour: Behaviour,
        rows: list[dict[str, str]],
        config: RephraseConfig = CONFIG,
        root: str = "out",
        endpoints: list[Endpoint] | None = None,
        **limits: float,
    ) -> Artifact:
        patient = {"answer_seconds": 20.0, "backoff_seconds": 0.01, "patience_seconds": 60.0, "attempts": 60}
        with serving(behaviour) as endpoint:
            if endpoints is not None:
                endpoints.append(endpoint)
            corpus = write_corpus(tmp_path / "corpus", rows)
            return rewriting.build(
                Step("rewrites", config, str(tmp_path / root)),
                corpus,
                endpoint.url,
                slots=8,
                limits=RequestLimits.model_validate(patient | limits),
            )

    return go


def tables(done: Artifact) -> tuple[pl.DataFrame, pl.DataFrame]:
    rewrites, segments = (
        pl.concat([pl.read_parquet(path) for path in done.files(group)]) for group in ("rewrites", "segments")
    )
    return rewrites, segments


def accounted(done: Artifact, rows: list[dict[str, str]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Every document is accepted or dropped, and every refused attempt says why."""
    rewrites, segments = tables(done)
    statistics = done.statistics
    assert statistics["documents_tried"] == len(rows)
    assert statistics["documents"] == rewrites.height == rewrites["source_id"].n_unique()
    assert set(rewrites["source_id"]) <= {document["id"] for document in rows}
    tried = {document["id"] for document in rows}
    assert set(segments["source_id"]) == tried
    refused = segments.filter(~pl.col("accepted"))
    assert (refused["reason"] != "").all()
    assert (refused["why"] != "").all()
    assert sum(statistics["rejected_by_check"].values()) == refused.height
    assert statistics["segments"] == segments.height
    return rewrites, segments


def test_what_passes_leaves_no_trace_in_the_data(run) -> None:
    rows = documents()
    whole = run(Behaviour(pairs=KNOWN), rows)
    rewrites, segments = accounted(whole, rows)
    assert rewrites.height
    assert segments["accepted"].any()
    for way in (*PASSING, "error_503", "error_429"):
        done = run(Behaviour(pairs=KNOWN, fail={way: 0.4}), rows, root=way)
        assert done.manifest["content"] == whole.manifest["content"], way


@pytest.mark.parametrize("way", ["hang", "drip", "endless_headers"])
def test_what_hangs_is_cut_off_and_asked_again(run, way: str) -> None:
    rows = documents(2)
    endpoints: list[Endpoint] = []
    done = run(Behaviour(pairs=KNOWN, fail={way: 0.5}), rows, endpoints=endpoints, answer_seconds=0.5)
    accounted(done, rows)
    assert endpoints[0].counts[way]


@pytest.mark.parametrize(
    ("way", "reason"),
    [("null", "finished"), ("cut", "finished"), ("refusal", "talk"), ("loop", "finished"), ("filtered", "finished")],
)
def test_answers_that_are_none_are_refused_and_their_documents_dropped(run, way: str, reason: str) -> None:
    rows = documents()
    rewrites, segments = accounted(run(Behaviour(pairs=KNOWN, fail={way: 1.0}), rows), rows)
    assert rewrites.height == 0
    assert reason in set(segments["reason"])
    assert not segments["accepted"].any()
    retried = segments.group_by("source_id", "index").agg(pl.col("attempt").max())
    assert (retried["attempt"] == 1).all()


def test_an_answer_in_another_language_or_a_copy_is_no_rewrite(run) -> None:
    rows = documents()
    wrong = {
        "language": dict.fromkeys(KNOWN, CHINESE),
        "copied": {source: source for source in KNOWN},
    }
    for reason, pairs in wrong.items():
        _, segments = accounted(run(Behaviour(pairs=pairs), rows, root=reason), rows)
        known = [part for part in segments.iter_rows(named=True) if " ".join(part["source_text"].split()) in KNOWN]
        assert known
        assert reason in {part["reason"] for part in known} <= {reason, "length"}


def test_a_storm_of_429_is_waited_out_with_as_many_requests_as_the_endpoint_bears(run) -> None:
    rows = documents(8)
    endpoints: list[Endpoint] = []
    behaviour = Behaviour(pairs=KNOWN, most=2, retry_after=0.02, first=0.005)
    rewrites, segments = accounted(run(behaviour, rows, endpoints=endpoints), rows)
    assert endpoints[0].counts["error_429"]
    assert "engine" not in set(segments["reason"])
    assert rewrites.height


def test_a_prompt_that_the_server_cannot_read_is_a_refused_segment(run) -> None:
    rows = documents(8)
    _, segments = accounted(run(Behaviour(pairs=KNOWN, fail={"error_400": 0.3}), rows), rows)
    refused = segments.filter(reason="engine")
    assert refused.height
    assert set(refused["why"]) == {REFUSED}
    assert segments["accepted"].any()


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("error_500", "answered nothing.*500.*same command again; finished requests are kept"),
        ("html", "text/html.*usually ends in /v1"),
        ("garbage", "JSON"),
        ("hang", "no whole answer within"),
        ("error_401", "OPENK2_ENGINE_KEY"),
        ("error_404", "404"),
        ("error_400", "answered none of"),
    ],
)
def test_an_endpoint_that_never_answers_ends_the_stage_in_one_sentence_and_a_sound_one_goes_on(
    run, way: str, sentence: str
) -> None:
    rows = documents(11)
    with pytest.raises(EngineError, match=sentence) as raised:
        # a busy machine takes long for an answer too, which then is not the last that went wrong
        run(Behaviour(fail={way: 1.0}), rows, answer_seconds=1.0 if way == "hang" else 4.0, patience_seconds=0.2)
    assert "\n" not in str(raised.value)
    accounted(run(Behaviour(pairs=KNOWN), rows), rows)


def test_a_server_that_dies_in_the_middle_is_not_asked_again_for_what_it_answered(run) -> None:
    rows = documents(8)
    whole = run(Behaviour(pairs=KNOWN), rows, root="whole")
    endpoints: list[Endpoint] = []
    with pytest.raises(EngineError, match="same command again"):
        run(Behaviour(pairs=KNOWN, dies_after=7), rows, endpoints=endpoints, answer_seconds=1.0, patience_seconds=0.2)
    done = run(Behaviour(pairs=KNOWN), rows, endpoints=endpoints)
    accounted(done, rows)
    for one, other in zip(tables(done), tables(whole), strict=True):
        assert one.equals(other)
    assert done.manifest["content"] == whole.manifest["content"]
    first, second = endpoints
    assert first.answered
    assert not first.answered & set(second.asked)


def test_a_document_longer_than_any_window_goes_window_by_window(run) -> None:
    texts = [source for source, _ in PARAPHRASES[:7]]
    long = row("\n\n".join(texts[at % 7] for at in range(28)))
    rewrites, segments = accounted(run(Behaviour(pairs=KNOWN), [long]), [long])
    assert segments["index"].n_unique() > 20
    assert rewrites.height == 1
    spans = rewrites["segments"][0]
    assert spans[0]["start"] == 0
    assert spans[-1]["end"] == len(long["text"])
    assert all(one["end"] == other["start"] for one, other in pairwise(spans))


@pytest.mark.parametrize("line", ["x" * 50_000, "word " * 10_000, "字" * 50_000, "$" + "a+" * 25_000 + "b$"])
def test_one_line_of_50_000_characters_is_cut_and_accounted_for(run, line: str) -> None:
    rows = [row(line), *documents(2)]
    config = CONFIG.model_copy(update={"segments": SegmentsConfig(tokens=1024, window=4096), "attempts": 1})
    rewrites, segments = tables(run(Behaviour(pairs=KNOWN), rows, config))
    assert set(segments["source_id"]) | set(rewrites["source_id"]) >= {document["id"] for document in rows[1:]}


def test_no_document_at_all_is_a_whole_artifact(run) -> None:
    done = run(Behaviour(), [])
    rewrites, segments = tables(done)
    assert rewrites.height == segments.height == 0
    assert done.statistics["documents_tried"] == 0
