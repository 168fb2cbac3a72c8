"""One document rewritten: segment by segment, each given the original and what has been rewritten of it so far.

An attempt at a segment draws `best_of` candidates and takes the one that passes the alignment check by the best margin.
Where none passes, it is tried again with another seed and a stricter prompt; where no attempt passes, its original text
stays (or the document is dropped: `fallback`). A document ends early once it can no longer reach its share of rewritten
segments. What was joined is then read as a whole; a segment that makes the whole stammer goes back to its original.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any, Literal

import xxhash

from model.engines.engine import Engine, Message, Prompt, PromptRefused, PromptTooLong
from tasks.rephrase.alignment import joints
from tasks.rephrase.alignment.answer import clean
from tasks.rephrase.alignment.judge import UNASKED, Ask, Judge
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.question import SCHEMA, answered, corrected, reply
from tasks.rephrase.alignment.reading import CachedReaders, Readers
from tasks.rephrase.alignment.solution import essential
from tasks.rephrase.alignment.stack import RECORDED, align, consult
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.ledger import Ledger
from tasks.rephrase.plan import NO_PLAN, Plan, plan_of
from tasks.rephrase.prompts import (
    Refusal,
    Style,
    Turn,
    instructions,
    messages,
    planned,
    prompt_hash,
    restored,
    spellings,
)
from tasks.rephrase.segments import Segment, estimate_tokens, segment

log = logging.getLogger(__name__)

MARGIN = 16
"""Tokens an answer may always have, so that a short segment is not cut by a rounding."""
QUESTION = 48
"""Tokens that a question may have."""
CARRIED = 1
"""Rewritten segments that the first prompt of a document's next window is given."""
ENGINE = "engine"
"""The reason of an attempt that the engine refused."""
TOO_LONG = "the prompt is too long for the engine's context"
REFUSED = "the engine refused the prompt"
OUTDONE = "best_of"
"""The reason of a candidate that passed the check and was not taken: another one of its attempt was better."""
TOKEN = 24
"""Characters that no token has on the average: an answer of more is cut before it is read, whatever the engine says."""


@dataclass(frozen=True)
class Job:
    """One document in one style."""

    document: dict[str, str]
    """A row of the corpus."""
    name: str
    """The style's name."""
    style: Style
    """The style, told from the perspective and at the level of detail."""
    perspective: str = ""
    """The perspective's name."""
    detail: str = ""
    """The level of detail's name."""


@dataclass
class Outcome:
    """What became of a job."""

    rewrite: dict[str, Any] | None = None
    """A row of `rewrites/`, None where the document was not accepted."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `segments/`: every candidate of every attempt."""
    verdict: dict[str, Any] = field(default_factory=dict)
    """A row of `outcomes/`: whether the document was accepted, or why not."""
    ledger: Ledger = field(default_factory=Ledger)


@dataclass
class _Piece:
    """A segment and what stands for it."""

    segment: Segment
    text: str
    action: Literal["rewritten", "original", "block"]


def rewrite_document(
    job: Job,
    config: RephraseConfig,
    engine: Engine,
    ask: Ask,
    networks: Readers,
    judge: Judge | None = None,
) -> Outcome:
    """Rewrite `job.document` in `job.style`. `ask` answers prompts: `engine`, or what keeps its answers."""
    segments, shown, plan = laid_out(job, config)
    writer = _Writer(job, config, engine, ask, CachedReaders(networks), judge, segments, plan)
    text = job.document["text"]
    prose = sum(part.kind == "prose" for part in segments)
    wanted = least_rewritten(job, config, prose)
    pieces, turns = writer.pieces, list[Turn]()
    failed = 0
    for window in shown:
        excerpt = text[window[0].start : window[-1].end]
        turns = turns[-CARRIED:]
        for part in window:
            if prose - failed < wanted:
                break
            said = writer.rewrite(excerpt, turns, part) if part.kind == "prose" else None
            if said is None:
                failed += part.kind == "prose"
                pieces.append(_Piece(part, part.text, "original" if part.kind == "prose" else "block"))
            else:
                turns.append(Turn(part.text, reply(writer.asked[-1]) if job.style.asks else said))
                pieces.append(_Piece(part, _framed(part.text, said), "rewritten"))
    scores: dict[str, float | None] = dict.fromkeys(joints.NAMES)
    reason, why = "", ""
    if not prose:
        reason, why = "prose", "the document has no prose to rewrite"
    elif prose - failed < wanted:
        reason, why = "share", f"{failed} of {prose} segments were not rewritten"
    else:
        taken_back, findings = writer.read_whole()
        failed += taken_back
        scores = {finding.check: round(finding.score, 4) for finding in findings}
        refused = next((finding for finding in findings if not finding.passed), None)
        if refused is not None:
            reason, why = refused.check, refused.why
        elif prose - failed < wanted:
            reason, why = "share", f"{failed} of {prose} segments were not rewritten, {taken_back} of them taken back"
    outcome = writer.outcome
    outcome.ledger.close(job.name, job.document["domain"], prose, failed, not reason)
    outcome.verdict = {
        **_named(job),
        "domain": job.document["domain"],
        "language": job.document["language"],
        "segments": prose,
        "rewritten": prose - failed if len(pieces) == len(segments) else None,
        "accepted": not reason,
        "reason": reason,
        "why": why,
        "scores": scores,
    }
    if not reason:
        outcome.rewrite = _row(job, pieces, (prose - failed) / prose)
    return outcome


def least_rewritten(job: Job, config: RephraseConfig, prose: int) -> float:
    """How many of a document's `prose` segments have to be rewritten, or it is refused: of a translation all, which
    would be of two languages otherwise."""
    every = config.fallback == "drop" or job.style.translates
    return max(1, prose if every else config.rewritten * prose)


def laid_out(job: Job, config: RephraseConfig) -> tuple[list[Segment], list[list[Segment]], Plan]:
    """A document's segments, the same by windows, and its plan: with no lines where one window shows everything, else
    taken off every window."""
    text, size = job.document["text"], config.segments
    segments = segment(text, size.tokens)
    found = windows(segments, size.window)
    if len(found) < 2:
        return segments, found, NO_PLAN
    plan = plan_of(text, segments, int(size.plan * size.window))
    spent = estimate_tokens(planned(plan, job.style, config.prompt))
    return segments, windows(segments, size.window - spent), plan


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
    reader: CachedReaders
    judge: Judge | None
    segments: list[Segment]
    plan: Plan
    pieces: list[_Piece] = field(default_factory=list)
    """What stands for the segments so far."""
    asked: list[str] = field(default_factory=list)
    """The questions that were accepted so far, in a style that asks."""
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self._spelled = spellings(self.job.document["text"])

    def rewrite(self, excerpt: str, turns: list[Turn], part: Segment) -> str | None:
        """The accepted rewriting of `part`, or None; every candidate becomes a row."""
        refused, longest = Refusal(), self.config.alignment.length[1]
        source = essential(part.text) if self.job.style.notes else part.text
        self.reader.keep(source)
        for attempt in range(self.config.attempts):
            style, size = self.job.style, self.config.prompt
            chat = messages(
                style, size, excerpt, turns, part.text, attempt > 0, refused, longest=longest, plan=self.plan
            )
            row = self._best(chat, source, part, attempt)
            if row["accepted"]:
                if row["question"]:
                    self.asked.append(row["question"])
                return row["rewrite_text"]
            if row["why"] == TOO_LONG:
                break  # no later prompt is shorter
            refused = Refusal()  # where an engine took no request: that is no word on the answer
            if row["reason"] != ENGINE and row["why"] != UNASKED:
                refused = Refusal(f"{row['reason']}: {row['why']}", row["source_sentence"], row["rewrite_sentence"])
        return None

    def _best(self, chat: tuple[Message, ...], source: str, part: Segment, attempt: int) -> dict[str, Any]:
        """The row of the best candidate of one attempt. One by one and each with its own seed, not as several choices
        of one request: so a run with more candidates, or one that was killed, finds the answers that are kept, on any
        engine; and all but the first find their prompt in the prefix cache."""
        rows: list[dict[str, Any]] = []
        for candidate in range(self.config.best_of):
            rows.append(self._candidate(chat, source, part, attempt, candidate))
            if rows[-1]["reason"] == ENGINE:
                break  # what an engine refuses is the prompt, which is the same for all
        self.outcome.rows += rows
        best = max(rows, key=lambda row: (row["accepted"], row["margin"] if row["margin"] is not None else -1.0))
        for row in rows:
            if row["accepted"] and row is not best:
                self._take_back(row, OUTDONE, "another candidate of this attempt passed by a better margin")
        return best

    def _candidate(
        self, chat: tuple[Message, ...], source: str, part: Segment, attempt: int, candidate: int
    ) -> dict[str, Any]:
        job, config, ledger = self.job, self.config, self.outcome.ledger
        style, identity, domain = job.style, job.document["id"], job.document["domain"]
        place = (part.index, attempt, candidate) if candidate else (part.index, attempt)
        seed = draw(config.seed, identity, job.name, *place)
        longest = QUESTION if style.asks else int(self._stretch() * estimate_tokens(part.text)) + MARGIN
        row: dict[str, Any] = {
            **_named(job),
            "domain": domain,
            "index": part.index,
            "attempt": attempt,
            "candidate": candidate,
            "prompt_hash": prompt_hash(chat),
            "engine": self.engine.name,
            "model": self.engine.model,
            "seed": seed,
            "source_text": part.text,
            "question": "",
            "source_sentence": "",
            "rewrite_sentence": "",
        }
        try:
            schema = SCHEMA if style.asks else ""
            session = f"{identity}:{job.name}"
            answer = self.ask(Prompt(chat, config.sampling, longest, seed, session=session, schema=schema))
        except PromptRefused as error:
            # Only told here: with an endpoint's URL or its request's number no two runs would record the same.
            log.info("%s, segment %d: %s", identity, part.index, error)
            ledger.attempt(job.name, domain, ENGINE, None)
            return row | {
                "rewrite_text": "",
                "accepted": False,
                "reason": ENGINE,
                "why": TOO_LONG if isinstance(error, PromptTooLong) else REFUSED,
                "margin": None,
                "finish": "refused",
                "prompt_tokens": 0,
                "generated_tokens": 0,
                "scores": dict.fromkeys(RECORDED),
            }
        endless = len(answer.text) > TOKEN * longest
        said = restored(clean(answer.text[: TOKEN * longest]), self._spelled)
        question = corrected(said, part.text) if style.asks else ""
        if question:
            said = answered(question, part.text)
        before = self.pieces[-1] if self.pieces else None
        following = self.segments[part.index + 1 : part.index + 2]
        with ledger.checking(self.reader):
            pair = Pair(
                source,
                said,
                "length" if endless else answer.finish,
                style.length,
                style.adds,
                before.text if before else "",
                before_source=before.segment.text if before else "",
                after_source=following[0].text if following else "",
                notes=style.notes,
                translated=job.document["language"] if style.translates else "",
                prompt=instructions(style, config.prompt),
                question=question,
                asked=tuple(self.asked),
            )
            alignment = align(pair, config.alignment, self.reader)
        if self.judge is not None:
            alignment = consult(self.judge, pair, alignment)
        failed = alignment.failed
        ledger.attempt(job.name, domain, alignment.reason, answer)
        return row | {
            "rewrite_text": said,
            "question": question,
            "accepted": alignment.accepted,
            "reason": alignment.reason,
            "why": alignment.why,
            "source_sentence": failed.source_sentence if failed else "",
            "rewrite_sentence": failed.rewrite_sentence if failed else "",
            "margin": alignment.margin,
            "finish": answer.finish,
            "prompt_tokens": answer.prompt_tokens,
            "generated_tokens": answer.generated_tokens,
            "scores": alignment.scores(),
        }

    def read_whole(self) -> tuple[int, list[joints.Finding]]:
        """(segments that went back to their originals, what the checks of the whole document say after that)."""
        language = self.job.document["language"] if self.job.style.translates else ""
        taken_back = 0
        while True:
            joined = [
                joints.Piece(piece.segment.text, piece.text, piece.action == "rewritten") for piece in self.pieces
            ]
            with self.outcome.ledger.checking(self.reader):
                findings = joints.examine(joined, self.config.alignment, language)
            refused = next((finding for finding in findings if not finding.passed and finding.guilty), None)
            if refused is None:
                return taken_back, findings
            for place, sentence in refused.guilty.items():
                guilty = self.pieces[place]
                guilty.text, guilty.action = guilty.segment.text, "original"
                row = next(row for row in self.outcome.rows if row["accepted"] and row["index"] == guilty.segment.index)
                self._take_back(row, refused.check, joints.said_again(sentence))
                row["rewrite_sentence"] = sentence
            taken_back += len(refused.guilty)

    def _take_back(self, row: dict[str, Any], reason: str, why: str) -> None:
        """What the check of the segment accepted is not taken after all."""
        row |= {"accepted": False, "reason": reason, "why": why}
        self.outcome.ledger.revoke(self.job.name, self.job.document["domain"], reason)

    def _stretch(self) -> float:
        """Longest answer in tokens of its source: longer for a style or a language pair whose band reaches further."""
        config, style = self.config, self.job.style
        if style.translates:
            return config.answer  # tokens, not characters: a Chinese character is one, and so is an English word
        return config.answer * (max(1.0, style.length[1] / config.alignment.length[1]) if style.length else 1.0)


def _named(job: Job) -> dict[str, str]:
    return {
        "source_id": job.document["id"],
        "style": job.name,
        "perspective": job.perspective,
        "detail": job.detail,
    }


def _framed(source: str, said: str) -> str:
    """`said` between the blanks that its source began and ended with: the joints of the document stay as they were."""
    begin = source[: len(source) - len(source.lstrip())]
    end = source[len(source.rstrip()) :]
    return f"{begin}{said.strip()}{end}"


def _row(job: Job, pieces: list[_Piece], share: float) -> dict[str, Any]:
    document = job.document
    text = "".join(piece.text for piece in pieces).strip()
    meta = {"rewritten": round(share, 4), "source_meta": document["meta"]}
    record = [
        {"index": piece.segment.index, "start": piece.segment.start, "end": piece.segment.end, "action": piece.action}
        for piece in pieces
    ]
    return {
        "id": xxhash.xxh3_128_hexdigest(text.encode()),
        **_named(job),
        "text": text,
        **{name: document[name] for name in ("source", "url", "domain", "language", "licence")},
        **({"language": "en"} if job.style.translates else {}),
        "meta": json.dumps(meta, sort_keys=True, ensure_ascii=False),
        "segments": record,
    }
