"""The suite of the curated corpus: enough text of all domains and languages, traceable, licensed, each text once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import xxhash

from expectations.config import CorpusGate
from expectations.promises import Promises
from expectations.rules import Rule, Table, batches, few, never, shares

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tasks.artifact import Artifact


# What people write where they do not know: as good as nothing for somebody who must decide whether to train on it.
NO_LICENCE = ("", "unknown", "none", "n/a", "null", "?")
COLUMNS = ("id", "text", "source", "url", "domain", "language", "licence")
DAMAGE = "�"
RECURATE = (
    "look at the rows under `rejected/` and the statistics by source, correct the source or its rule, and run again"
)
# A file that was listed as it is now is not listed again, and what was curated is not curated again.
REREAD = (
    "names the files and says why: leave them out with the source's `exclude`; or put them right, delete the artifacts "
    "of the sources and of the corpus, and run the stage again"
)


def tables(gate: CorpusGate, corpus: Artifact, inputs: Mapping[str, Artifact]) -> list[Table]:
    """The metrics of `corpus` with their rules. Reads every document once, in batches; `inputs` is not needed."""
    parts, files = corpus.parts("documents"), corpus.files("documents")
    promises = Promises(gate, corpus.manifest, sum(part.rows for part in parts))
    measured = [_measure(part.key, part.rows, path, gate, promises) for part, path in zip(parts, files, strict=True)]
    per_file = pl.DataFrame([row for row, _ in measured], schema=_FILES)
    groups = pl.concat([_group(_facts(_NOTHING, gate)), *(group for _, group in measured)])
    documents = pl.scan_parquet(files) if files else pl.LazyFrame(schema=_SCHEMA)
    return [
        _whole(gate, corpus, per_file, groups, documents),
        _by(gate, groups, "domain", gate.domains),
        _by(gate, groups, "language", gate.languages),
        _sources(gate, groups, corpus.statistics.get("by_source", {})),
        _files(gate, per_file, documents),
        *promises.tables(corpus.fingerprint, groups),
    ]


_SCHEMA = dict.fromkeys(COLUMNS, pl.String)
_NOTHING = pl.DataFrame(schema=_SCHEMA)
_COUNTED = ("wrong_id", "wrong_length", "no_licence", "no_origin", "damaged")
_FILES = {"file": pl.String, **dict.fromkeys(("documents", "bytes", "rows_missing", *_COUNTED), pl.Int64)}


def _facts(frame: pl.DataFrame, gate: CorpusGate) -> pl.DataFrame:
    """One row of facts a document; the text itself goes no further than here."""
    texts = frame["text"].fill_null("")
    hashes = pl.Series("hash", [xxhash.xxh3_128_hexdigest(text.encode()) for text in texts], dtype=pl.String)
    characters = texts.str.len_chars()
    return frame.drop("text").with_columns(
        characters=characters,
        bytes=texts.str.len_bytes().cast(pl.Int64),
        damaged=texts.str.contains(DAMAGE, literal=True),
        wrong_id=frame["id"].ne_missing(hashes),
        wrong_length=(characters < gate.characters[0]) | (characters > gate.characters[1]),
        no_licence=_no_licence(),
        no_origin=_blank("source") | _blank("url"),
    )


def _no_licence() -> pl.Expr:
    return pl.col("licence").fill_null("").str.strip_chars().str.to_lowercase().is_in(NO_LICENCE)


def _blank(column: str) -> pl.Expr:
    return pl.col(column).fill_null("").str.strip_chars() == ""


def _measure(
    key: str, rows: int, path: Path, gate: CorpusGate, promises: Promises
) -> tuple[dict[str, Any], pl.DataFrame]:
    """One file's row of metrics, and its documents counted by what they are."""
    found = [_facts(_NOTHING, gate)]
    for frame in batches(path, COLUMNS):
        promises.add(frame)
        found.append(_facts(frame, gate))
    facts = pl.concat(found)
    row = {
        "file": key,
        "documents": facts.height,
        "bytes": int(facts["bytes"].sum()),
        "rows_missing": rows - facts.height,
        **{name: int(facts[name].sum()) for name in _COUNTED},
    }
    return row, _group(facts)


def _group(facts: pl.DataFrame) -> pl.DataFrame:
    keys = ("source", "domain", "language", "licence")
    named = facts.with_columns(pl.col(key).fill_null("") for key in keys)
    return named.group_by(keys).agg(
        documents=pl.len().cast(pl.Int64),
        bytes=pl.col("bytes").sum(),
        no_licence=pl.col("no_licence").sum().cast(pl.Int64),
        characters=pl.col("characters"),
    )


def _whole(
    gate: CorpusGate, corpus: Artifact, per_file: pl.DataFrame, groups: pl.DataFrame, documents: pl.LazyFrame
) -> Table:
    stated = corpus.statistics
    count = int(per_file["documents"].sum())
    read = int(stated.get("read", 0))
    rejected, unreadable = int(stated.get("rejected", 0)), int(stated.get("unreadable", 0))
    unique = documents.select(pl.col("id").n_unique()).collect(engine="streaming").item() if count else 0
    rejects = corpus.files("rejected")
    unread = (
        pl.scan_parquet(rejects).filter(pl.col("stage") == "read").select(pl.len()).collect().item() if rejects else 0
    )
    rows = sum(part.rows for part in corpus.parts("rejected"))
    unexplained = (
        pl.scan_parquet(rejects).filter(_blank("reason") | _blank("stage")) if rejects else pl.LazyFrame({"id": []})
    )
    row = {
        "corpus": corpus.fingerprint,
        "documents": count,
        "bytes": int(per_file["bytes"].sum()),
        "sources": groups["source"].n_unique(),
        "duplicate_ids": count - unique,
        "misstated": int(stated.get("documents", 0)) - count,
        "unnamed": abs(unreadable - unread) + abs(rejected + unread - rows),
        "unaccounted": read - count - rejected - unreadable,
        "rejected_share": rejected / max(read, 1),
        "unreadable_share": unreadable / max(read, 1),
        "unreadable_bytes_share": _lost(_total(stated.get("by_source", {}))),
        "damaged_share": int(per_file["damaged"].sum()) / max(count, 1),
        "unexplained": unexplained.select(pl.len()).collect().item(),
    }
    twice = documents.group_by("id").agg(pl.len().alias("times"), pl.col("source").first()).filter(pl.col("times") > 1)
    rules = (
        Rule(f"The corpus has at least {gate.documents:,} documents", "documents",
             "a source that yields nothing goes unnoticed until the model is bad",
             "check by source which one gave less than it should; lower `gates.corpus.documents` only for a small run",
             least=gate.documents, unit="documents"),
        Rule("The corpus has enough text", "bytes",
             "a model sees its data several times over where there is little of it",
             "add sources, or lower `gates.corpus.bytes` for a small run", least=gate.bytes, unit="bytes"),
        Rule(f"At least {gate.sources} sources gave documents", "sources", "one source's manner becomes the model's",
             "check which source is missing from the statistics by source", least=gate.sources),
        never("No two documents have the same id", "duplicate_ids",
              "what occurs twice is trained on twice, and a lineage look-up finds two answers",
              "exact deduplication did not see these: check that it runs over all sources together",
              examples=twice.sort("id")),
        never("The manifest counts as many documents as the files hold", "misstated",
              "the statistics everybody reads would be about other data",
              "delete the corpus artifact and run its stage again"),
        never("Every document read was kept, rejected with a reason, or counted as unreadable", "unaccounted",
              "documents that vanish without a reason are how a corpus loses a language",
              "find the filter that drops without a reject"),
        never("Everything that was rejected or could not be read is a row that names it", "unnamed",
              "a count without names cannot be looked into",
              "find the stage that counts a drop without writing its row"),
        never("Every rejected document says at which stage and why", "unexplained",
              "a rule nobody can inspect cannot be corrected", "give the filter that wrote these rows a reason",
              examples=unexplained),
        Rule("The share of rejected documents is plausible", "rejected_share",
             "none rejected means the rules did not run, nearly all means an extractor broke", RECURATE,
             least=gate.rejected[0], most=gate.rejected[1], unit="share"),
        few("Few records were unreadable", "unreadable_share", "a truncated download or a wrong reader looks like this",
            f"`openk2 inspect unreadable` {REREAD}", gate.unreadable),
        few("Few raw bytes were unreadable", "unreadable_bytes_share",
            "a lost file of a million rows is one unreadable record",
            f"`openk2 inspect unreadable` {REREAD}", gate.unreadable),
        few("Few documents have damaged characters", "damaged_share",
            "a wrongly guessed charset teaches the tokenizer rubbish",
            "check the charset detection of the source these come from", gate.damaged,
            examples=documents.filter(pl.col("text").str.contains(DAMAGE, literal=True)).select("id", "source", "url")),
    )  # fmt: skip
    return Table("whole", "the corpus as a whole", "corpus", pl.DataFrame([row]), rules)


def _total(by_source: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: sum(int(source.get(name, 0)) for source in by_source.values())
        for name in ("raw_bytes", "unreadable_bytes")
    }


def _lost(stated: Mapping[str, Any]) -> float:
    """The share of a source's raw bytes that could not be read; 0 where nothing is known of it."""
    return stated.get("unreadable_bytes", 0) / max(stated.get("raw_bytes", 0), 1)


def _by(gate: CorpusGate, groups: pl.DataFrame, key: str, floors: dict[str, float]) -> Table:
    frame = groups.group_by(key).agg(
        pl.col("documents").sum(), pl.col("bytes").sum(), median_characters=pl.col("characters").explode().median()
    )
    frame = shares(frame.with_columns(pl.col("median_characters").fill_null(0).cast(pl.Float64)), key, floors)
    rules = [
        Rule(f"Every {key} that the recipe names is there", "documents",
             f"the model cannot learn a {key} it never sees",
             f"check the sources of the missing {key}; set it to null under `gates.corpus.{key}s` if it is meant",
             least=1, unit="documents"),
        Rule(f"Every {key} has its least share of the bytes", "share", f"a {key} that shrank is drowned by the others",
             f"add text of that {key}, or change its floor under `gates.corpus.{key}s`", floor="floor", unit="share"),
    ]  # fmt: skip
    if key == "domain":
        rules.append(
            Rule("The median length of each domain's documents is plausible", "median_characters",
                 "an extractor that cuts documents, or joins them, moves the median first", RECURATE,
                 least=gate.median_characters[0], most=gate.median_characters[1], unit="characters")
        )  # fmt: skip
    if key == "domain" and floors:
        rules.append(
            Rule("No document has a domain that the recipe does not know", "domain",
                 "sampling by domain would leave it out", "map the source to one of the recipe's domains",
                 among=tuple(sorted(floors)))
        )  # fmt: skip
    return Table(f"{key}s", f"the corpus by {key}", key, frame, tuple(rules))


def _sources(gate: CorpusGate, groups: pl.DataFrame, stated: Mapping[str, Mapping[str, Any]]) -> Table:
    """`stated`: what the corpus stage counted of each source, those that gave nothing among them."""
    frame = groups.group_by("source").agg(
        pl.col("domain", "language", "licence").unique().sort().str.join(", "),
        pl.col("documents", "bytes", "no_licence").sum(),
    )
    frame = shares(frame, "source", dict.fromkeys(stated, 0.0)).drop("floor")
    lost = [_lost(stated.get(name, {})) for name in frame["source"]]
    frame = frame.with_columns(unreadable_share=pl.Series(lost, dtype=pl.Float64))
    rules = (
        Rule("Every source gave documents", "documents",
             "a source that yields nothing goes unnoticed until the model is bad",
             "`openk2 inspect --source NAME` shows what became of its records; correct the source, or leave it out",
             least=1, unit="documents"),
        few("No source has many raw bytes that could not be read", "unreadable_share",
            "a lost file of a million rows is one unreadable record",
            f"`openk2 inspect unreadable --source NAME` {REREAD}", gate.unreadable_source),
        few("No source makes up most of the corpus", "share", "one source's manner becomes the model's",
            "sample that source down, or raise `gates.corpus.largest_source`", gate.largest_source),
        never("Every document of every source names its licence", "no_licence",
              "nobody could say afterwards whether the model may be released",
              "record the licence in the source's description", unit="documents"),
    )  # fmt: skip
    return Table("sources", "the corpus by source", "source", frame, rules)


def _files(gate: CorpusGate, per_file: pl.DataFrame, documents: pl.LazyFrame) -> Table:
    shortest, longest = gate.characters
    length = pl.col("text").fill_null("").str.len_chars()
    few = documents.select("id", "source", "url", characters=length)
    rules = (
        never("Every file holds the rows that its record states", "rows_missing",
              "a cut file would pass for a small one", "delete the corpus artifact and run its stage again"),
        never("Every id is the xxh3-128 of its text", "wrong_id", "identity and deduplication rest on it",
              "the text was changed after its id was taken: take the id last", unit="documents"),
        never(f"Every text has {shortest:,.0f} to {longest:,.0f} characters", "wrong_length",
              "empty documents train on separators alone, endless ones are archives nobody split",
              "set the length rule of curation to this band, or the band `gates.corpus.characters` to the rule",
              unit="documents",
              examples=few.filter((pl.col("characters") < shortest) | (pl.col("characters") > longest))),
        never("Every document names its licence", "no_licence",
              "nobody could say afterwards whether the model may be released",
              "record the licence in the source's description", unit="documents",
              examples=documents.filter(_no_licence()).select("id", "source", "url")),
        never("Every document names its source and url", "no_origin", "lineage ends there",
              "let the reader of that source fill both", unit="documents",
              examples=documents.filter(_blank("source") | _blank("url")).select("id", "source", "url")),
    )  # fmt: skip
    return Table("files", "the files", "file", per_file, rules)
