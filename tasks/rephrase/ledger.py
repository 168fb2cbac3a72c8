"""The ledger: what a batch of documents cost and how much of it was accepted; adds up over batches and attempts.

A cell counts the same things for the whole stage, a style, a domain and a style within a domain. `segments` are
attempts at segments, each candidate for itself; `asked` are different segments.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from model.engines.engine import Completion, Price
from tasks.rephrase.alignment.reading import CachedReaders

ATTEMPTS = ("segments", "accepted", "asked", "accepted_first", "retried", "accepted_retry", "failed", "fallbacks")
DOCUMENTS = ("documents", "documents_tried", "documents_dropped")
TOKENS = ("tokens_generated", "tokens_prompt", "tokens_cached")
REUSED = ("requests_reused", *(f"{name}_reused" for name in TOKENS))
FIRST = ("documents", "documents_tried", "segments", "accepted", "fallbacks", *TOKENS)
"""What the statistics begin with."""


@dataclass
class Ledger:
    """Counts of one document, one batch or the whole stage."""

    counts: dict[str, Any] = field(default_factory=dict)
    """A tree of sums: the stage's statistics."""

    def attempt(self, style: str, domain: str, reason: str, answer: Completion | None) -> None:
        """One candidate for one segment, `reason` naming the check that refused it."""
        change: dict[str, Any] = {"segments": 1, "accepted": int(not reason)}
        if reason:
            change["rejected_by_check"] = {reason: 1}
        self._everywhere(style, domain, change)
        if answer is not None:
            spent = {
                "tokens_generated": answer.generated_tokens,
                "tokens_prompt": answer.prompt_tokens,
                "tokens_cached": answer.cached_tokens,
                "seconds_generating": answer.seconds,
            }
            add(self.counts, spent)

    def revoke(self, style: str, domain: str, reason: str) -> None:
        """An accepted candidate is not taken after all; `reason`: the check of the whole document, or a better one."""
        self._everywhere(style, domain, {"accepted": -1, "rejected_by_check": {reason: 1}})

    @contextmanager
    def checking(self, reader: CachedReaders) -> Iterator[None]:
        """Count the CPU-seconds of the alignment check: this thread's, and the network's wherever it reads."""
        began = time.thread_time() + reader.seconds
        try:
            yield
        finally:
            add(self.counts, {"seconds_checking": time.thread_time() + reader.seconds - began})

    def close(self, style: str, domain: str, prose: int, failed: int, accepted: bool) -> None:
        """The end of one document of `prose` segments, `failed` of which no attempt rewrote."""
        change = {
            "documents_tried": 1,
            "documents": int(accepted),
            "documents_dropped": int(not accepted),
            "fallbacks": failed if accepted else 0,
        }
        self._everywhere(style, domain, change)

    def retries(self, style: str, domain: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """What became of each segment of one document over its attempts, from the rows that record them."""
        attempts: dict[int, dict[int, bool]] = {}
        for row in rows:
            tries = attempts.setdefault(row["index"], {})
            tries[row["attempt"]] = tries.get(row["attempt"], False) or bool(row["accepted"])  # one of its candidates
        found = [list(tries.values()) for tries in attempts.values()]
        self._everywhere(
            style,
            domain,
            {
                "asked": len(found),
                "accepted_first": sum(tries[0] for tries in found),
                "retried": sum(len(tries) > 1 for tries in found),
                "accepted_retry": sum(any(tries[1:]) for tries in found),
                "failed": sum(not any(tries) for tries in found),
            },
        )
        add(self.counts, {"attempts_again": sum(len(tries) - 1 for tries in found)})

    def request(self, answer: Completion, reused: bool) -> None:
        """One answer; `reused` where another run has paid for it."""
        add(self.counts, {"requests": 1, "usage_estimated": int(answer.estimated)})
        if reused:
            add(self.counts, dict(zip(REUSED, _spent(answer), strict=True)))

    def judged(self, answer: Completion, reused: bool) -> None:
        """One answer of the alignment's judge."""
        add(self.counts, {"judge": dict(zip(("requests", *TOKENS), _spent(answer), strict=True))})
        if reused:
            add(self.counts, {"judge": dict(zip(REUSED, _spent(answer), strict=True))})

    def _everywhere(self, style: str, domain: str, change: Mapping[str, Any]) -> None:
        add(self.counts, change)
        where = {
            "by_style": {style: change},
            "by_domain": {domain: change},
            "by_style_domain": {style: {domain: change}},
        }
        add(self.counts, where)


def _spent(answer: Completion) -> tuple[int, ...]:
    """One request, and its TOKENS."""
    return 1, answer.generated_tokens, answer.prompt_tokens, answer.cached_tokens


def add(total: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Add a tree of numbers to another, in place."""
    for name, value in change.items():
        if isinstance(value, Mapping):
            add(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


def cell(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Every count and rate of one cell, 0 where nothing happened; in a fixed order."""
    found: dict[str, Any] = {name: counts.get(name, 0) for name in (*ATTEMPTS, *DOCUMENTS)}
    for rate, part, whole in (
        ("acceptance_rate", "accepted", "segments"),
        ("first_rate", "accepted_first", "asked"),
        ("final_rate", "accepted", "asked"),
        ("retry_rate", "retried", "asked"),
        ("fallback_rate", "failed", "asked"),
    ):
        found[rate] = found[part] / found[whole] if found[whole] else 0.0
    found["rejected_by_check"] = dict(sorted(counts.get("rejected_by_check", {}).items()))
    return dict(sorted(found.items()))


def statistics(counts: Mapping[str, Any], price: Price | None = None) -> dict[str, Any]:
    """The stage's statistics: every count, 0 where nothing happened, the rates, and what it cost; in a fixed order."""
    found: dict[str, Any] = {name: counts.get(name, 0) for name in FIRST}
    found |= {name: value for name, value in cell(counts).items() if name not in found}
    found |= {name: counts.get(name, 0) for name in ("requests", "usage_estimated", *REUSED)}
    found["money"] = round((price or Price()).of(*own(found)), 6)
    judge = counts.get("judge", {})
    found["judge"] = {name: judge.get(name, 0) for name in ("requests", *TOKENS, *REUSED)}
    for name in ("seconds_generating", "seconds_checking", "seconds_wall"):
        found[name] = round(counts.get(name, 0.0), 3)
    found["tokens_per_estimate"] = {
        name: round(counts[f"measured_{name}"] / counts[f"estimated_{name}"], 4)
        if counts.get(f"estimated_{name}")
        else None
        for name in ("prompt", "generated")
    }
    for name in ("by_style", "by_domain"):
        found[name] = {key: cell(value) for key, value in sorted(counts.get(name, {}).items())}
    found["by_style_domain"] = {
        style: {domain: cell(value) for domain, value in sorted(domains.items())}
        for style, domains in sorted(counts.get("by_style_domain", {}).items())
    }
    return found


def own(found: Mapping[str, Any]) -> tuple[int, int, int]:
    """Prompt, cached and generated tokens of the answers that nobody else has paid for."""
    prompt, cached, generated = (
        found[name] - found[f"{name}_reused"] for name in ("tokens_prompt", "tokens_cached", "tokens_generated")
    )
    return prompt, cached, generated
