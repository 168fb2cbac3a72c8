"""One document rewritten: segment by segment, each given the original and what has been rewritten of it so far.

A segment that the alignment check refuses is tried again with another seed and a stricter prompt; where no attempt
passes, its original text stays (or the document is dropped: `fallback`). A document ends early once it can no longer
reach its share of rewritten segments.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import xxhash

from model.engines.engine import Completion, Engine, Prompt, PromptRefused
from tasks.rephrase.alignment.answer import clean
from tasks.rephrase.alignment.judge import Judge
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import RECORDED, align, consult
from tasks.rephrase.alignment.words import Embedder
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.ledger import Ledger
from tasks.rephrase.prompts import Style, Turn, messages, prompt_hash
from tasks.rephrase.segments import Segment, estimate_tokens, segment

MARGIN = 16
"""Tokens an answer may always have, so that a short segment is not cut by a rounding."""
CARRIED = 1
"""Rewritten segments that the first prompt of a document's next window is given."""

if TYPE_CHECKING:
    from tasks.rephrase.alignment.nli import NLI

Ask = Callable[[Prompt], Completion]


@dataclass(frozen=True)
class Job:
    """One document in one style."""

    document: dict[str, str]
    """A row of the corpus."""
    name: str
    """The style's name."""
    style: Style


@dataclass
class Outcome:
    """What became of a job."""

    rewrite: dict[str, Any] | None = None
    """A row of `rewrites/`, None where the document was not accepted."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `segments/`: every attempt."""
    ledger: Ledger = field(default_factory=Ledger)


def rewrite_document(
    job: Job,
    config: RephraseConfig,
    engine: Engine,
    ask: Ask,
    embedder: Embedder,
    nli: NLI | None = None,
    judge: Judge | None = None,
) -> Outcome:
    """Rewrite `job.document` in `job.style`. `ask` answers prompts: `engine`, or what keeps its answers."""
    writer = _Writer(job, config, engine, ask, embedder, nli, judge)
    text = job.document["text"]
    segments = segment(text, config.segments.tokens)
    prose = sum(part.kind == "prose" for part in segments)
    wanted = max(1, prose if config.fallback == "drop" else config.rewritten * prose)
    pieces: list[str] = []
    record: list[dict[str, Any]] = []
    turns: list[Turn] = []
    failed = 0
    for window in windows(segments, config.segments.window):
        excerpt = text[window[0].start : window[-1].end]
        turns = turns[-CARRIED:]
        for part in window:
            if prose - failed < wanted:
                break
            said = writer.rewrite(excerpt, turns, part) if part.kind == "prose" else None
            if said is not None:
                turns.append(Turn(part.text, said))
            failed += part.kind == "prose" and said is None
            action = "block" if part.kind == "block" else "original" if said is None else "rewritten"
            pieces.append(part.text if said is None else _framed(part.text, said))
            record.append({"index": part.index, "start": part.start, "end": part.end, "action": action})
    outcome = writer.outcome
    accepted = prose - failed >= wanted
    outcome.ledger.close(job.name, job.document["domain"], prose, failed, accepted)
    if accepted:
        outcome.rewrite = _row(job, "".join(pieces).strip(), record, (prose - failed) / prose)
    return outcome


def windows(segments: list[Segment], tokens: int) -> list[list[Segment]]:
    """Consecutive segments whose texts together have at most `tokens` (a single longer one stands alone)."""
    found: list[list[Segment]] = []
    total = 0
    for part in segments:
        weight = estimate_tokens(part.text)
        if not found or total + weight > tokens:
            found.append([])
            total = 0
        found[-1].append(part)
        total += weight
    return found


def draw(seed: int, *parts: object) -> int:
    """31 bits that depend on everything named."""
    return xxhash.xxh3_64_intdigest(":".join(map(str, (seed, *parts))).encode()) & 0x7FFFFFFF


@dataclass
class _Writer:
    """Asks for one document's segments and holds each answer against its source."""

    job: Job
    config: RephraseConfig
    engine: Engine
    ask: Ask
    embedder: Embedder
    nli: NLI | None
    judge: Judge | None
    outcome: Outcome = field(default_factory=Outcome)

    def rewrite(self, excerpt: str, turns: list[Turn], part: Segment) -> str | None:
        """The accepted rewriting of `part`, or None; every attempt becomes a row."""
        for attempt in range(self.config.attempts):
            row = self._attempt(excerpt, turns, part, attempt)
            self.outcome.rows.append(row)
            if row["accepted"]:
                return row["rewrite_text"]
        return None

    def _attempt(self, excerpt: str, turns: list[Turn], part: Segment, attempt: int) -> dict[str, Any]:
        job, config, ledger = self.job, self.config, self.outcome.ledger
        identity, domain = job.document["id"], job.document["domain"]
        chat = messages(job.style, config.prompt, excerpt, turns, part.text, strict=attempt > 0)
        seed = draw(config.seed, identity, job.name, part.index, attempt)
        stretch = job.style.length[1] / config.alignment.length[1] if job.style.length else 1.0
        longest = int(config.answer * stretch * estimate_tokens(part.text)) + MARGIN
        row: dict[str, Any] = {
            "source_id": identity,
            "style": job.name,
            "index": part.index,
            "attempt": attempt,
            "prompt_hash": prompt_hash(chat),
            "engine": self.engine.name,
            "model": self.engine.model,
            "seed": seed,
            "source_text": part.text,
        }
        try:
            answer = self.ask(Prompt(chat, config.sampling, longest, seed, session=f"{identity}:{job.name}"))
        except PromptRefused as error:
            ledger.attempt(job.name, domain, "engine", None)
            return row | {
                "rewrite_text": "",
                "accepted": False,
                "reason": "engine",
                "why": str(error),
                "finish": "refused",
                "prompt_tokens": 0,
                "generated_tokens": 0,
                "scores": dict.fromkeys(RECORDED),
            }
        said = clean(answer.text)
        before = turns[-1].rewrite if turns else ""
        with ledger.checking():
            pair = Pair(part.text, said, answer.finish, job.style.length, job.style.adds, before)
            alignment = align(pair, config.alignment, self.embedder, nli=self.nli)
        if self.judge is not None:
            alignment = consult(self.judge, pair, alignment)
        ledger.attempt(job.name, domain, alignment.reason, answer)
        return row | {
            "rewrite_text": said,
            "accepted": alignment.accepted,
            "reason": alignment.reason,
            "why": alignment.why,
            "margin": alignment.margin,
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "generated_tokens": answer.generated_tokens,
            "scores": alignment.scores(),
        }


def _framed(source: str, said: str) -> str:
    """`said` between the blanks that its source began and ended with: the joints of the document stay as they were."""
    begin = source[: len(source) - len(source.lstrip())]
    end = source[len(source.rstrip()) :]
    return f"{begin}{said.strip()}{end}"


def _row(job: Job, text: str, record: list[dict[str, Any]], share: float) -> dict[str, Any]:
    document = job.document
    meta = {"rewritten": round(share, 4), "source_meta": document["meta"]}
    return {
        "id": xxhash.xxh3_128_hexdigest(text.encode()),
        "source_id": document["id"],
        "style": job.name,
        "text": text,
        **{name: document[name] for name in ("source", "url", "domain", "language", "licence")},
        "meta": json.dumps(meta, sort_keys=True, ensure_ascii=False),
        "segments": record,
    }
