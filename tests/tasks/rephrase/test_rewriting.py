"""The stage with an engine whose answers the tests know: choice, retries, joins, fallbacks, kills and their records."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from model.engines.choice import open_engine
from model.engines.embedding import MiniLM
from model.engines.engine import Completion, EngineError, Prompt, PromptRefused
from tasks.artifact import Artifact, Step
from tasks.rephrase import choice, rewriting
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tasks.rephrase.document import REFUSED
from tasks.rephrase.prediction import known_rates
from tasks.rephrase.prompts import styles
from tests.golden import assert_golden
from tests.tasks.rephrase.conftest import CODE, row, sources, write_corpus
from tests.tasks.rephrase.pairs import PARAPHRASES

KNOWN = {" ".join(source.split()): paraphrase for source, paraphrase in PARAPHRASES}
CONFIG = RephraseConfig(
    documents=4,
    math_documents=2,
    characters=(100, 10_000),
    segments=SegmentsConfig(tokens=60, window=1024),
    rewritten=0.5,
)


class Scripted:
    """Answers with the paraphrase it knows of the part asked for; `wrong` may spoil an answer."""

    name, model = "scripted", "by-hand"

    def __init__(self, wrong=lambda prompt, text, number: text, slots: int = 1) -> None:
        self.wrong, self.slots = wrong, slots
        self.prompts: list[Prompt] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [self._one(prompt) for prompt in prompts]

    def _one(self, prompt: Prompt) -> Completion:
        with self._lock:
            number = len(self.prompts)
            self.prompts.append(prompt)
        text = KNOWN[" ".join(prompt.messages[-1].content.split())]
        return Completion(self.wrong(prompt, text, number), "stop", 10, 4, 5, 0.25)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, embedder: MiniLM, tmp_path: Path, corpus: Artifact):
    monkeypatch.setattr("tasks.rephrase.alignment.networks.Networks", lambda _: embedder)

    def go(engine: Scripted, config: RephraseConfig = CONFIG, root: str = "a", of: Artifact = corpus) -> Artifact:
        monkeypatch.setattr(rewriting, "open_engine", lambda *_: engine)
        return rewriting.build(Step("rewrites", config, str(tmp_path / root)), of, slots=engine.slots)

    return go


def table(artifact: Artifact, group: str) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(path) for path in artifact.files(group)])


def test_documents_are_rewritten_joined_and_traced(run, corpus: Artifact) -> None:
    done = run(Scripted())
    rewrites, segments = table(done, "rewrites"), table(done, "segments")
    originals = {document["id"]: document for document in sources()}
    assert rewrites.height == 6
    for rewrite in rewrites.iter_rows(named=True):
        source = originals[rewrite["source_id"]]
        expected = "\n\n".join(KNOWN[" ".join(part.split())] for part in source["text"].split("\n\n"))
        assert rewrite["text"] == expected
        assert rewrite["id"] == row(rewrite["text"])["id"]
        for name in ("source", "url", "domain", "language", "licence"):
            assert rewrite[name] == source[name]
        assert json.loads(rewrite["meta"]) == {"rewritten": 1.0, "source_meta": '{"page": 1}'}
        spans = [(part["start"], part["end"]) for part in rewrite["segments"]]
        assert [source["text"][start:end].strip() for start, end in spans] == source["text"].split("\n\n")
        assert {part["action"] for part in rewrite["segments"]} == {"rewritten"}
    assert segments.height == 12
    assert segments["accepted"].all()
    assert set(segments["reason"]) == {""}
    assert set(rewrites.filter(domain="math")["style"]) == {"learning_note"}
    statistics = done.statistics
    assert (statistics["documents"], statistics["segments"], statistics["accepted"]) == (6, 12, 12)
    assert statistics["acceptance_rate"] == 1.0
    assert (statistics["tokens_prompt"], statistics["tokens_generated"], statistics["tokens_cached"]) == (120, 60, 48)
    assert statistics["seconds_generating"] == 3.0
    math = statistics["by_domain"]["math"]
    assert [math[name] for name in ("segments", "accepted", "documents", "documents_tried")] == [4, 4, 2, 2]
    assert statistics["by_style_domain"]["learning_note"] == {"math": math}


def test_the_same_answers_give_the_bytes_that_this_version_gave(run) -> None:
    # what was written; the checks' scores round otherwise on other machines
    assert_golden("tasks.rephrase.rewriting", run(Scripted()), (14, "84d21261a1c9ba84"), "rewrites")


def test_each_segment_is_given_what_was_rewritten_before_it(run) -> None:
    engine = Scripted()
    run(engine)
    chats = [[message.content for message in prompt.messages] for prompt in engine.prompts]
    second = [chat for chat in chats if len(chat) == 4]
    assert len(second) == 6
    for _, before, said, _ in second:
        assert said == KNOWN[" ".join(before.split())]
    assert all(prompt.session for prompt in engine.prompts)


def test_a_refused_segment_is_tried_again_with_another_seed_and_a_stricter_prompt(run) -> None:
    engine = Scripted(
        lambda prompt, text, number: text if "other sentences" in prompt.messages[0].content else "I'm sorry."
    )
    done = run(engine)
    segments = table(done, "segments")
    assert segments.height == 24
    assert segments.filter(attempt=0)["accepted"].sum() == 0
    assert segments.filter(attempt=1)["accepted"].all()
    pairs = segments.group_by("source_id", "index").agg(pl.col("seed").n_unique(), pl.col("prompt_hash").n_unique())
    assert set(pairs["seed"]) == set(pairs["prompt_hash"]) == {2}
    assert done.statistics["acceptance_rate"] == 0.5
    assert done.statistics["rejected_by_check"] == {"talk": 12}
    assert done.statistics["fallbacks"] == 0


def never_second(prompt: Prompt, text: str, number: int) -> str:
    return "" if len(prompt.messages) > 2 else text


def test_a_segment_that_never_passes_keeps_its_original(run) -> None:
    done = run(Scripted(never_second))
    originals = {document["id"]: document["text"] for document in sources()}
    rewrites = table(done, "rewrites")
    assert rewrites.height == 6
    for rewrite in rewrites.iter_rows(named=True):
        first, second = originals[rewrite["source_id"]].split("\n\n")
        assert rewrite["text"] == f"{KNOWN[first]}\n\n{second}"
        assert [part["action"] for part in rewrite["segments"]] == ["rewritten", "original"]
    assert done.statistics["fallbacks"] == 6
    assert done.statistics["rejected_by_check"] == {"finished": 12}


def test_or_its_document_is_dropped(run) -> None:
    done = run(Scripted(never_second), CONFIG.model_copy(update={"fallback": "drop"}))
    assert table(done, "rewrites").height == 0
    assert table(done, "segments").height == 18
    assert (done.statistics["documents"], done.statistics["documents_tried"]) == (0, 6)


@pytest.mark.parametrize("fallback", ["original", "drop"])
def test_a_document_of_code_alone_is_left_alone(run, tmp_path: Path, fallback: str) -> None:
    engine = Scripted()
    config = CONFIG.model_copy(update={"fallback": fallback})
    done = run(engine, config, of=write_corpus(tmp_path / "code", [row(CODE)]))
    assert not engine.prompts
    assert table(done, "rewrites").height == 0
    assert (done.statistics["documents"], done.statistics["documents_tried"]) == (0, 1)


def test_a_document_that_cannot_reach_its_share_ends_early(run) -> None:
    engine = Scripted(lambda prompt, text, number: "")
    done = run(engine, CONFIG.model_copy(update={"rewritten": 1.0, "attempts": 1}))
    assert len(engine.prompts) == 6  # the first segment of each, not the second
    assert done.statistics["documents"] == 0


def test_when_nothing_is_accepted_or_chosen_the_artifact_is_whole_all_the_same(run, tmp_path: Path) -> None:
    engine = Scripted(lambda prompt, text, number: "")
    one = run(engine)
    other = run(engine, CONFIG.model_copy(update={"documents": 0, "math_documents": 0}), "b")
    empty = run(engine, CONFIG, "c", write_corpus(tmp_path / "empty", []))
    for done in (one, other, empty):
        rewrites = table(done, "rewrites")
        assert rewrites.height == 0
        assert {"id", "source_id", "style", "text", "source", "domain", "licence"} <= set(rewrites.columns)
        assert done.statistics["documents"] == done.statistics["acceptance_rate"] == 0
    assert table(other, "segments").height == table(empty, "segments").height == 0


def test_a_prompt_that_the_engine_refuses_is_one_refused_segment(run) -> None:
    def refuse(prompt: Prompt, text: str, number: int) -> str:
        if number == 0:
            raise PromptRefused("http://127.0.0.1:8000/v1 refused request 17")
        return text

    done = run(Scripted(refuse))
    refused = table(done, "segments").filter(reason="engine")
    assert refused["why"].to_list() == [REFUSED]
    assert done.statistics["documents"] == 6
    assert done.statistics["rejected_by_check"] == {"engine": 1}


def best_of(candidates: int, **changes) -> RephraseConfig:
    return CONFIG.model_copy(update={"best_of": candidates, **changes})


def of_its_seed(prompt: Prompt, text: str, number: int) -> str:
    """The paraphrase for a third of the seeds, with a stutter for another third, and nothing for the rest."""
    return (text, f"{text} {text.split('. ')[-1]}", "")[prompt.seed % 3]


def test_of_several_candidates_the_one_farthest_from_a_refusal_is_taken(run) -> None:
    engine = Scripted(of_its_seed)
    done = run(engine, best_of(6))
    rows = table(done, "segments")
    assert rows.height == len(engine.prompts) == len({prompt.seed for prompt in engine.prompts})
    first = rows.filter(attempt=0)
    assert first.group_by("source_id", "index").agg(pl.col("candidate").sort())["candidate"].to_list() == [
        list(range(6))
    ] * (first.height // 6)
    passed = rows.filter(pl.col("accepted") | (pl.col("reason") == "best_of"))
    assert passed.filter(reason="best_of").height > 4
    place = ["source_id", "index", "attempt"]
    best = passed.group_by(place).agg(pl.col("margin").max())
    taken = rows.filter("accepted").select(*place, "margin")
    assert taken.sort(place).equals(best.sort(place))
    assert rows.filter(pl.col("attempt") == 1).join(taken.filter(attempt=0), on=["source_id", "index"]).is_empty()
    found = done.statistics
    assert (found["segments"], found["accepted"], found["requests"]) == (rows.height, taken.height, rows.height)
    assert found["accepted_first"] == taken.filter(attempt=0).height
    assert found["rejected_by_check"]["best_of"] == passed.height - taken.height
    assert found["asked"] == found["accepted"] + found["failed"] == 12


def test_more_candidates_ask_only_for_what_is_new_and_a_kill_changes_nothing(run, tmp_path: Path, corpus) -> None:
    def once(engine: Scripted, candidates: int, root: str) -> Artifact:
        step = Step("rewrites", best_of(candidates), str(tmp_path / root))
        return rewriting.build(step, corpus, answers=tmp_path / f"answers-{root}")

    one, three, whole = Scripted(), Scripted(), Scripted()
    run(one)  # sets the engine aside that the next runs replace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "open_engine", lambda *_: one)
        once(one, 1, "kept")
        assert len(one.prompts) == 24  # 12 of `run`, which keeps its own
        patch.setattr(rewriting, "open_engine", lambda *_: three)
        more = once(three, 3, "kept")
        assert len(three.prompts) == 2 * 12
        patch.setattr(rewriting, "open_engine", lambda *_: whole)
        assert once(whole, 3, "whole").manifest["content"] == more.manifest["content"]
    assert more.statistics["requests_reused"] == 12

    def die(prompt: Prompt, text: str, number: int) -> str:
        if number >= 7:
            raise EngineError("the server is gone")
        return text

    with pytest.raises(EngineError, match="the server is gone"):
        run(Scripted(die), best_of(3), "killed")
    mended = Scripted()
    assert run(mended, best_of(3), "killed").manifest["content"] == more.manifest["content"]
    assert len(mended.prompts) == 36 - 7


def test_a_prompt_that_is_refused_is_not_asked_with_other_seeds(run) -> None:
    def refuse(prompt: Prompt, text: str, number: int) -> str:
        raise PromptRefused("longer than the context")

    engine = Scripted(refuse)
    rows = table(run(engine, best_of(4, attempts=1)), "segments")
    assert len(engine.prompts) == rows.height == 12
    assert set(rows["candidate"]) == {0}


def test_an_endpoint_that_counts_no_tokens_measures_none(
    monkeypatch: pytest.MonkeyPatch, embedder: MiniLM, tmp_path: Path, corpus: Artifact
) -> None:
    class Silent(Scripted):
        def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
            return [replace(answer, estimated=True) for answer in super().complete(prompts)]

    monkeypatch.setattr("tasks.rephrase.alignment.networks.Networks", lambda _: embedder)
    monkeypatch.setattr(rewriting, "open_engine", lambda *_: Silent())
    step = Step("rewrites", CONFIG, str(tmp_path / "a"))
    rewriting.build(step, corpus, slots=1, answers=tmp_path / "answers")
    rates = known_rates(tmp_path / "answers", "scripted", "by-hand")
    assert rates.measured
    assert (rates.prompt, rates.answer) == (1.0, 1.0)


@pytest.mark.parametrize("slots", [1, 4])
def test_an_engine_that_dies_leaves_what_was_answered_and_the_rest_makes_the_same_bytes(run, slots: int) -> None:
    whole = run(Scripted(slots=slots), root="whole")

    def die(prompt: Prompt, text: str, number: int) -> str:
        if number >= 7:
            raise EngineError("the server is gone")
        return text

    broken, mended = Scripted(die, slots=slots), Scripted(slots=slots)
    with pytest.raises(EngineError, match="the server is gone"):
        run(broken)
    done = run(mended)
    assert done.manifest["content"] == whole.manifest["content"]
    assert len(mended.prompts) == 12 - 7
    assert not {prompt.key("e", "m") for prompt in mended.prompts} & {p.key("e", "m") for p in broken.prompts[:7]}
    timed = {"seconds_checking", "seconds_wall", "comparison"}
    timeless = [{name: value for name, value in run.statistics.items() if name not in timed} for run in (done, whole)]
    assert timeless[0] == timeless[1]
    assert not list(Path(done.uri).rglob("answers*"))


def test_bytes_do_not_depend_on_slots_order_or_how_the_corpus_is_cut(run, tmp_path: Path) -> None:
    one, four = run(Scripted(slots=1), root="one"), run(Scripted(slots=4), root="four")
    assert one.manifest["content"] == four.manifest["content"]
    other = run(Scripted(), root="other", of=write_corpus(tmp_path / "other", sources()[::-1], parts=3))
    columns = ["id", "source_id", "style", "text"]
    assert table(other, "rewrites").select(columns).sort("id").equals(table(one, "rewrites").select(columns).sort("id"))


def test_documents_and_styles_are_chosen_by_seed_and_domain(corpus: Artifact) -> None:
    def chosen(**changes) -> set[str]:
        config = CONFIG.model_copy(update=changes)
        return {identity for batch in choice.Chosen(config, corpus) for identity in batch.ids}

    domains = {document["id"]: (document["domain"], document["language"]) for document in sources()}
    some = chosen(documents=2, math_documents=1)
    assert sorted(domains[identity][0] for identity in some) == ["knowledge", "knowledge", "math"]
    assert {domains[identity][1] for identity in chosen(documents=None)} == {"en"}
    assert some <= chosen(documents=3, math_documents=2)
    assert len({frozenset(chosen(documents=2, math_documents=0, seed=seed)) for seed in range(12)}) > 2
    assert chosen(documents=None, math_documents=None, languages=("zh",)) == {sources()[6]["id"]}
    assert chosen(documents=None, math_documents=0, characters=(1, 2)) == set()

    def document(identity: str) -> dict[str, str]:
        return {"id": identity, "domain": "knowledge", "language": "en"}

    drawn = {tuple(job.name for job in choice.jobs(CONFIG, document(str(number)))) for number in range(60)}
    assert len(drawn) >= 8
    two = choice.jobs(CONFIG.model_copy(update={"rewrites": 2}), document("x"))
    assert len({job.name for job in two}) == 2
    assert two[:1] == choice.jobs(CONFIG, document("x"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"engine": "endpoint"}, "engine_url` is not set"),
        ({"model": "no-such-distribution"}, "pip install --no-deps no-such-distribution"),
    ],
)
def test_an_engine_that_cannot_be_had_is_one_sentence(change: dict, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        open_engine(CONFIG.model_copy(update=change), None, 1, "rephrase", "engine_url")
    with pytest.raises(EngineError, match="set `rephrase"):
        open_engine(CONFIG, "http://localhost:1/v1", 1, "rephrase", "engine_url")


def test_styles_that_do_not_exist_are_refused(run) -> None:
    with pytest.raises(ValueError, match=r"pirate.*academic"):
        run(Scripted(), CONFIG.model_copy(update={"styles": ("pirate",)}))
    with pytest.raises(ValueError, match="a style twice"):
        run(Scripted(), CONFIG.model_copy(update={"styles": ("academic", "academic"), "rewrites": 2}))
    with pytest.raises(ValueError, match="more rewrites"):
        run(Scripted(), CONFIG.model_copy(update={"styles": ("academic",), "rewrites": 2}))
    drawn = len([style for style in styles().values() if "knowledge" in style.domains and not style.named])
    choice.drawable(CONFIG.model_copy(update={"rewrites": drawn - 1}))  # a translation is none of them
    with pytest.raises(ValueError, match="more rewrites"):
        choice.drawable(CONFIG.model_copy(update={"rewrites": drawn}))
