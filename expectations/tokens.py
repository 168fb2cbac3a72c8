"""The suite of the token shards: every id in the vocabulary, every token in exactly one document's span, counts that
add up, nothing held out that was also trained on, and a plausible compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from expectations.config import TokensGate
from expectations.rules import Rule, Table, height, never
from model.vocabulary import first_special_id
from training.shards import Shard, TokenShards

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tasks.artifact import Artifact


SPLITS = ("train", "heldout")
AGAIN = "delete the tokens artifact and run its stage again"


def tables(gate: TokensGate, tokens: Artifact, inputs: Mapping[str, Artifact]) -> list[Table]:
    """The metrics of `tokens` with their rules. Reads every shard once, memory-mapped. `inputs` must hold the corpus
    and may hold the rewrites: an indexed document must be one of theirs; and the mix, which may leave domains out."""
    store = TokenShards(tokens.uri)
    rows, indices = [], []
    for shard in store:
        index = _index(shard.index.local)
        place = {"split": shard.split, "domain": shard.domain}
        rows.append({"shard": shard.key, **place} | _shard(shard, index, store.vocabulary, store.end_of_document))
        indices.append(index.with_columns(split=pl.lit(shard.split), domain=pl.lit(shard.domain)))
    shards = pl.DataFrame(rows, schema=_SHARDS)
    documents = (
        pl.concat(indices) if indices else pl.DataFrame(schema=_INDEX | {"split": pl.String, "domain": pl.String})
    )
    return [
        _whole(gate, tokens, inputs, shards, documents),
        _domains(gate, tokens, shards, inputs.get("mix")),
        _shards_table(shards, store.vocabulary),
    ]


_INDEX = {"id": pl.String, "root": pl.String, "start": pl.Int64, "end": pl.Int64}
_COUNTS = (
    "tokens",
    "documents",
    "largest",
    "out_of_range",
    "special",
    "gaps",
    "uncovered",
    "empty",
    "unended",
)
_SHARDS = {**dict.fromkeys(("shard", "split", "domain"), pl.String), **dict.fromkeys(_COUNTS, pl.Int64)}


def _index(path: Path) -> pl.DataFrame:
    """The document index of one shard: id, root (the id of the original document), start, end."""
    frame = pl.read_parquet(path)
    source = pl.col("source_id") if "source_id" in frame.columns else pl.lit(None, pl.String)
    blank = source.is_null() | (source == "")
    root = pl.when(blank).then(pl.col("id")).otherwise(source)
    return frame.select(pl.col("id"), root.alias("root"), pl.col("start", "end").cast(pl.Int64))


def _shard(shard: Shard, index: pl.DataFrame, vocabulary: int, end: int) -> dict[str, int]:
    """What is counted of one shard; the spans are held against the tokens themselves."""
    tokens_T = shard.tokens_T
    size = len(tokens_T)
    starts, ends = index["start"].to_numpy(), index["end"].to_numpy()
    expected = np.concatenate([[0], ends[:-1]]) if len(ends) else starts
    last = np.clip(ends - 1, 0, max(size - 1, 0))
    ended = tokens_T[last] == end if size else np.zeros(len(ends), bool)
    first = np.clip(starts, 0, max(size - 1, 0))
    # a document may begin with [BOS], the first of the special tokens, and ends with one; between them is ordinary text
    special = first_special_id(vocabulary)
    borders = int((tokens_T[first] == special).sum() + ended.sum()) if size else 0
    largest, outside, endings, reserved = 0, 0, 0, 0
    for offset in range(0, size, 1 << 24):  # 64 MiB at a time, so that a shard of any size fits
        piece = np.asarray(tokens_T[offset : offset + (1 << 24)])
        largest = max(largest, int(piece.max()))
        outside += int((piece >= vocabulary).sum())
        endings += int((piece == end).sum())
        reserved += int(((piece >= special) & (piece < vocabulary)).sum())
    return {
        "tokens": size,
        "documents": len(ends),
        "largest": largest,
        "out_of_range": outside,
        "special": max(reserved - borders, 0),
        "gaps": int((starts != expected).sum()),
        "uncovered": abs(size - (int(ends[-1]) if len(ends) else 0)),
        "empty": int((ends <= starts).sum()),
        "unended": int((~ended).sum()) + abs(endings - int(ended.sum())),
    }


def _whole(
    gate: TokensGate, tokens: Artifact, inputs: Mapping[str, Artifact], shards: pl.DataFrame, documents: pl.DataFrame
) -> Table:
    stated = tokens.statistics
    by_split = {split: shards.filter(pl.col("split") == split) for split in SPLITS}
    count = {split: int(frame["tokens"].sum()) for split, frame in by_split.items()}
    stated_train = int(stated.get("tokens", 0))
    stated_held = sum(int(values.get("tokens", 0)) for values in stated.get("heldout", {}).values())
    train = documents.filter(pl.col("split") == "train").lazy()
    held = documents.filter(pl.col("split") == "heldout").lazy()
    leaked = held.select("id").join(train.select("id").unique(), on="id", how="semi")
    related = (
        train.filter(pl.col("id") != pl.col("root"))
        .join(held.select(pl.col("root")).unique(), on="root", how="semi")
        .select("id", source_id="root")
    )
    known = pl.concat(
        [
            pl.scan_parquet(inputs[name].files(group)).select("id")
            for name, group in (("corpus", "documents"), ("rewrites", "rewrites"))
            if name in inputs and inputs[name].parts(group)
        ]
    )
    strangers = documents.lazy().select("id", "split", "domain").join(known, on="id", how="anti")
    whole = count["train"] + count["heldout"]
    row = {
        "tokens_artifact": tokens.fingerprint,
        "tokens": count["train"],
        "heldout_tokens": count["heldout"],
        "heldout_share": count["heldout"] / max(whole, 1),
        "misstated": abs(stated_train - count["train"]) + abs(stated_held - count["heldout"]),
        "leaked": height(leaked),
        "leaked_rewrites": height(related),
        "strangers": height(strangers),
        "heldout_twice": height(held) - height(held.select("id").unique()),
    }
    rules = (
        Rule("There are enough training tokens", "tokens", "the schedule would run over the same data many times",
             "add text, or lower `gates.tokens.tokens` for a small run", least=gate.tokens, unit="tokens"),
        Rule("The held-out share is in its band", "heldout_share",
             "too little makes held-out loss noise, too much is text not learned from",
             "set the tokens stage's held-out share inside `gates.tokens.heldout_share`", least=gate.heldout_share[0],
             most=gate.heldout_share[1], unit="share"),
        never("The manifest counts the tokens that the shards hold", "misstated",
              "learning rate and stage borders are set by token counts", AGAIN, unit="tokens"),
        never("No held-out document is in the training shards", "leaked", "held-out loss would measure memory",
              "split by document id before anything is sampled", unit="documents", examples=leaked),
        never("No rewrite of a held-out document is in the training shards", "leaked_rewrites",
              "the model would have read what it is tested on in other words",
              "hold a document's rewrites out with it, or leave them out", unit="documents", examples=related),
        never("Every document of the shards is in the corpus or the rewrites", "strangers",
              "nobody could say where those tokens come from or under which licence",
              "the shards are of another corpus: run the tokens stage on this one", unit="documents",
              examples=strangers),
        never("No document is held out twice", "heldout_twice", "it would weigh twice in the held-out loss",
              "deduplicate by id before the split", unit="documents"),
    )  # fmt: skip
    return Table("whole", "the shards as a whole", "tokens_artifact", pl.DataFrame([row]), rules)


def _domains(gate: TokensGate, tokens: Artifact, shards: pl.DataFrame, mix: Artifact | None) -> Table:
    stated, stated_held = tokens.statistics.get("by_domain", {}), tokens.statistics.get("heldout", {})
    rows = []
    # Held-out documents are written whatever the mix says: of a domain that it leaves out there are no others.
    trained = set(shards.filter(pl.col("split") == "train")["domain"])
    given = mix.statistics["by_domain"] if mix else {}
    left_out = {domain for domain, counts in given.items() if not counts["tokens"]} - trained
    for domain in sorted((set(gate.bytes_per_token) | set(shards["domain"])) - left_out):
        own = shards.filter(pl.col("domain") == domain)
        train, held = (int(own.filter(pl.col("split") == split)["tokens"].sum()) for split in SPLITS)
        ratio = float(stated.get(domain, {}).get("bytes_per_token") or 0.0)
        least, most = gate.bytes_per_token.get(
            domain, (ratio, ratio) if gate.bytes_per_token else gate.bytes_per_token_any
        )
        rows.append(
            {
                "domain": domain,
                "tokens": train,
                "heldout_tokens": held,
                "bytes_per_token": ratio,
                "fewest": least,
                "most": most,
                "misstated": abs(int(stated.get(domain, {}).get("tokens", 0)) - train)
                + abs(int(stated_held.get(domain, {}).get("tokens", 0)) - held),
            }
        )
    rules = [
        Rule("Every domain the recipe names has training tokens", "tokens", "sampling by domain would fail or skip it",
             "check the corpus by domain and the tokens stage's mixture", least=1, unit="tokens"),
        Rule("Every domain has enough held-out tokens", "heldout_tokens", "with fewer its held-out loss is noise",
             "raise `tokens.heldout_fraction`, or lower `gates.tokens.heldout_tokens` for a small corpus",
             least=gate.heldout_tokens, unit="tokens"),
        Rule("Each domain has enough bytes per token", "bytes_per_token",
             "near 1 the merges do not fit the text, or were not applied",
             "train the tokenizer on all domains, or correct `gates.tokens.bytes_per_token`", floor="fewest"),
        Rule("No domain has too many bytes per token", "bytes_per_token",
             "far above the usual 3 to 5 text was lost on the way, or is one phrase over and over",
             "look at that domain's documents, or correct `gates.tokens.bytes_per_token`", ceiling="most"),
        never("The manifest counts each domain's tokens as the shards hold them", "misstated",
              "the mixture is weighted by these counts", AGAIN, unit="tokens"),
    ]  # fmt: skip
    known = Rule(
        "No domain is there that the recipe does not know",
        "domain",
        "its tokens would never be sampled",
        "map it to one of the recipe's domains",
        among=tuple(sorted(gate.bytes_per_token)),
    )
    rules += [known] if gate.bytes_per_token else []
    return Table("domains", "the tokens by domain", "domain", pl.DataFrame(rows), tuple(rules))


def _shards_table(shards: pl.DataFrame, vocabulary: int) -> Table:
    rules = (
        Rule(f"Every token id is below the vocabulary's {vocabulary:,}", "largest",
             "the embedding look-up would fail in the middle of training, or read beyond its table",
             "the shards were written with another tokenizer: run the tokens stage again", least=0,
             most=vocabulary - 1),
        never("No text was encoded as a special token", "special",
              "a document that spells a chat marker could open a turn or a tool call",
              "encode text with special tokens off"),
        never("Document spans follow each other without gap or overlap", "gaps", "a token would belong to two or none",
              AGAIN),
        never("Document spans cover their shard to its last token", "uncovered", "tokens without origin or licence",
              AGAIN),
        never("No document span is empty", "empty", "it would be sampled for nothing", AGAIN),
        never("Every document ends with the end-of-document token, which occurs nowhere else", "unended",
              "documents would run into each other, or text could forge a border",
              "encode text with special tokens off and add the end token after it"),
        Rule("Every shard belongs to the training or the held-out split", "split", "nobody would read it",
             "list shards with the split `train` or `heldout`", among=SPLITS),
    )  # fmt: skip
    return Table("shards", "the shards one by one", "shard", shards, rules)
