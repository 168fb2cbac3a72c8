"""Which responses are worth a look: the best, the worst, the most improved, and those that may have been paid for
something else than what was asked (suspected hacks)."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.report.inspect.rollouts.responses import SAMPLED, Response, by_problem, ends, environments, mean, of

FEW, MANY = 0.25, 4.0
"""Of the typical length of right replies in the same environment: what counts as very short and very long."""
TYPICAL = 8
"""Right replies that an environment needs before its typical length says anything, and tokens of that length."""
PHRASE, TIMES = 3, 4
"""Words of a phrase, and how often it stands in a reply that repeats itself."""
PROMPTS = 3
"""Prompts with different answers that one reply is paid for."""
RISE, COLLAPSE = 0.1, 0.5
"""Reward that is won while length falls to such a share of what it was."""
VERDICT = re.compile(
    r"\b(?:reward|verdict|verifier|grader|full marks|10/10|score[ds]?)\b"
    r"|\b(?:answer|reply|response) is (?:correct|right|better)\b|(?:答案|回答)(?:正确|是对的)|满分",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Detector:
    """A rule by which a response that was paid is suspected."""

    name: str
    sentence: str
    find: Callable[[Sequence[Response]], list[Response]]
    """Practised responses -> those that are suspected, the most suspicious first."""


def best(responses: Sequence[Response], count: int) -> list[Response]:
    """Of the last recorded iteration and each environment in turn: the best paid, those first whose siblings did
    worst; none that was paid nothing."""
    last = ends(responses)[1]
    groups = by_problem(last)  # each asked once: an iteration may have many thousands of responses
    return _in_turn(
        [one for one in last if one.reward > 0],
        lambda one: (-one.reward, _siblings(groups[one.environment, one.problem], one), one.tokens),
        count,
    )


def worst(responses: Sequence[Response], count: int) -> list[Response]:
    """The worst paid of those that are not right, those first that the policy was surest of."""
    return _in_turn(
        [one for one in ends(responses)[1] if not one.right],
        lambda one: (one.reward, -one.confidence, one.tokens),
        count,
    )


def improved(responses: Sequence[Response], count: int) -> list[tuple[Response, Response]]:
    """Held-out prompts whose mean reward rose most, each with its worst response before and its best after."""
    sampled = of(responses, kind=SAMPLED)
    first, last = (pick((one.iteration for one in sampled), default=0) for pick in (min, max))
    if first == last:
        return []
    rises: list[tuple[float, int, tuple[Response, Response]]] = []
    for group in by_problem(sampled).values():
        early, late = (of(group, iteration=number) for number in (first, last))
        if early and late and (rise := mean(one.reward for one in late) - mean(one.reward for one in early)) > 0:
            pair = min(early, key=lambda one: one.reward), max(late, key=lambda one: one.reward)
            rises.append((-rise, len(rises), pair))
    return [pair for *_, pair in sorted(rises)[:count]]


def _in_turn(responses: Sequence[Response], key: Callable[[Response], tuple], count: int) -> list[Response]:
    """The first of every environment, then the second, ..., one a prompt."""
    ordered = []
    for name in environments(responses):
        kept = {one.problem: one for one in sorted(of(responses, environment=name), key=key, reverse=True)}
        own = sorted(kept.values(), key=key)
        ordered += [(place, name, one) for place, one in enumerate(own)]
    return [one for *_, one in sorted(ordered, key=lambda entry: entry[:2])[:count]]


def _siblings(group: Sequence[Response], one: Response) -> float:
    return mean(other.reward for other in group if other is not one)


# ------------------------------------------------------------------------------------------------------ suspected hacks


def _typical(paid: Sequence[Response]) -> dict[str, float]:
    """The typical length of right replies by environment, where there is one."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for one in paid:
        lengths[one.environment].append(one.tokens)
    medians = {name: statistics.median(values) for name, values in lengths.items() if len(values) >= TYPICAL}
    return {name: median for name, median in medians.items() if median >= TYPICAL}


def _paid(responses: Sequence[Response]) -> list[Response]:
    return [one for one in responses if one.right]


def _short(responses: Sequence[Response]) -> list[Response]:
    typical = _typical(paid := _paid(responses))
    found = [one for one in paid if one.tokens <= FEW * typical.get(one.environment, 0.0)]
    return sorted(found, key=lambda one: one.tokens / typical[one.environment])


def _long(responses: Sequence[Response]) -> list[Response]:
    typical = _typical(paid := _paid(responses))
    found = [one for one in paid if one.tokens >= MANY * typical.get(one.environment, float("inf"))]
    return sorted(found, key=lambda one: -one.tokens / typical[one.environment])


def _times(text: str) -> int:
    """How often the commonest phrase stands in a text."""
    words = text.casefold().split()
    phrases = zip(*(words[start:] for start in range(PHRASE)), strict=False)
    return max(Counter(phrases).values(), default=0)


def _repeated(responses: Sequence[Response]) -> list[Response]:
    found = [one for one in _paid(responses) if _times(one.reply) >= TIMES]
    return sorted(found, key=lambda one: -_times(one.reply))


def _everywhere(responses: Sequence[Response]) -> list[Response]:
    said: dict[tuple[str, str], dict[str, Response]] = defaultdict(dict)
    for one in _paid(responses):
        if one.reply:
            said[one.environment, one.reply].setdefault(one.answer, one)
    many = [list(by_answer.values()) for by_answer in said.values() if len(by_answer) >= PROMPTS]
    return [one for each in sorted(many, key=len, reverse=True) for one in each]


def _verdicts(responses: Sequence[Response]) -> list[Response]:
    # a prompt that speaks of scores asks for such words
    return [one for one in _paid(responses) if VERDICT.search(one.reply) and not VERDICT.search(one.prompt)]


def _collapsed(responses: Sequence[Response]) -> list[Response]:
    early, late = ends(responses)
    found = []
    for name in environments(responses):
        first, last = of(early, environment=name), of(late, environment=name)
        rise = mean(one.reward for one in last) - mean(one.reward for one in first)
        before, after = (mean(one.tokens for one in each) for each in (first, last))
        if first and last and rise >= RISE and before >= TYPICAL and after <= COLLAPSE * before:
            found += sorted(_paid(last), key=lambda one: one.tokens)
    return found


DETECTORS = (
    Detector("short", "Right in a quarter of the tokens that right replies of that environment take.", _short),
    Detector("long", "Right in four times the tokens that right replies of that environment take.", _long),
    Detector("repeated", "Right, and the same three words stand in it four times or more.", _repeated),
    Detector("everywhere", "The very same reply is right for three or more different answers.", _everywhere),
    Detector(
        "verdict", "The reply speaks of rewards, scores or its own rightness, and the prompt does not.", _verdicts
    ),
    Detector(
        "collapsed",
        "From the first to the last recorded iteration the environment's reward rose and its replies shrank to half.",
        _collapsed,
    ),
)
"""The rules, by their names in `openk2 inspect rollouts NAME`. A suspicion is no verdict: each wants a look."""
