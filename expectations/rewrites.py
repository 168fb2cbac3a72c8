"""The suite of the rewrites: traceable to their sources, accepted by every check, faithful in numbers, no copies, and
written often enough at the first attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from expectations import attempts
from expectations.acceptance import groups, rates, refused
from expectations.config import RewritesGate
from expectations.rules import Rule, Table, few, height, never

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.artifact import Artifact


PLACE = ["source_id", "style", "index"]
REWRITE_AGAIN = "look at `segments/` for what the engine wrote and which check refused it, then change model or prompt"
LOOK = "`openk2 inspect rewrites` shows by style and check what was refused; then change model, prompt or thresholds"
# Languages that are not written in Chinese characters, and how much of the letters may be some: names, quotations.
FOREIGN, NATIVE = 0.2, 0.3
KEPT = 0.7
"""Smallest ratio of the shares of Chinese letters in a rewrite and in its source (elsewhere, of source and rewrite)."""


def tables(gate: RewritesGate, rewrites: Artifact, inputs: Mapping[str, Artifact]) -> list[Table]:
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
        _accepted(gate, segments, written, corpus),
    ]


_DOCUMENTS = dict.fromkeys(("id", "source_id", "style", "text", "domain", "language", "licence"), pl.String)


def _whole(
    gate: RewritesGate, rewrites: Artifact, corpus: pl.LazyFrame, written: pl.LazyFrame, segments: pl.DataFrame
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
    ids = (
        written.select(
            documents=pl.len(), distinct=pl.struct("source_id", "style").n_unique(), texts=pl.col("id").n_unique()
        )
        .collect()
        .row(0, named=True)
    )
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
        "written_twice": ids["documents"] - ids["distinct"],
        "same_text": (ids["documents"] - ids["texts"]) / max(ids["documents"], 1),
        "orphans": height(orphans),
        "foreign": height(foreign),
        "groundless": height(groundless),
        "blank": height(blank),
        "unbacked": height(unbacked),
        "contradicted": height(contradicted),
        "unexplained": height(unexplained),
    }

    rules = (
        Rule("Enough documents were rewritten", "documents",
             "the recipe rests on rephrased knowledge, not on repeated epochs",
             "rewrite more documents, or lower `gates.rewrites.documents`", least=gate.documents, unit="documents"),
        Rule("Enough segments were attempted", "segments", "a rate over a handful of segments says nothing",
             "rewrite more documents, or lower `gates.rewrites.segments`", least=gate.segments, unit="segments"),
        Rule("The accepted share of the attempts is in its band", "acceptance_rate",
             "below it the rewriter does not follow its prompt, above it the check has stopped refusing", REWRITE_AGAIN,
             least=gate.acceptance_rate[0], most=gate.acceptance_rate[1], unit="share"),
        few("Most segments did not have to be asked for again", "retry_rate",
            "where the first attempt hardly ever passes, every document costs twice", LOOK, gate.retry_rate),
        few("Most segments were rewritten in the end", "fallback_rate",
            "what no attempt rewrote is one more epoch of the original, or a dropped document", LOOK,
            gate.fallback_rate),
        never("The manifest counts the documents, segments and accepted segments that the files hold", "misstated",
              "the acceptance rate everybody reads would be about other data",
              "delete the rewrites artifact and run its stage again"),
        never("No segment was accepted in two attempts", "accepted_twice",
              "nobody could say which of them was trained on", "stop at the first accepted attempt"),
        never("No source was rewritten twice in one style", "written_twice", "both would be trained on",
              "delete the rewrites artifact and run its stage again",
              examples=written.group_by("source_id", "style").agg(times=pl.len()).filter(pl.col("times") > 1)
              .sort("source_id", "style")),
        few("Hardly a rewrite is the text of another one", "same_text",
            "styles that a rewriter does not tell apart are one more epoch of the same text, at the price of a rewrite",
            "take a more capable rewriter, or name fewer styles or `rewrites`", gate.same_text,
            examples=written.group_by("id").agg(times=pl.len()).filter(pl.col("times") > 1).sort("id")),
        never("Every rewrite's source is in the corpus", "orphans", "lineage and licence end there",
              "the rewrites are of another corpus: run their stage on this one", examples=orphans),
        never("Every rewrite has its source's domain and licence", "foreign", "a licence does not change by rewording",
              "copy both from the source document",
              examples=foreign.select("id", "source_id", "licence", "source_licence")),
        never("Every attempted segment's source is in the corpus", "groundless", "the scores would be about other data",
              "the segments are of another corpus: run the stage on this one", examples=groundless.select(PLACE)),
        never("No rewrite is empty", "blank", "it would train on a separator alone", REWRITE_AGAIN, examples=blank),
        never("Every rewrite has an accepted segment", "unbacked",
              "a rewrite made of fallbacks alone is a copy of its source",
              "write a document only where a segment was accepted", examples=unbacked),
        never("No accepted segment has a failed check", "contradicted",
              "what a check refused would be trained on as fact",
              "the alignment check and the writer disagree: accept only where no reason was given",
              examples=contradicted.select(*PLACE, "reason")),
        never("Every refused segment says which check refused it", "unexplained",
              "a check nobody can inspect cannot be corrected", "let the check give its reason",
              examples=unexplained.select(PLACE)),
    )  # fmt: skip
    return Table("whole", "the rewrites as a whole", "rewrites", pl.DataFrame([row]), rules)


def _records(rewrites: Artifact, segments: pl.DataFrame) -> Table:
    """What is recorded of the attempts: where they come from, and that the verdicts follow from the scores."""
    accepted = segments.filter("accepted").lazy()
    failing = accepted.filter(pl.col("failing") != "")
    # of a style: what a preset leaves out, or a style is not asked, has a score in none of its segments
    unscored = (
        accepted.with_columns(all=pl.len().over("style"))
        .explode("unscored")
        .filter(pl.col("unscored").is_not_null() & (pl.len().over("style", "unscored") < pl.col("all")))
    )
    numbered = (
        segments.lazy()
        .group_by(PLACE)
        .agg(
            tried=pl.len(),
            different=pl.struct("attempt", "candidate").n_unique(),
            attempts=pl.col("attempt").n_unique(),
            last=pl.col("attempt").max(),
        )
    )
    gaps = numbered.filter((pl.col("attempts") != pl.col("last") + 1) | (pl.col("tried") != pl.col("different")))
    untraced = segments.lazy().filter("untraced")
    unlike = pl.LazyFrame({"threshold": attempts.unlike(rewrites)}, schema={"threshold": pl.String})
    row = {
        "rewrites": rewrites.fingerprint,
        "untraced": height(untraced),
        "failing": height(failing),
        "unscored": height(unscored),
        "gaps": height(gaps),
        "unlike": height(unlike),
    }

    rules = (
        never("Every attempt names its prompt, engine, model and seed", "untraced",
              "nobody could ask for it again, or tell what wrote a bad one",
              "let the rewriter record them with every attempt", examples=untraced.select(*PLACE, "attempt")),
        never("No accepted segment has a score outside of its threshold", "failing",
              "what a check refuses would be trained on as fact",
              "the alignment check and the record disagree: rewrite them with one version of both",
              examples=failing.select(*PLACE, "failing")),
        never("Every accepted segment has a score of every check that others of its style have one of", "unscored",
              "a check that was left out has let it through", "let the alignment check go on until one fails",
              examples=unscored.select(*PLACE, "attempt", "unscored")),
        never("Every segment's attempts are numbered from 0, none left out", "gaps",
              "rates over records with gaps are rates of something else",
              "delete the rewrites artifact and run its stage again", examples=gaps.select(*PLACE, "tried", "last")),
        never("The recorded thresholds are the configured ones", "unlike",
              "the scores would have been held to other thresholds than the preset says",
              "delete the rewrites artifact and run its stage again", examples=unlike),
    )  # fmt: skip
    return Table("records", "what is recorded of the attempts", "rewrites", pl.DataFrame([row]), rules)


def _accepted(gate: RewritesGate, segments: pl.DataFrame, written: pl.LazyFrame, corpus: pl.LazyFrame) -> Table:
    accepted = segments.filter("accepted")
    foreign = _foreign(written, corpus)
    documents = max(height(written), 1)
    count = max(accepted.height, 1)
    shortest, longest = gate.length_ratio
    outside = (pl.col("ratio") < shortest) | (pl.col("ratio") > longest)
    row = {
        "segments": "accepted",
        "count": accepted.height,
        "other_numbers": int(accepted["misnumbered"].sum()) / count,
        "copies": int(accepted["copy"].sum()) / count,
        "outside_length": accepted.filter(outside).height,
        "empty": int(accepted["empty"].sum()),
        "said_again": int(accepted["again"].sum()) / count,
        "other_language": height(foreign) / documents,
    }
    rows = accepted.lazy()
    rules = (
        few("Accepted segments state the numbers of their source, and no others", "other_numbers",
            "a swapped number is the error that embeddings cannot see and a model learns as fact",
            "the alignment check and the record disagree: rewrite them with one version of both", gate.other_numbers,
            examples=rows.filter("misnumbered").select(PLACE)),
        few("Accepted segments are not copies of their source", "copies",
            "a copy is one more epoch of the same text, at the price of a rewrite",
            "let the check refuse a rewrite that repeats its source", gate.copies,
            examples=rows.filter("copy").select(PLACE)),
        never(f"Accepted segments are {shortest:g} to {longest:g} times as long as their source, where their style has "
              "no band of its own", "outside_length",
              "much shorter ones dropped something, much longer ones made something up",
              "set the check's length band inside `gates.rewrites.length_ratio`", unit="segments",
              examples=rows.filter(outside).select(*PLACE, "ratio")),
        few("Accepted segments do not say again what the one before said", "said_again",
            "a sentence that stands twice at a seam is learnt as the way texts go on",
            "tighten `rephrase.alignment.seam`, or let the prompt show what has been rewritten so far", gate.seams,
            examples=rows.filter("again").select(PLACE)),
        few("Rewrites are in the language that their row names", "other_language",
            "shares by language, and every filter after this one, would be of something else",
            "tighten the alignment check's comparison of languages, or take a rewriter that writes this one",
            gate.other_language, examples=foreign.select("id", "source_id", "style", "language")),
        never("No accepted segment is empty", "empty", "the document would have a hole",
              "let the check refuse an empty rewrite", unit="segments", examples=rows.filter("empty").select(PLACE)),
    )  # fmt: skip
    return Table("accepted", "the accepted segments", "segments", pl.DataFrame([row]), rules)


def _foreign(written: pl.LazyFrame, corpus: pl.LazyFrame) -> pl.LazyFrame:
    """Rewrites whose letters are not of the script of their language: only Chinese (and Japanese) can be told so. One
    that has about as many of the other script as its source has kept its code or its quotations."""
    text = pl.col("text").fill_null("")
    share = text.str.count_matches(r"\p{Han}") / pl.max_horizontal(text.str.count_matches(r"\p{L}"), 1)
    names, han = ("id", "source_id", "style", "language"), pl.col("language") == "zh"
    odd = (
        written.select(*names, share=share)
        .filter(
            (han & (pl.col("share") < NATIVE)) | (~han & (pl.col("language") != "ja") & (pl.col("share") > FOREIGN)),
        )
        .collect()
        .lazy()
    )
    sources = corpus.join(odd, left_on="id", right_on="source_id", how="semi").select("id", "language", usual=share)
    kept = (
        pl.when(han)
        .then(pl.col("share") >= KEPT * pl.col("usual"))
        .otherwise(KEPT * pl.col("share") <= pl.col("usual"))
    )
    joined = odd.join(sources, left_on=["source_id", "language"], right_on=["id", "language"], how="left")
    return joined.filter(~kept.fill_null(False))
