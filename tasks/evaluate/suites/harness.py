"""A subject as a model of EleutherAI's lm-evaluation-harness (`lm_eval` 0.4), so that its tasks run on what we train.

lm_eval.simple_evaluate(model=harness(Network(model, chat)), tasks=["arc_easy"])

The library is an extra and is imported here alone, when a model is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tasks.evaluate.suites.subject import Ask, Subject

MAX_NEW_TOKENS = 256


def harness(subject: Subject, form: str = "raw") -> Any:
    """An `lm_eval.api.model.LM` that answers as `subject` does: texts are continued (`raw`), or asked as a user's turn
    (`chat`, which is all that an endpoint can do)."""
    from lm_eval.api.model import LM  # an extra

    class Adapter(LM):  # type: ignore[misc, valid-type]
        """What the harness asks of a model."""

        def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return likelihoods(subject, requests)

        def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
            return [log_p for log_p, _ in likelihoods(subject, requests)]

        def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
            return continuations(subject, requests, form)

    return Adapter()


def likelihoods(subject: Subject, requests: Sequence[Any]) -> list[tuple[float, bool]]:
    """(log-likelihood, whether greedy) of each request's continuation; a request of one text is likely by itself."""
    pairs = [(one.args[0], one.args[1]) if len(one.args) == 2 else ("", one.args[0]) for one in requests]
    return [(told.log_p, told.greedy) for told in subject.likelihoods(pairs)]


def continuations(subject: Subject, requests: Sequence[Any], form: str = "raw") -> list[str]:
    """What is generated for each request, cut at the first of its `until`; empty where the window has no room."""
    asks = []
    for place, one in enumerate(requests):
        options = dict(one.args[1])
        asks.append(
            Ask.of(
                form,
                one.args[0],
                max_new_tokens=int(options.get("max_gen_toks", MAX_NEW_TOKENS)),
                temperature=float(options.get("temperature") or 0.0) if options.get("do_sample") else 0.0,
                seeds=(place,),
            )
        )
    found = []
    for one, replies in zip(requests, subject.replies(asks), strict=True):
        until = one.args[1].get("until") or []
        stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]  # an empty one stops nothing
        said = replies[0].content if replies else ""
        found.append(re.split("|".join(map(re.escape, stops)), said, maxsplit=1)[0] if stops else said)
    return found
