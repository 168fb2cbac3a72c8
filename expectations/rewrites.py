"""The suite of the rewrites: traceable to their sources, accepted by every check, faithful in numbers, no copies, and
written often enough at the first attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from expectations import attempts
from expectations.acceptance import groups, rates, refused
from expectations.config import RewritesGate
from expectations.dataset import Dataset
from expectations.rules import Rule, Table

if TYPE_CHECKING:
    from collections.abc import Mapping


PLACE = ["source_id", "style", "index"]
REWRITE_AGAIN = "look at `segments/` for what the engine wrote and which check refused it, then change model or prompt"
LOOK = "`openk2 inspect rewrites` shows by style and check what was refused; then change model, prompt or thresholds"
# Languages that are not written in Chinese characters, and how much of the letters may be some: names, quotations.
FOREIGN, NATIVE = 0.2, 0.3


def tables(gate: RewritesGate, rewrites: Dataset, inputs: Mapping[str, Dataset]) -> list[Table]:
    """The metrics of `rewrites` with their rules; `inputs` must hold the corpus they were written from."""
    corpus = pl.scan_parquet(inputs["corpus"].files("documents"))
    documents = rewrites.files("rewrites")
    written = pl.scan_parquet(documents) if documents else pl.LazyFrame(schema=_DOCUMENTS)
    segments = attempts.facts(rewrites)
    return [
        _whole(gate, rewrites, corpus, written, segments),
        groups(gate, segments, "style"),
        groups(gate, segments, "domain"),
        refused(gate, segments),
        _records(rewrites, segments),
        _accepted(gate, segments, written),
    ]


_DOCUMENTS = dict.fromkeys(("id", "source_id", "style", "text", "domain", "language", "licence"), pl.String)


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
        **rates(segments).select("retry_rate", "fallback_rate").row(0, named=True),
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
        Rule(
            "Most segments did not have to be asked for again",
            "retry_rate",
            "where the first attempt hardly ever passes, every document costs twice",
            LOOK,
            least=0,
            most=gate.retry_rate,
            unit="share",
        ),
        Rule(
            "Most segments were rewritten in the end",
            "fallback_rate",
            "what no attempt rewrote is one more epoch of the original, or a dropped document",
            LOOK,
            least=0,
            most=gate.fallback_rate,
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


def _records(rewrites: Dataset, segments: pl.DataFrame) -> Table:
    """What is recorded of the attempts: where they come from, and that the verdicts follow from the scores."""
    accepted = segments.filter("accepted").lazy()
    failing = accepted.filter(pl.col("failing") != "")
    # of a style: some checks are not asked of a translation
    unscored = accepted.filter(pl.col("unscored") > pl.col("unscored").min().over("style"))
    numbered = (
        segments.lazy()
        .group_by(PLACE)
        .agg(tried=pl.len(), different=pl.col("attempt").n_unique(), last=pl.col("attempt").max())
    )
    gaps = numbered.filter((pl.col("tried") != pl.col("last") + 1) | (pl.col("tried") != pl.col("different")))
    untraced = segments.lazy().filter("untraced")
    unlike = pl.LazyFrame({"threshold": attempts.unlike(rewrites)}, schema={"threshold": pl.String})
    row = {
        "rewrites": rewrites.fingerprint,
        "untraced": _count(untraced),
        "failing": _count(failing),
        "unscored": _count(unscored),
        "gaps": _count(gaps),
        "unlike": _count(unlike),
    }

    def never(column: str, sentence: str, why: str, remedy: str, examples: pl.LazyFrame) -> Rule:
        return Rule(sentence, column, why, remedy, least=0, most=0, examples=examples)

    rules = (
        never(
            "untraced",
            "Every attempt names its prompt, engine, model and seed",
            "nobody could ask for it again, or tell what wrote a bad one",
            "let the rewriter record them with every attempt",
            untraced.select(*PLACE, "attempt"),
        ),
        never(
            "failing",
            "No accepted segment has a score outside of its threshold",
            "what a check refuses would be trained on as fact",
            "the alignment check and the record disagree: rewrite them with one version of both",
            failing.select(*PLACE, "failing"),
        ),
        never(
            "unscored",
            "Every accepted segment has a score of every check that others of its style have one of",
            "a check that was left out has let it through",
            "let the alignment check go on until one fails",
            unscored.select(*PLACE, "attempt"),
        ),
        never(
            "gaps",
            "Every segment's attempts are numbered from 0, none left out",
            "rates over records with gaps are rates of something else",
            "delete the rewrites artifact and run its stage again",
            gaps.select(*PLACE, "tried", "last"),
        ),
        never(
            "unlike",
            "The recorded thresholds are the configured ones",
            "the scores would have been held to other thresholds than the preset says",
            "delete the rewrites artifact and run its stage again",
            unlike,
        ),
    )
    return Table("records", "what is recorded of the attempts", "rewrites", pl.DataFrame([row]), rules)


def _accepted(gate: RewritesGate, segments: pl.DataFrame, written: pl.LazyFrame) -> Table:
    accepted = segments.filter("accepted")
    foreign = _foreign(written)
    documents = max(_count(written), 1)
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
        "said_again": int(accepted["again"].sum()) / count,
        "other_language": _count(foreign) / documents,
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
            "Accepted segments do not say again what the one before said",
            "said_again",
            "a sentence that stands twice at a seam is learnt as the way texts go on",
            "tighten `rephrase.alignment.seam`, or let the prompt show what has been rewritten so far",
            least=0,
            most=gate.seams,
            unit="share",
            examples=rows.filter("again").select(PLACE),
        ),
        Rule(
            "Rewrites are in the language that their row names",
            "other_language",
            "shares by language, and every filter after this one, would be of something else",
            "tighten the alignment check's comparison of languages, or take a rewriter that writes this one",
            least=0,
            most=gate.other_language,
            unit="share",
            examples=foreign.select("id", "source_id", "style", "language"),
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


def _foreign(written: pl.LazyFrame) -> pl.LazyFrame:
    """Rewrites whose letters are not of the script of their language: only Chinese (and Japanese) can be told so."""
    text = pl.col("text").fill_null("")
    share = text.str.count_matches(r"\p{Han}") / pl.max_horizontal(text.str.count_matches(r"\p{L}"), 1)
    han = pl.col("language") == "zh"
    return written.filter((han & (share < NATIVE)) | (~han & (pl.col("language") != "ja") & (share > FOREIGN)))


def _count(frame: pl.LazyFrame) -> int:
    return frame.select(pl.len()).collect().item()
