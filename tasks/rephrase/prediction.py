"""What rewriting will cost, before anything is asked: a sample of the chosen documents is gone through as the stage
would, each answer being taken to be as long as its source, and accepted as often as was measured.

What an engine measured (tokens of its own to an estimated one, how much its prefix cache has, how long its answers are,
how fast it is, how often a segment is accepted) is kept beside its answers and makes the next prediction better.
"""

from __future__ import annotations

import heapq
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from model.engines.engine import Message, Price
from tasks.artifact import Artifact
from tasks.progress import clock
from tasks.rephrase.choice import DocumentBatch, read
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.document import CARRIED, Job, draw, laid_out, least_rewritten
from tasks.rephrase.ledger import own
from tasks.rephrase.prompts import Style, Turn, messages
from tasks.rephrase.segments import estimate_tokens
from tasks.report.words import short

SAMPLE = 200
"""Documents gone through; what more there are is scaled up."""
FILE = "measured.json"
ASKED = 14
"""Tokens that a question takes, the JSON around it included."""
FRAME = 4
"""Tokens that a message's frame takes."""
COMPARED = ("requests", "tokens_prompt", "tokens_cached", "tokens_generated", "money", "seconds")


@dataclass(frozen=True)
class Rates:
    """What is known of an engine and a rewriter; the defaults are assumptions."""

    prompt: float = 1.0
    """The engine's tokens to an estimated one of a prompt."""
    cached: float = 1.0
    """Tokens in the prefix cache to those that a prompt shares with the one before it in its document."""
    answer: float = 1.0
    """Generated tokens to an estimated one of the source, times the style's length."""
    first: float = 0.8
    """Share of segments accepted at the first attempt, with as many candidates as it had."""
    retry: float = 0.5
    """Share accepted of the later attempts."""
    generated_per_second: float = 0.0
    """Over all requests in flight, wall time; 0 while unknown."""
    measured: bool = False


@dataclass(frozen=True)
class Prediction:
    """What a run will take."""

    documents: int
    segments: int
    """Different ones, blocks apart."""
    requests: int
    tokens_prompt: int
    tokens_cached: int
    tokens_generated: int
    money: float
    seconds: float | None
    """None while the engine's speed is unknown."""
    basis: str
    """`measured` or `assumed`: where the rates are from."""

    def sentence(self) -> str:
        """`300 documents, 2,100 requests, 903k prompt tokens (612k cached), 310k generated, costing about 2.10, 25:00
        at the last measured rate`."""
        prompt, cached, generated = map(short, (self.tokens_prompt, self.tokens_cached, self.tokens_generated))
        money = f", costing about {self.money:,.2f}" if self.money else ""
        rate = "at the last measured rate" if self.seconds is not None else "for a time that nobody has measured yet"
        time = "" if self.seconds is None else f"{clock(self.seconds)} "
        return (
            f"{self.documents:,} documents, {self.requests:,} requests, {prompt} prompt tokens ({cached} cached), "
            f"{generated} generated{money}, {time}{rate}"
            + ("" if self.basis == "measured" else " (acceptance and lengths are assumed)")
        )


@dataclass(frozen=True)
class Outlook:
    """What a run of the stage would take, were it started now."""

    prediction: Prediction
    """Of the documents that are not written yet."""
    written: int
    """Documents that an earlier attempt has written."""
    answers_kept: bool
    """Whether an earlier run's answers are kept: what was asked then costs nothing."""


@dataclass(frozen=True)
class Survey:
    """One pass over the chosen documents."""

    documents: int
    written: int
    """Of them, those whose batches are written."""
    sample: tuple[DocumentBatch, ...]
    """Some of the others, drawn by seed."""
    batches: tuple[str, ...]
    """The keys of all."""


def survey(
    config: RephraseConfig, batches: Iterable[DocumentBatch], is_written: Callable[[DocumentBatch], bool]
) -> Survey:
    """Count the documents and draw a sample; holds no more than the sample and the batches' keys."""
    counts, keys = {True: 0, False: 0}, []

    def ranked() -> Iterator[tuple[int, str, int, DocumentBatch]]:
        for number, batch in enumerate(batches):
            keys.append(batch.key)
            done = is_written(batch)
            counts[done] += len(batch.ids)
            if not done:
                yield from ((draw(config.seed, "sample", name), name, number, batch) for name in batch.ids)

    drawn: dict[int, tuple[DocumentBatch, set[str]]] = {}
    for _, name, number, batch in heapq.nsmallest(SAMPLE, ranked(), key=lambda entry: entry[:3]):
        drawn.setdefault(number, (batch, set()))[1].add(name)
    some = [
        replace(batch, ids=tuple(name for name in batch.ids if name in names))
        for _, (batch, names) in sorted(drawn.items())
    ]
    return Survey(counts[True] + counts[False], counts[True], tuple(some), tuple(keys))


def predicted(config: RephraseConfig, corpus: Artifact, seen: Survey, rates: Rates, price: Price) -> Prediction:
    """What rewriting the documents that are not written will take, from the sample of them."""
    looked_at = sum(len(batch.ids) for batch in seen.sample)
    some = (job for _, found in read(config, corpus, seen.sample) for job, _ in found)
    return predict(config, some, looked_at, seen.documents - seen.written, rates, price)


def predict(
    config: RephraseConfig, sample: Iterable[Job], documents: float, whole: int, rates: Rates, price: Price
) -> Prediction:
    """What rewriting takes: `sample` of the jobs, those of `documents` documents, stands for `whole` documents."""
    total = dict.fromkeys(("segments", "requests", "prompt", "cached", "generated"), 0.0)
    for job in sample:
        _walk(config, job, rates, total)
    scale = whole / documents if documents else 0.0
    prompt = rates.prompt * total["prompt"] * scale
    cached = min(prompt, rates.prompt * rates.cached * total["cached"] * scale)
    generated = rates.answer * total["generated"] * scale
    speed = rates.generated_per_second
    return Prediction(
        documents=whole,
        segments=round(total["segments"] * scale),
        requests=round(total["requests"] * scale),
        tokens_prompt=round(prompt),
        tokens_cached=round(cached),
        tokens_generated=round(generated),
        money=round(price.of(prompt, cached, generated), 6),
        seconds=round(generated / speed, 1) if speed else None,
        basis="measured" if rates.measured else "assumed",
    )


def _walk(config: RephraseConfig, job: Job, rates: Rates, total: dict[str, float]) -> None:
    """Go through one document as `rewrite_document` does, drawing which attempts are accepted."""
    text, identity = job.document["text"], job.document["id"]
    segments, shown, plan = laid_out(job, config)
    prose = sum(part.kind == "prose" for part in segments)
    wanted = least_rewritten(job, config, prose)
    total["segments"] += prose
    turns: list[Turn] = []
    before: tuple[Message, ...] = ()
    failed = 0
    for window in shown:
        excerpt, turns = text[window[0].start : window[-1].end], turns[-CARRIED:]
        for part in window:
            if part.kind != "prose" or prose - failed < wanted:
                continue
            accepted = False
            for attempt in range(config.attempts):
                longest = config.alignment.length[1]
                chat = messages(
                    job.style, config.prompt, excerpt, turns, part.text, attempt > 0, longest=longest, plan=plan
                )
                for _ in range(config.best_of):
                    total["requests"] += 1
                    total["prompt"] += weigh(chat)
                    total["cached"] += shared(before, chat)
                    total["generated"] += answer_weight(job.style, part.text)
                    before = (*chat, Message("assistant", part.text))
                place = draw(config.seed, "predicted", identity, job.name, part.index, attempt) / 2**31
                if accepted := place < (rates.retry if attempt else rates.first):
                    turns.append(Turn(part.text, part.text))
                    break
            failed += not accepted


@lru_cache(maxsize=1024)
def _weight(text: str) -> int:
    return estimate_tokens(text) + FRAME


def weigh(chat: Sequence[Message]) -> int:
    """Estimated tokens of a prompt."""
    return sum(_weight(message.content) for message in chat)


def shared(before: Sequence[Message], chat: Sequence[Message]) -> int:
    """Estimated tokens at the beginning of `chat` that `before`, the prompt before it and its answer, has too."""
    tokens = 0
    for old, new in zip(before, chat, strict=False):
        if old == new:
            tokens += _weight(new.content)
            continue
        if old.role == new.role:
            alike = takewhile(lambda both: both[0] == both[1], zip(old.content, new.content, strict=False))
            tokens += estimate_tokens("".join(sign for sign, _ in alike))
        break
    return tokens


def answer_weight(style: Style, source: str) -> float:
    """Estimated tokens of a rewriting of `source`: as many, or what the style's band of lengths says; of a question as
    many as one has."""
    if style.asks:
        return ASKED
    middle = math.sqrt(style.length[0] * style.length[1]) if style.length else 1.0
    return middle * estimate_tokens(source)


def comparison(predicted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Predicted beside actual, for what is worth comparing; a ratio of None where nothing was predicted."""
    actual = {**found, "seconds": found["seconds_wall"]}
    table = {}
    for name in COMPARED if predicted else ():
        expected, came = predicted[name], actual[name]
        table[name] = {
            "predicted": expected,
            "actual": came,
            "ratio": round(came / expected, 4) if expected else None,
        }
    return table


def known_rates(folder: Path, engine: str, model: str) -> Rates:
    """What was measured of this engine and model, or the assumptions."""
    record = _read(folder).get(f"{engine}|{model}")
    names = {field.name for field in fields(Rates)} - {"measured"}
    if not isinstance(record, dict) or not all(isinstance(record.get(name), int | float) for name in names):
        return Rates()
    return Rates(**{name: float(record[name]) for name in names}, measured=True)


def keep_rates(folder: Path, engine: str, model: str, counts: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Remember what a finished run measured; it must have asked something itself."""
    assumed, generated = Rates(), own(found)[2]
    if not generated or not found["asked"]:
        return

    def ratio(part: float, whole: float, otherwise: float) -> float:
        return round(part / whole, 4) if whole else otherwise

    rates = Rates(
        prompt=ratio(counts.get("measured_prompt", 0), counts.get("estimated_prompt", 0), assumed.prompt),
        cached=ratio(counts.get("measured_cached", 0), counts.get("estimated_cached", 0), assumed.cached),
        answer=ratio(counts.get("measured_generated", 0), counts.get("expected_generated", 0), assumed.answer),
        first=found["first_rate"],
        retry=ratio(found["accepted_retry"], counts.get("attempts_again", 0), assumed.retry),
        generated_per_second=ratio(generated, found["seconds_wall"], 0.0),
    )
    record = _read(folder) | {f"{engine}|{model}": asdict(rates)}
    scratch = folder / f"{FILE}.{os.getpid()}"
    scratch.write_text(json.dumps(record, indent=1, sort_keys=True))
    scratch.replace(folder / FILE)


def _read(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / FILE).read_text())
    except (FileNotFoundError, ValueError):
        return {}  # measured for the first time
    return record if isinstance(record, dict) else {}
