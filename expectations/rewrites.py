"""The suite of the rewrites: traceable to their sources, accepted by every check, faithful in numbers, no copies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from expectations.config import RewritesGate
from expectations.dataset import Dataset
from expectations.rules import Rule, Table, batches

if TYPE_CHECKING:
    from collections.abc import Mapping


PLACE = ["source_id", "style", "index"]
SEGMENT_COLUMNS = ("source_id", "style", "index", "source_text", "rewrite_text", "accepted", "reason")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LIST_MARKER = re.compile(r"^\s*\d{1,2}[.)]\s", re.MULTILINE)
REWRITE_AGAIN = "look at `segments/` for what the engine wrote and which check refused it, then change model or prompt"


def tables(gate: RewritesGate, rewrites: Dataset, inputs: Mapping[str, Dataset]) -> list[Table]:
    """The metrics of `rewrites` with their rules; `inputs` must hold the corpus they were written from."""
    corpus = pl.scan_parquet(inputs["corpus"].files("documents"))
    documents = rewrites.files("rewrites")
    written = pl.scan_parquet(documents) if documents else pl.LazyFrame(schema=_DOCUMENTS)
    measured = [
        _facts(frame) for path in rewrites.files("segments") for frame in batches(path, SEGMENT_COLUMNS, rows=1024)
    ]
    segments = pl.concat(measured) if measured else _facts(pl.DataFrame(schema=_SEGMENTS))
    return [_whole(gate, rewrites, corpus, written, segments), _styles(segments), _accepted(gate, segments)]


_DOCUMENTS = dict.fromkeys(("id", "source_id", "style", "text", "domain", "licence"), pl.String)
_SEGMENTS = {
    **dict.fromkeys(("source_id", "style", "source_text", "rewrite_text", "reason"), pl.String),
    "index": pl.Int64,
    "accepted": pl.Boolean,
}
_FACTS = {"lost": pl.Boolean, "invented": pl.Boolean, "copy": pl.Boolean, "ratio": pl.Float64, "empty": pl.Boolean}


def numbers(text: str) -> set[str]:
    """The numbers in `text`, thousands' separators and the markers of numbered lists left out."""
    found = NUMBER.findall(LIST_MARKER.sub(" ", text))
    return {re.sub(r",(?=\d{3}(?!\d))", "", number) for number in found}


def _facts(frame: pl.DataFrame) -> pl.DataFrame:
    """One row of facts a segment, its two texts left behind; numbers and copies are judged on accepted ones only."""
    rows = []
    for source, rewrite, accepted in frame.select("source_text", "rewrite_text", "accepted").iter_rows():
        source, rewrite = source or "", rewrite or ""
        before, after = (numbers(source), numbers(rewrite)) if accepted else (set(), set())
        rows.append(
            {
                "lost": bool(before - after),
                "invented": bool(after - before),
                "copy": bool(accepted) and " ".join(source.split()) == " ".join(rewrite.split()),
                "ratio": len(rewrite) / max(len(source), 1),
                "empty": bool(accepted) and not rewrite.strip(),
            }
        )
    kept = frame.select(
        "source_id", pl.col("style").fill_null(""), pl.col("index").cast(pl.Int64), "accepted", "reason"
    )
    return pl.concat([kept, pl.DataFrame(rows, schema=_FACTS)], how="horizontal").with_columns(
        pl.col("accepted").fill_null(False), reason=pl.col("reason").fill_null("").str.strip_chars()
    )


def _whole(
    gate: RewritesGate, rewrites: Dataset, corpus: pl.LazyFrame, written: pl.LazyFrame, segments: pl.DataFrame
) -> Table:
    stated = rewrites.statistics
    accepted = segments.filter("accepted")
    # one row an attempt: a segment that took three counts thrice, as in the stage's own acceptance rate
    tried, passed = segments.height, accepted.height
    origin = corpus.select(pl.col("id"), source_domain="domain", source_licence="licence", found=pl.lit(True))
    joined = written.select("id", "source_id", "domain", "licence").join(
        origin, left_on="source_id", right_on="id", how="left"
    )
    orphans = joined.filter(pl.col("found").is_null()).select("id", "source_id")
    foreign = joined.filter(
        pl.col("found").is_not_null()
        & (
            pl.col("domain").ne_missing(pl.col("source_domain"))
            | pl.col("licence").ne_missing(pl.col("source_licence"))
        )
    )
    groundless = segments.lazy().join(origin, left_on="source_id", right_on="id", how="anti")
    ids = written.select(documents=pl.len(), distinct=pl.col("id").n_unique()).collect().row(0, named=True)
    blank = written.filter(pl.col("text").fill_null("").str.strip_chars() == "").select("id", "source_id", "style")
    unbacked = written.select("id", "source_id", "style").join(
        accepted.lazy().select("source_id", "style").unique(), on=["source_id", "style"], how="anti"
    )
    contradicted = segments.lazy().filter(pl.col("accepted") & (pl.col("reason") != ""))
    unexplained = segments.lazy().filter(~pl.col("accepted") & (pl.col("reason") == ""))
    row = {
        "rewrites": rewrites.fingerprint,
        "documents": ids["documents"],
        "segments": tried,
        "accepted": passed,
        "acceptance_rate": passed / max(tried, 1),
        "misstated": abs(int(stated.get("documents", 0)) - ids["documents"])
        + abs(int(stated.get("segments", 0)) - tried)
        + abs(int(stated.get("accepted", 0)) - passed),
        "accepted_twice": passed - accepted.select(PLACE).unique().height,
        "duplicate_ids": ids["documents"] - ids["distinct"],
        "orphans": _count(orphans),
        "foreign": _count(foreign),
        "groundless": _count(groundless),
        "blank": _count(blank),
        "unbacked": _count(unbacked),
        "contradicted": _count(contradicted),
        "unexplained": _count(unexplained),
    }

    def never(column: str, sentence: str, why: str, remedy: str, examples: pl.LazyFrame | None = None) -> Rule:
        return Rule(sentence, column, why, remedy, least=0, most=0, examples=examples)

    rules = (
        Rule(
            "Enough documents were rewritten",
            "documents",
            "the recipe rests on rephrased knowledge, not on repeated epochs",
            "rewrite more documents, or lower `gates.rewrites.documents`",
            least=gate.documents,
            unit="documents",
        ),
        Rule(
            "Enough segments were attempted",
            "segments",
            "a rate over a handful of segments says nothing",
            "rewrite more documents, or lower `gates.rewrites.segments`",
            least=gate.segments,
            unit="segments",
        ),
        Rule(
            "The accepted share of the attempts is in its band",
            "acceptance_rate",
            "below it the rewriter does not follow its prompt, above it the check has stopped refusing",
            REWRITE_AGAIN,
            least=gate.acceptance_rate[0],
            most=gate.acceptance_rate[1],
            unit="share",
        ),
        never(
            "misstated",
            "The manifest counts the documents, segments and accepted segments that the files hold",
            "the acceptance rate everybody reads would be about other data",
            "delete the rewrites artifact and run its stage again",
        ),
        never(
            "accepted_twice",
            "No segment was accepted in two attempts",
            "nobody could say which of them was trained on",
            "stop at the first accepted attempt",
        ),
        never(
            "duplicate_ids",
            "No two rewrites have the same id",
            "the same rewrite would be trained on twice",
            "two documents or styles gave the same text: deduplicate the rewrites",
            written.group_by("id").agg(times=pl.len()).filter(pl.col("times") > 1).sort("id"),
        ),
        never(
            "orphans",
            "Every rewrite's source is in the corpus",
            "lineage and licence end there",
            "the rewrites are of another corpus: run their stage on this one",
            orphans,
        ),
        never(
            "foreign",
            "Every rewrite has its source's domain and licence",
            "a licence does not change by rewording",
            "copy both from the source document",
            foreign.select("id", "source_id", "licence", "source_licence"),
        ),
        never(
            "groundless",
            "Every attempted segment's source is in the corpus",
            "the scores would be about other data",
            "the segments are of another corpus: run the stage on this one",
            groundless.select(PLACE),
        ),
        never("blank", "No rewrite is empty", "it would train on a separator alone", REWRITE_AGAIN, blank),
        never(
            "unbacked",
            "Every rewrite has an accepted segment",
            "a rewrite made of fallbacks alone is a copy of its source",
            "write a document only where a segment was accepted",
            unbacked,
        ),
        never(
            "contradicted",
            "No accepted segment has a failed check",
            "what a check refused would be trained on as fact",
            "the alignment check and the writer disagree: accept only where no reason was given",
            contradicted.select(*PLACE, "reason"),
        ),
        never(
            "unexplained",
            "Every refused segment says which check refused it",
            "a check nobody can inspect cannot be corrected",
            "let the check give its reason",
            unexplained.select(PLACE),
        ),
    )
    return Table("whole", "the rewrites as a whole", "rewrites", pl.DataFrame([row]), rules)


def _styles(segments: pl.DataFrame) -> Table:
    """By style: shown, and held to having tried anything at all; a floor a style would punish honest small runs."""
    frame = (
        segments.group_by("style")
        .agg(segments=pl.len().cast(pl.Int64), accepted=pl.col("accepted").sum().cast(pl.Int64))
        .with_columns(acceptance_rate=pl.col("accepted") / pl.col("segments"), unnamed=pl.col("style") == "")
        .with_columns(pl.col("unnamed").cast(pl.Int64))
        .sort("style")
    )
    rule = Rule(
        "Every segment names its style",
        "unnamed",
        "rates by style are how a bad prompt is found",
        "let the rewriter record the style of each prompt",
        least=0,
        most=0,
    )
    return Table("styles", "the segments by style", "style", frame, (rule,))


def _accepted(gate: RewritesGate, segments: pl.DataFrame) -> Table:
    accepted = segments.filter("accepted")
    count = max(accepted.height, 1)
    outside = (pl.col("ratio") < gate.length_ratio[0]) | (pl.col("ratio") > gate.length_ratio[1])
    row = {
        "segments": "accepted",
        "count": accepted.height,
        "invented_numbers": int(accepted["invented"].sum()) / count,
        "lost_numbers": int(accepted["lost"].sum()) / count,
        "copies": int(accepted["copy"].sum()) / count,
        "outside_length": accepted.filter(outside).height,
        "empty": int(accepted["empty"].sum()),
    }
    rows = accepted.lazy()
    rules = (
        Rule(
            "Accepted segments bring no number that their source has not",
            "invented_numbers",
            "a swapped number is the error that embeddings cannot see and a model learns as fact",
            "tighten the alignment check's comparison of numbers",
            least=0,
            most=gate.invented_numbers,
            unit="share",
            examples=rows.filter("invented").select(PLACE),
        ),
        Rule(
            "Accepted segments keep their source's numbers",
            "lost_numbers",
            "a dropped number is a dropped fact",
            "tighten the alignment check's comparison of numbers",
            least=0,
            most=gate.lost_numbers,
            unit="share",
            examples=rows.filter("lost").select(PLACE),
        ),
        Rule(
            "Accepted segments are not copies of their source",
            "copies",
            "a copy is one more epoch of the same text, at the price of a rewrite",
            "let the check refuse a rewrite that repeats its source",
            least=0,
            most=gate.copies,
            unit="share",
            examples=rows.filter("copy").select(PLACE),
        ),
        Rule(
            f"Accepted segments are {gate.length_ratio[0]:g} to {gate.length_ratio[1]:g} times as long as their source",
            "outside_length",
            "much shorter ones dropped something, much longer ones made something up",
            "set the check's length band inside `gates.rewrites.length_ratio`",
            least=0,
            most=0,
            unit="segments",
            examples=rows.filter(outside).select(*PLACE, "ratio"),
        ),
        Rule(
            "No accepted segment is empty",
            "empty",
            "the document would have a hole",
            "let the check refuse an empty rewrite",
            least=0,
            most=0,
            unit="segments",
            examples=rows.filter("empty").select(PLACE),
        ),
    )
    return Table("accepted", "the accepted segments", "segments", pl.DataFrame([row]), rules)


def _count(frame: pl.LazyFrame) -> int:
    return frame.select(pl.len()).collect().item()
