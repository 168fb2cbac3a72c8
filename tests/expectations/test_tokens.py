from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from model.vocabulary import special_ids
from tests.expectations.data import END, TOKENS_GATE, VOCABULARY, documents, failures, rewritten, tokens

WEB = "train/web/made/0"


def body(value: int, place: int = 3):
    def change(parts):
        parts[WEB][0][place] = value

    return change


def index(expression: pl.Expr, shard: str = WEB):
    def change(parts):
        tokens_T, frame = parts[shard]
        parts[shard] = (tokens_T, frame.with_columns(expression))

    return change


def second(column: str, delta: int) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) == 1).then(pl.col(column) + delta).otherwise(column).alias(column)


def cut(parts):
    tokens_T, frame = parts[WEB]
    parts[WEB] = (tokens_T[:-5], frame)


def leak(parts):
    """A held-out document is written into the training shard as well."""
    tokens_T, frame = parts[WEB]
    other_T, other = parts["heldout/web/made/0"]
    shift = other.with_columns(pl.col("start", "end") + len(tokens_T))
    parts[WEB] = (np.concatenate([tokens_T, other_T]), pl.concat([frame, shift]))


def leak_rewrite(parts):
    """The rewrite of a held-out document is trained on in place of another."""
    held = parts["heldout/math/made/0"][1]["id"][0]
    rewrite = rewritten().filter(pl.col("source_id") == held)["id"][0]
    tokens_T, frame = parts["train/math/made/0"]
    last = pl.int_range(pl.len()) == pl.len() - 1
    parts["train/math/made/0"] = (
        tokens_T,
        frame.with_columns(
            id=pl.when(last).then(pl.lit(rewrite)).otherwise("id"),
            source_id=pl.when(last).then(pl.lit(held)).otherwise("source_id"),
        ),
    )


def drop_heldout_code(parts):
    del parts["heldout/code/made/0"]


DEFECTS = {
    "an id beyond the vocabulary": (body(VOCABULARY), {"shards.largest"}),
    "an end token inside a document": (body(END), {"shards.unended", "shards.special"}),
    "a chat marker encoded from text": (body(special_ids(VOCABULARY)["<|im_user|>"]), {"shards.special"}),
    "a chat marker at the start of a document": (
        body(special_ids(VOCABULARY)["<|im_system|>"], 0),
        {"shards.special"},
    ),
    "a gap between spans": (index(second("start", 1)), {"shards.gaps"}),
    "an overlap of spans": (index(second("start", -1)), {"shards.gaps"}),
    "a span that ends early": (index(second("end", -1)), {"shards.gaps", "shards.unended"}),
    "a cut shard": (cut, {"shards.uncovered"}),
    "a held-out document in training": (leak, {"whole.leaked"}),
    "a rewrite of a held-out document in training": (leak_rewrite, {"whole.leaked_rewrites"}),
    "a document of nowhere": (
        index(pl.when(pl.int_range(pl.len()) == 1).then(pl.lit("f" * 32)).otherwise("id").alias("id")),
        {"whole.strangers"},
    ),
    "no held-out code": (drop_heldout_code, {"domains.heldout_tokens"}),
}


def test_good_shards_pass(tmp_path, passed):
    assert passed(TOKENS_GATE, tokens(tmp_path)).statistics["success"]


def test_documents_may_begin_with_their_own_token(tmp_path, passed):
    passed(TOKENS_GATE, tokens(tmp_path, body(special_ids(VOCABULARY)["[BOS]"], 0)))


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defect_blocks(tmp_path, blocked, defect):
    change, expected = DEFECTS[defect]
    failed = failures(blocked(TOKENS_GATE, tokens(tmp_path, change)))
    assert expected <= failed
    assert len(failed) <= 3, failed


def test_more_tokens_stated_than_written(tmp_path, blocked):
    def stated(statistics):
        statistics["tokens"] += 1
        statistics["by_domain"]["web"]["tokens"] += 1

    assert failures(blocked(TOKENS_GATE, tokens(tmp_path, stated=stated))) == {"whole.misstated", "domains.misstated"}


def test_where_no_domain_is_listed_those_that_are_there_are_held_to_one_band(tmp_path, passed, blocked):
    gate = TOKENS_GATE.model_copy(update={"bytes_per_token": {}})
    passed(gate, tokens(tmp_path))
    failure = blocked(gate.model_copy(update={"bytes_per_token_any": (1.0, 1.1)}), tokens(tmp_path))
    assert failures(failure) == {"domains.bytes_per_token"}


def test_compression_outside_its_band(tmp_path, blocked):
    gate = TOKENS_GATE.model_copy(update={"bytes_per_token": TOKENS_GATE.bytes_per_token | {"code": (1.0, 2.0)}})
    failure = blocked(gate, tokens(tmp_path))
    assert failures(failure) == {"domains.bytes_per_token"}
    assert "code 3.9" in str(failure)


def test_domain_without_shards_is_missed(tmp_path, blocked):
    def drop(parts):
        for shard in [shard for shard in parts if "/web/" in shard]:
            del parts[shard]

    assert {"domains.tokens", "domains.heldout_tokens"} <= failures(blocked(TOKENS_GATE, tokens(tmp_path, drop)))


def test_fixture_is_what_it_claims():
    assert documents().height == 48
    assert rewritten().height == 20
