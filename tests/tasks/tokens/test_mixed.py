"""Corpus, scores, mix and shards in a row: what the mix says is what the shards hold, and nothing else changes."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from expectations.config import TokensGate
from expectations.gate import judge
from tasks.artifact import Artifact, ArtifactError, Step
from tasks.corpus.executor import Processes
from tasks.corpus.mix import mixing
from tasks.corpus.mix.config import MixConfig
from tasks.corpus.mix.solution import MixError
from tasks.corpus.scoring import scores
from tasks.corpus.scoring.config import ClassifierConfig, ScoresConfig, Selection
from tasks.tokens import shards, tokenizer
from tasks.tokens.config import TokenizerConfig, TokensConfig
from tests.tasks.corpus.data import rows
from tests.tasks.corpus.scoring import data
from training.shards import TokenShards

CONFIG = TokensConfig(heldout_fraction=0.2, shard_bytes=8192, batch_bytes=20_000)
SCORES = ScoresConfig(
    classifier=ClassifierConfig(
        bits=12, positives=Selection(domains=("knowledge", "math")), negatives=Selection(rejected=("quality",))
    )
)
STRONG = MixConfig(
    buckets={"low": 0.4, "high": 1.75}, sources={"books": 1.5}, rewrites=2.0, source_epochs={"papers": 1}
)


@dataclass
class Made:
    """The inputs of the tokens stage."""

    root: str
    corpus: Step
    scores: Step
    rewrites: Step
    tokenizer: Step

    def mix(self, config: MixConfig, root: Path | None = None, **more) -> Step:
        inputs = (self.corpus, self.scores, self.rewrites, self.tokenizer)
        step = Step("mix", config, str(root or self.root), inputs)
        if step.artifact() is None:
            mixing.build(step, *(each.require() for each in inputs), **more)
        return step

    def tokens(self, mix: Step | None, config: TokensConfig = CONFIG) -> Step:
        inputs = (self.corpus, self.rewrites, self.tokenizer)
        step = Step("tokens", config, self.root, (*inputs, mix) if mix else inputs)
        if step.artifact() is None:
            shards.build(step, *(each.require() for each in inputs), mix.require() if mix else None)
        return step


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("mixed")
    corpus, artifact = data.publish(root)
    scored = Step("scores", SCORES, str(root), (corpus,))
    scores.build(scored, artifact)
    rewrites = Step("rewrites", data.Nothing(), str(root), (corpus,))
    again = [
        data.document(True, 9000 + seed, "books", "knowledge") | {"source_id": row["id"], "style": "plain"}
        for seed, row in enumerate(data.rows()["books/000"][:30])
    ]
    rewrites.put("rewrites/0", ".parquet", pl.DataFrame(again).write_parquet, len(again))
    rewrites.publish({"documents": len(again)})
    learned = Step("tokenizer", TokenizerConfig(vocabulary=500, sample_bytes=50_000), str(root), (corpus,))
    tokenizer.build(learned, artifact)
    return Made(str(root), corpus, scored, rewrites, learned)


def index(tokens: Artifact, split: str) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(shard.index.local) for shard in TokenShards(tokens.uri) if shard.split == split])


def copies(mix: Artifact) -> dict[str, int]:
    return {row["id"]: row["copies"] for row in rows(mix, "copies")}


def test_a_mix_that_asks_for_nothing_changes_no_byte_of_the_shards(made: Made) -> None:
    plain, mixed = made.tokens(None).require(), made.tokens(made.mix(MixConfig())).require()
    assert set(copies(made.mix(MixConfig()).require()).values()) == {1}
    assert TokenShards(mixed.uri).content == TokenShards(plain.uri).content
    assert mixed.statistics == plain.statistics


def test_every_training_document_stands_there_as_often_as_the_mix_says_and_held_out_ones_once(made: Made) -> None:
    mix = made.mix(STRONG).require()
    tokens = made.tokens(made.mix(STRONG)).require()
    told = copies(mix)
    assert set(told.values()) >= {0, 1, 2, 3}
    held = Counter(index(tokens, "heldout")["id"])
    assert held == Counter(index(made.tokens(None).require(), "heldout")["id"])
    assert set(held.values()) == {1}
    trained = Counter(index(tokens, "train")["id"])
    assert trained == Counter({name: times for name, times in told.items() if times and name not in held})


def test_every_copy_is_the_whole_document_and_copies_do_not_stand_side_by_side(made: Made) -> None:
    tokens = made.tokens(made.mix(STRONG)).require()
    seen: dict[str, list[int]] = {}
    for shard in TokenShards(tokens.uri):
        if shard.split == "heldout":
            continue
        table = pq.read_table(shard.index.local).to_pylist()
        for row in table:
            ids = shard.tokens_T[row["start"] : row["end"]].tolist()
            assert seen.setdefault(row["id"], ids) == ids
        assert all(one["id"] != other["id"] for one, other in itertools.pairwise(table))


def test_counts_show_documents_and_copies_and_nothing_is_lost(made: Made) -> None:
    mix, statistics = made.mix(STRONG).require(), made.tokens(made.mix(STRONG)).require().statistics
    trained = index(made.tokens(made.mix(STRONG)).require(), "train")
    assert statistics["copies"] == trained.height > statistics["documents"] == trained["id"].n_unique()
    assert statistics["tokens"] == int((trained["end"] - trained["start"]).sum())
    for source, counts in statistics["by_source"].items():
        own = trained.filter(pl.col("source") == source)
        assert (counts["copies"], counts["documents"]) == (own.height, own["id"].n_unique())
    held = sum(counts["documents"] for counts in statistics["heldout"].values())
    assert statistics["documents"] + held + statistics["left_out"] + statistics["empty"] == len(copies(mix))
    assert statistics["rewrites"]["copies"] == 3 * statistics["rewrites"]["documents"] > 0  # 1.5 times 2


def test_the_gate_lets_copies_through(made: Made) -> None:
    tokens = made.tokens(made.mix(STRONG))
    gate = TokensGate(
        tokens=100,
        heldout_tokens=1,
        heldout_share=(0.0, 1.0),
        bytes_per_token=dict.fromkeys(("knowledge", "math", "web"), (1, 9)),
    )
    assert judge(Step("tokens-gate", gate, made.root, (tokens,)), tokens).statistics["success"]


@pytest.mark.parametrize("bands", [{}, dict.fromkeys(("knowledge", "math", "web"), (1, 9))])
def test_the_gate_asks_for_no_training_tokens_of_a_domain_that_the_mix_leaves_out(made: Made, bands: dict) -> None:
    gate = TokensGate(tokens=100, heldout_share=(0.0, 1.0), bytes_per_token=bands, bytes_per_token_any=(1, 9))
    tokens = made.tokens(made.mix(MixConfig(domains={"knowledge": 1, "math": 1})))
    assert "web" in tokens.require().statistics["heldout"]
    assert judge(Step("tokens-gate", gate, made.root, (tokens,)), tokens).statistics["success"]


def test_the_table_says_how_often_each_group_is_read_and_the_copies_keep_to_it(made: Made) -> None:
    mix = made.mix(STRONG).require()
    table = pl.read_parquet(mix.file("table"))
    assert table["share"].sum() == pytest.approx(1)
    assert (table["tokens"] - table["epochs"] * table["available"]).abs().max() == 0
    assert table["documents"].sum() == 360
    assert set(table["bucket"]) == {"low", "medium", "high", "rewrite"} & set(table["bucket"]) >= {"low", "rewrite"}
    assert all(reason.endswith(".") for reason in table["reason"])
    told = copies(mix)
    high = {row["id"] for row in rows(made.scores.require(), "scores") if row["bucket"] == "high"}
    books = [told[row["id"]] for row in data.rows()["books/000"] if row["id"] in high]
    assert set(books) == {2, 3}  # 1.5 times 1.75 is 2.625 epochs
    assert np.mean(books) == pytest.approx(2.625, abs=0.2)
    text = mix.file("readable").read_text()
    assert text.count("\n| ") == table.height + 1
    assert "quality 'low' weighs 0.4" in text


def test_the_bytes_do_not_depend_on_workers(made: Made, tmp_path: Path) -> None:
    one, two = made.mix(STRONG).require(), made.mix(STRONG, tmp_path, executor=Processes(2)).require()
    assert {part.key: part.sha256 for part in one.parts()} == {part.key: part.sha256 for part in two.parts()}


def test_another_seed_gives_the_fraction_to_other_documents(made: Made) -> None:
    other = made.mix(STRONG.model_copy(update={"seed": 1})).require()
    assert copies(other) != copies(made.mix(STRONG).require())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"sources": {"magazines": 2}}, "`mix.sources` names 'magazines', and there are: books, papers"),
        ({"domains": {"physics": 1}}, "`mix.domains` names 'physics', and there are: knowledge, math, web"),
        ({"buckets": {"best": 2}}, "`mix.buckets` names 'best', and there are: high, low, medium"),
        ({"source_epochs": {"x": 1}}, "`mix.source_epochs` names 'x'"),
        ({"tokens": 10**12}, "`mix.tokens` asks for 1,000,000,000,000"),
        ({"auc": 1.0, "licences": ("GPL-*",)}, "no text may enter|area under the ROC curve"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(made: Made, tmp_path: Path, config: dict, said: str) -> None:
    with pytest.raises(MixError, match=said):
        made.mix(MixConfig(**config), tmp_path)


def test_a_classifier_that_is_chance_is_refused_where_the_mix_asks_for_more(made: Made, tmp_path: Path) -> None:
    unscored = Step("scores", ScoresConfig(classifier=None), str(tmp_path), (made.corpus,))
    scores.build(unscored, made.corpus.require())
    without = Made(str(tmp_path), made.corpus, unscored, made.rewrites, made.tokenizer)
    with pytest.raises(MixError, match="no classifier was trained"):
        without.mix(MixConfig(auc=0.6))
    assert set(copies(without.mix(MixConfig()).require()).values()) == {1}
    # nor is a bucket that nothing is in an unknown one: a small corpus has too few examples for a classifier
    bucketed = without.mix(MixConfig(buckets={"low": 0.5, "high": 1.1}, epochs=2)).require()
    assert set(copies(bucketed).values()) == {1}


def test_a_mix_of_another_corpus_is_refused(made: Made, tmp_path: Path) -> None:
    parts = data.rows()
    parts["books/000"] = parts["books/000"][::-1]
    other = Made(str(tmp_path), data.publish(tmp_path, parts)[0], made.scores, made.rewrites, made.tokenizer)
    with pytest.raises(ArtifactError, match="does not score the documents"):
        other.mix(MixConfig())
    with pytest.raises(ArtifactError, match="does not know the documents"):
        other.tokens(made.mix(MixConfig()))
