"""Lineage over real artifacts of every stage that has a part in it: each answer is held against the bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from flows.graph import Graph
from flows.lineage import LineageError, render, trace_in
from model.config import Config
from tasks.artifact import NotReady, Step
from tasks.tokens import shards, tokenizer
from tasks.tokens.config import TokenizerConfig, TokensConfig
from training.cache import Cache, File
from training.loader import Loader
from training.schedule import Rate, Stage, StagePlan
from training.shards import TokenShards

CONSTANT = Rate(start=1e-3, end=1e-3)
STAGES = StagePlan(
    stages=(
        Stage(name="one", updates=12, sequence_length=32, batch=4, rate=CONSTANT, mix={"knowledge": 0.5, "math": 0.5}),
        Stage(name="two", updates=8, sequence_length=32, batch=6, mix={"knowledge": 1.0}),
        Stage(name="long", updates=5, sequence_length=96, batch=2),
        Stage(name="packed", updates=5, sequence_length=96, batch=3, samples="best_fit"),
        Stage(name="again", updates=3, sequence_length=32, batch=5),
    )
)


class Named(Config):
    """A literal that tells steps apart."""

    name: str


class Pretraining(Config):
    """What lineage reads of a pretraining configuration."""

    stages: StagePlan = STAGES
    seed: int = 3


def record(name: str, text: str, domain: str) -> dict[str, object]:
    facts = {"source": f"book-{domain}", "url": f"made:{name}", "licence": "CC0-1.0", "language": "en", "meta": "{}"}
    return {"id": name, "text": text, "domain": domain} | facts


def write(rows: list[dict[str, object]]):
    return lambda path: pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root = str(tmp_path_factory.mktemp("data"))
    documents = [
        record(f"{kind}{n:02d}a", f"Document {n} of {kind}: " + f"{n * 37} is a number. " * (5 + n), domain)
        for kind, domain in (("aa", "knowledge"), ("bb", "math"))
        for n in range(20)
    ]
    corpus = Step("corpus", Named(name="corpus"), root)
    for part in range(4):
        corpus.put(f"documents/{part}", ".parquet", write(documents[part::4]), 10)
    dropped = {"id": "dd01", "source": "book-web", "url": "made:dd01", "stage": "quality", "reason": "too short"}
    corpus.put("rejected/0", ".parquet", write([dropped | {"value": "12", "text_head": "Hm."}]), 1)
    held = {"knowledge": {"documents": 20, "bytes": 10_000}, "math": {"documents": 20, "bytes": 10_000}}
    corpus.publish({"by_domain": held})
    rewrites = Step("rewrites", Named(name="rewrites"), root, (corpus,))
    rewrite = record("cc05", f"In other words, {documents[5]['text']}", "knowledge") | {
        "source_id": "aa05a",
        "style": "plain",
    }
    rewrites.put("rewrites/0", ".parquet", write([rewrite]), 1)
    segment = {"source_id": "aa05a", "style": "plain", "prompt_hash": "5f5f", "engine": "llama.cpp", "model": "small"}
    attempts = [
        segment | {"index": 0, "attempt": 1, "seed": 12, "accepted": True, "reason": "", "similarity": 0.93},
        segment | {"index": 0, "attempt": 0, "seed": 11, "accepted": False, "reason": "numbers", "similarity": 0.9},
        segment
        | {"index": 0, "attempt": 0, "seed": 11, "accepted": True, "style": "exam", "reason": "", "similarity": 1.0},
    ]
    rewrites.put("segments/0", ".parquet", write([segment | attempt for attempt in attempts]), 3)
    rewrites.publish({})
    learned = Step("tokenizer", TokenizerConfig(vocabulary=400), root, (corpus,))
    tokenizer.build(learned, corpus.require())
    tokens = Step(
        "tokens", TokensConfig(heldout_fraction=0.2, batch_bytes=1, shard_bytes=1024), root, (corpus, rewrites, learned)
    )
    shards.build(tokens, corpus.require(), rewrites.require(), learned.require())
    base = Step("base", Pretraining(), root, (tokens, learned))
    return Graph([corpus, rewrites, learned, tokens, base])


def loaders(plan: Graph) -> list[Loader]:
    uri = plan["tokens"].require().uri
    return [
        Loader(uri, "train", STAGES.mixes(0), 3, 32),
        Loader(uri, "train", STAGES.mixes(1), 3, 96),
        Loader(uri, "train", STAGES.mixes(2), 3, 96, "best_fit"),
    ]


def readers(streams: list[Loader]) -> dict[str, set[int]]:
    """Document -> the updates whose batches hold any of it."""
    found: dict[str, set[int]] = {}
    for number in range(1, STAGES.updates + 1):
        update = STAGES.update(number)
        for sample in range(update.first_sample, update.first_sample + update.stage.batch):
            for span in streams[update.stream].describe(sample):
                found.setdefault(span.document["id"], set()).add(number)
    return found


def shown(found) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(found))
    return console.export_text()


def test_a_documents_updates_are_those_whose_batches_hold_it(plan: Graph) -> None:
    reading = readers(loaders(plan))
    for name in [f"aa{n:02d}a" for n in range(20)] + [f"bb{n:02d}a" for n in range(20)] + ["cc05"]:
        found = trace_in(plan, name)
        assert found.readings is not None
        assert found.readings.updates == sorted(reading.get(name, set()))
        assert not found.readings.trained
        assert found.span is not None
        if found.span["split"] == "heldout":
            assert found.readings.updates == []
            assert "held out" in shown(found)


def test_every_token_of_an_update_leads_to_its_document(plan: Graph) -> None:
    streams = loaders(plan)
    for number in (1, 13, 25, 30, 33):
        update = STAGES.update(number)
        length = update.stage.sequence_length
        batch = streams[update.stream].batch(update.first_sample, update.stage.batch)
        bpe = tokenizer.load(plan["tokenizer"].require().file("tokenizer"))
        padding = batch.document_ids_BS.flatten() < 0
        for position in range(0, update.stage.batch * length, 29):
            if padding[position]:
                with pytest.raises(LineageError, match="is padding"):
                    trace_in(plan, f"base:{number}:{position}")
                continue
            found = trace_in(plan, f"base:{number}:{position}")
            token = found.token
            assert token is not None
            assert (token.sample, token.position) == (update.first_sample + position // length, position % length)
            ids = batch.tokens_BS[position // length, position % length].tolist()
            assert token.text == tokenizer.decode_bytes(bpe, [ids]).decode(errors="replace")
            assert found.span["start"] <= token.offset < found.span["end"]
            assert found.span["shard"] == token.shard
            text = (found.rewrite or found.document)["text"]
            around = (token.before + token.text + token.after).replace("[EOS]", "")
            assert around.strip("\ufffd") in text
            assert number in found.readings.updates


def test_what_a_rollback_left_out_was_read_by_no_update(plan: Graph) -> None:
    """A finished run that went back from update 5 to 3: from update 4 on it read eight samples further."""
    base = Step("base", Pretraining(seed=4), plan["base"].root, (plan["tokens"], plan["tokenizer"]))
    window = {"update": 5, "to": 3, "stream": 0, "first_sample": 12, "end_sample": 20, "reason": "loss"}
    base.publish({"rollbacks": [window], "skipped": [{}, {}]})
    rolled = Graph([*plan.steps, base])
    moved = [(0, {"knowledge": 0.5, "math": 0.5}), (56, {"knowledge": 1.0})]
    loader = Loader(plan["tokens"].require().uri, "train", moved, 4, 32)
    readers: dict[str, set[int]] = {}
    for number in range(1, 21):
        update = STAGES.update(number)
        first = update.first_sample + (8 if number > 3 else 0)
        token = trace_in(rolled, f"base:{number}:0").token
        assert token is not None
        assert (token.sample, token.shard) == (first, loader.describe(first)[0].shard)
        for sample in range(first, first + update.stage.batch):
            for span in loader.describe(sample):
                readers.setdefault(span.document["id"], set()).add(number)
    for name in [f"aa{n:02d}a" for n in range(20)]:
        found = trace_in(rolled, name)
        assert found.readings is not None
        assert found.readings.trained
        assert {number for number in found.readings.updates if number <= 20} == readers.get(name, set())


def test_a_ranks_positions_are_those_of_its_slice(plan: Graph) -> None:
    # 6 samples of 32 on 4 ranks: 1, 2, 1, 2
    for rank, first, size in ((0, 0, 1), (1, 1, 2), (2, 3, 1), (3, 4, 2)):
        for position in (0, size * 32 - 1):
            of_rank = trace_in(plan, f"base:13:{rank}/4:{position}")
            of_batch = trace_in(plan, f"base:13:{first * 32 + position}")
            assert (of_rank.token, of_rank.document) == (of_batch.token, of_batch.document)
        with pytest.raises(LineageError, match=f"rank {rank} of 4 in update 13 reads the positions 0 to"):
            trace_in(plan, f"base:13:{rank}/4:{size * 32}")


def test_no_other_index_is_opened(plan: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = TokenShards(plan["tokens"].require().uri)
    everything = {shard.index.path: shard.key for shard in shards}
    loaders(plan)  # packed rows are counted, once for all, from the indices
    opened: list[str] = []
    really = Cache.open

    def noted(cache: Cache, file: File) -> BinaryIO:
        if file.path in everything:
            opened.append(everything[file.path])
        return really(cache, file)

    monkeypatch.setattr(Cache, "open", noted)
    found = trace_in(plan, "aa07a")
    assert found.span is not None
    stem = found.span["shard"].rpartition("-")[0]
    assert {key.rpartition("-")[0] for key in opened} == {stem}
    assert len({key.rpartition("-")[0] for key in everything.values()}) > 8


def test_what_training_skipped_was_not_read(plan: Graph) -> None:
    """A shard that was bad from sample 40 of the first stream on."""
    key = trace_in(plan, "aa07a").span["shard"]
    base = Step("base", Pretraining(seed=3), str(Path(plan["tokens"].require().uri).parents[2] / "trained"))
    base.publish({"skipped": [{key: 40}, {}, {}]})
    trained = Graph([*plan.steps, base])
    streams = loaders(plan)
    streams[0].skip(key, 40)
    reading = readers(streams)
    other = readers(loaders(plan))
    assert reading != other
    for name in ("aa07a", "aa03a", "aa11a", "bb07a"):
        found = trace_in(trained, name)
        assert found.readings.trained
        assert found.readings.updates == sorted(reading.get(name, set()))
    assert trace_in(trained, "base:15:9").token.shard != key


def test_samples_of_the_first_stream_can_be_named(plan: Graph) -> None:
    by_update = trace_in(plan, "base:13:0")
    by_sample = trace_in(plan, f"sample:{STAGES.update(13).first_sample}:0")
    assert by_sample.document == by_update.document
    assert by_sample.token.offset == by_update.token.offset


def test_a_rewrite_leads_over_its_segments_to_its_source(plan: Graph) -> None:
    found = trace_in(plan, "cc05")
    assert found.rewrite["style"] == "plain"
    assert [(row["attempt"], row["accepted"]) for row in found.segments] == [(0, False), (1, True)]
    assert found.document["id"] == "aa05a"
    text = shown(found)
    for fact in (
        "5f5f",
        "llama.cpp",
        "small",
        "12",
        "0.93",
        "refused: numbers",
        "book-knowledge",
        "CC0-1.0",
        "made:aa05a",
    ):
        assert fact in text
    assert trace_in(plan, "aa05").rewrites == [{"id": "cc05", "style": "plain"}]
    assert "rewritten as cc05 (plain)" in shown(trace_in(plan, "aa05a"))


def test_a_dropped_document_says_why(plan: Graph) -> None:
    found = trace_in(plan, "dd01")
    assert found.rejected["reason"] == "too short"
    assert "dropped by curation at quality: too short (12)" in shown(found)


@pytest.mark.parametrize(
    ("identifier", "said"),
    [
        ("zz", "no document or rewrite"),
        ("aa", "starts 20 ids"),
        ("", "give a document id"),
        ("\udce4", "give a document id"),
        ("base:1", "not of the form"),
        ("base:one:2", "not of the form"),
        ("base:34:0", "updates 1 to 33"),
        ("base:0:0", "updates 1 to 33"),
        ("base:1:4/4:0", "rank 4 is not one of 4"),
        ("base:1:0/0:0", "rank 0 is not one of 0"),
        ("sample:1:0/2:0", "not of the form"),
        ("base:1:128", "positions 0 to 127"),
        ("sample:0:32", "positions 0 to 31"),
        (f"sample:{10**22}:0", "at most 18 digits"),
    ],
)
def test_what_names_nothing_is_said(plan: Graph, identifier: str, said: str) -> None:
    with pytest.raises(LineageError, match=said):
        trace_in(plan, identifier)


def test_before_the_stages_have_run(tmp_path: Path) -> None:
    corpus = Step("corpus", Named(name="corpus"), str(tmp_path))
    rewrites = Step("rewrites", Named(name="rewrites"), str(tmp_path), (corpus,))
    tokens = Step("tokens", TokensConfig(), str(tmp_path), (corpus, rewrites))
    plan = Graph([corpus, rewrites, tokens, Step("base", Pretraining(), str(tmp_path))])
    with pytest.raises(NotReady, match="corpus"):
        trace_in(plan, "aa")
    with pytest.raises(NotReady, match="tokens"):
        trace_in(plan, "base:1:0")
    corpus.put("documents/0", ".parquet", write([record("aa", "text", "web")]), 1)
    corpus.publish({})
    assert "nothing has read it" in shown(trace_in(plan, "aa"))


def test_tokens_of_another_tokenizer_are_not_read_as_text(plan: Graph, tmp_path: Path) -> None:
    corpus = plan["corpus"]
    other = Step("tokenizer", TokenizerConfig(vocabulary=380), str(tmp_path), (corpus,))
    tokenizer.build(other, corpus.require())
    changed = Graph([*plan.steps, other])
    with pytest.raises(LineageError, match=r"was made with another tokenizer\.json"):
        trace_in(changed, "base:1:0")
