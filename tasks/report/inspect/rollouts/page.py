"""An inspection of rollouts: what was rewarded by environment, and responses turn by turn, token by token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from model.reply import END
from model.visible import flat
from tasks.artifact import Artifact
from tasks.report import words
from tasks.report.blocks import (
    Block,
    Choice,
    Document,
    Headline,
    Prose,
    Score,
    Section,
    Table,
    Transcript,
    Turn,
    Verbatim,
)
from tasks.report.inspect.rollouts import choice
from tasks.report.inspect.rollouts.choice import DETECTORS, Detector
from tasks.report.inspect.rollouts.responses import (
    GREEDY,
    PRACTICE,
    SAMPLED,
    Response,
    ends,
    environments,
    mean,
    of,
)

LEGEND = (
    "A token of the policy is shaded the deeper the less likely it was when it was drawn (below 80, 50, 20 and 5 %); "
    "what the prompt, tools and users say is not shaded. On the page a pointer on a token shows its probability; in a "
    "terminal without colours the least likely stand in `{braces}`."
)
PICKS = {
    "best": "The best paid responses of the last recorded iteration, those first whose siblings did worst.",
    "worst": "The worst paid of the last recorded iteration, those first that the policy was surest of.",
    "improved": "Held-out prompts whose reward rose most: the worst response before practice, the best after it.",
}
"""What can be asked for by name, beside `choice.DETECTORS`."""
REASONS = 12
LONG, TAIL = 600, 420
"""Characters above which what no policy wrote is shortened to its end: declared tools may be long."""


def known() -> list[str]:
    """What can be picked."""
    return [*PICKS, *(detector.name for detector in DETECTORS)]


def page(artifact: Artifact, responses: Sequence[Response], pick: str, count: int) -> Document:
    """`count` responses of each choice, or of that which `pick` names."""
    sections = [section(responses, name, count) for name in known() if pick in ("", name)]
    return _document(artifact, responses, [_overview(responses), *sections], choices(responses))


def overview(artifact: Artifact, responses: Sequence[Response]) -> Document:
    """The figures alone."""
    more = f"`openk2 inspect rollouts NAME` shows responses: {', '.join(known())}."
    return _document(artifact, responses, [replace(_overview(responses), summary=more)])


def prompted(responses: Sequence[Response], count: int) -> Section:
    """Recorded responses to one prompt, the earliest first."""
    ordered = sorted(responses, key=lambda one: (one.iteration, one.kind, one.place))
    summary = f"{words.count(len(ordered))} responses to it are recorded, in their order. {LEGEND}"
    title = f"One prompt of {flat(ordered[0].environment)}"
    return Section("prompt", title, summary, [transcript(one) for one in ordered[:count]])


def section(responses: Sequence[Response], name: str, count: int) -> Section:
    """A choice of responses, by its name."""
    if name == "improved":
        blocks: list[Block] = []
        for before, after in choice.improved(responses, count):
            blocks += [transcript(before, "before: "), transcript(after, "after: ", prompt=False)]
        return _section(name, PICKS[name], blocks, "No held-out prompt was rewarded more after practice than before.")
    if name in PICKS:
        found = (choice.best if name == "best" else choice.worst)(responses, count)
        return _section(name, PICKS[name], [transcript(one) for one in found], "Nothing of the kind is recorded.")
    detector = next(each for each in DETECTORS if each.name == name)
    found = suspects(responses, detector)
    said = f"{detector.sentence} **{words.count(len(found))}** of the recorded responses."
    return _section(name, said, [transcript(one) for one in found[:count]], "Nothing is suspected.", "Suspected hacks")


def suspects(responses: Sequence[Response], detector: Detector) -> list[Response]:
    """What a detector finds among all that was practised."""
    return detector.find(of(responses, kind=PRACTICE))


def _section(name: str, summary: str, blocks: Sequence[Block], nothing: str, group: str = "Responses") -> Section:
    return Section(name, words.name(name).capitalize(), summary, blocks or [Prose(nothing)], group=group)


# ------------------------------------------------------------------------------------------------------- one response


def transcript(one: Response, before: str = "", prompt: bool = True) -> Transcript:
    """A response turn by turn, with its reward by source and what the verifier said."""
    asked = [Turn("prompt", [(_shortened(one.prompt), None)])] if prompt else []
    said = [
        Turn("policy", [(piece, math.exp(log_prob)) for piece, log_prob in run])
        if wrote and one.kind != GREEDY
        else Turn(
            "policy, greedy" if wrote else "environment", [(_shortened("".join(piece for piece, _ in run)), None)]
        )
        for wrote, run in one.turns
    ]
    right = "right" if one.right else flat(one.reason) or "wrong"
    where = f"iteration {one.iteration}" if one.kind == PRACTICE else f"held out, after {one.iteration} iterations"
    drawn = f", drawn by policies {', '.join(map(str, one.policies))}" if len(one.policies) > 1 else ""
    return Transcript(
        title=Verbatim(f"{before}{flat(one.environment)}: {right}"),
        remark=Verbatim(f"{where}, {words.count(one.tokens)} tokens{drawn}"),
        turns=[*asked, *said],
        scores=_scores(one),
        note=Verbatim(f"expected {flat(one.answer, 200)} · prompt {one.problem[:12]}"),
        good=one.right,
        tags=(("environment", one.environment), ("verdict", "right" if one.right else "wrong")),
    )


def _scores(one: Response) -> list[Score]:
    """The reward, and what it is made of."""
    parts = [(name, value) for name, value in one.rewards.items() if value is not None]
    inner = [Score(f"{name}", f"{value:+.2f}", "", value > 0) for name, value in parts]
    return [Score("reward", f"{one.reward:+.2f}", "", one.reward > 0), *inner]


def _shortened(text: str) -> str:
    """A line for every turn; of a long text its end, where it is said what is asked."""
    text = text.replace(END, f"{END}\n").strip()
    return text if len(text) <= LONG else f"[{words.count(len(text) - TAIL)} characters before] …{text[-TAIL:]}"


# ----------------------------------------------------------------------------------------------------------- overview


def _document(
    artifact: Artifact, responses: Sequence[Response], sections: Sequence[Section], controls: Sequence[Choice] = ()
) -> Document:
    numbers = sorted({one.iteration for one in of(responses, kind=PRACTICE)})
    heldout = len(of(responses, kind=SAMPLED)) + len(of(responses, kind=GREEDY))
    suspected = {id(one) for detector in DETECTORS for one in suspects(responses, detector)}
    return Document(
        title="What the policy wrote, and what it was paid for",
        subtitle=Verbatim(f"{artifact.name} {artifact.fingerprint}"),
        lead=LEGEND,
        headline=Headline(
            [
                (words.count(len(responses)), "responses recorded", f"{words.count(heldout)} to held-out prompts"),
                (words.count(len(numbers)), "iterations", f"{numbers[0]} to {numbers[-1]}" if numbers else ""),
                (words.count(len(environments(responses))), "environments", ""),
                (words.count(len(suspected)), "suspected of a hack", "each wants a look"),
            ]
        ),
        sections=sections,
        choices=controls,
    )


def _overview(responses: Sequence[Response]) -> Section:
    return Section("overview", "By environment", "", [*rewards(responses), *reasons(responses), *detected(responses)])


def rewards(responses: Sequence[Response]) -> Iterable[Block]:
    """Practice in the first and in the last iteration that recorded an environment."""
    practice = of(responses, kind=PRACTICE)
    rows = []
    for name in environments(practice):
        pair = ends(of(practice, environment=name))
        rows.append(
            [
                Verbatim(words.name(name)),
                _arrow(*(words.count(len(each)) for each in pair)),
                *(_arrow(*(_mean(each, key) for each in pair)) for key in ("reward", "right", "tokens", "cut")),
            ]
        )
    if rows:
        caption = "Means over the responses of the first and the last iteration that recorded any of the environment."
        yield Table(("environment", "#responses", "#reward", "#right", "#tokens", "#cut"), rows, caption)


def _mean(responses: Sequence[Response], key: str) -> str:
    if key in ("right", "cut"):
        return words.percent(round(mean(one.right if key == "right" else not one.finished for one in responses), 2))
    return f"{mean(getattr(one, key) for one in responses):.{2 if key == 'reward' else 0}f}"


def _arrow(before: str, after: str) -> str:
    return f"{before} → {after}"


def reasons(responses: Sequence[Response]) -> Iterable[Block]:
    """Why responses of practice were not right."""
    counts = Counter((one.environment, one.reason) for one in of(responses, kind=PRACTICE) if one.reason)
    rows = [
        [Verbatim(words.name(environment)), Verbatim(flat(reason, 120)), words.count(count)]
        for (environment, reason), count in counts.most_common(REASONS)
    ]
    if rows:
        yield Table(("environment", "the verifier's reason", "#responses"), rows, "The commonest reasons.")


def detected(responses: Sequence[Response]) -> Iterable[Block]:
    """How many responses each detector suspects."""
    rows = [[each.name, each.sentence, words.count(len(suspects(responses, each)))] for each in DETECTORS]
    caption = "Responses that were rewarded, perhaps for something else than what was asked."
    yield Table(("detector", "what it looks for", "#suspected"), rows, caption)


def choices(responses: Sequence[Response]) -> list[Choice]:
    """By environment and verdict."""
    return [
        Choice("environment", "environment", environments(responses)),
        Choice("verdict", "verdict", ["right", "wrong"]),
    ]
