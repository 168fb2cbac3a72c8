"""The ledger: what a batch of documents cost and how much of it was accepted; adds up over batches and attempts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from model.engines.engine import Completion


@dataclass
class Ledger:
    """Counts of one document, one batch or the whole stage."""

    counts: dict[str, Any] = field(default_factory=dict)
    """A tree of sums: the stage's statistics."""

    def attempt(self, style: str, domain: str, reason: str, answer: Completion | None) -> None:
        """One attempt at one segment, `reason` naming the check that refused it."""
        accepted = int(not reason)
        change: dict[str, Any] = {
            "segments": 1,
            "accepted": accepted,
            "by_style": {style: {"segments": 1, "accepted": accepted}},
            "by_domain": {domain: {"segments": 1, "accepted": accepted}},
        }
        if reason:
            change["rejected_by_check"] = {reason: 1}
        if answer is not None:
            change |= {
                "tokens_generated": answer.generated_tokens,
                "tokens_prompt": answer.prompt_tokens,
                "tokens_cached": answer.cached_tokens,
                "seconds_generating": answer.seconds,
            }
        add(self.counts, change)

    def revoke(self, style: str, domain: str, reason: str) -> None:
        """An accepted segment goes back to its original, `reason` naming the check of the whole document."""
        change = {"accepted": -1}
        add(self.counts, {**change, "by_style": {style: change}, "by_domain": {domain: change}})
        add(self.counts, {"rejected_by_check": {reason: 1}})

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Time the alignment check."""
        began = time.thread_time()
        try:
            yield
        finally:
            add(self.counts, {"seconds_checking": time.thread_time() - began})

    def close(self, style: str, domain: str, prose: int, failed: int, accepted: bool) -> None:
        """The end of one document of `prose` segments, `failed` of which no attempt rewrote."""
        counts = {"documents_tried": 1, "documents": int(accepted)}
        fallbacks = failed if accepted else 0
        add(self.counts, {**counts, "fallbacks": fallbacks, "by_style": {style: counts}, "by_domain": {domain: counts}})


def add(total: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Add a tree of numbers to another, in place."""
    for name, value in change.items():
        if isinstance(value, Mapping):
            add(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


def statistics(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The stage's statistics: every count, 0 where nothing happened, and the acceptance rate; in a fixed order."""
    names = (
        "documents",
        "documents_tried",
        "segments",
        "accepted",
        "fallbacks",
        "tokens_generated",
        "tokens_prompt",
        "tokens_cached",
    )
    found: dict[str, Any] = {name: counts.get(name, 0) for name in names}
    found["acceptance_rate"] = found["accepted"] / found["segments"] if found["segments"] else 0.0
    for name in ("seconds_generating", "seconds_checking"):
        found[name] = round(counts.get(name, 0.0), 3)
    for name in ("by_style", "by_domain"):
        # a document without prose ends without an attempt
        none = {"segments": 0, "accepted": 0}
        found[name] = {key: dict(sorted((none | value).items())) for key, value in sorted(counts.get(name, {}).items())}
    found["rejected_by_check"] = dict(sorted(counts.get("rejected_by_check", {}).items()))
    return found
