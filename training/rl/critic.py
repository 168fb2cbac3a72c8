"""Self-critique: replies to one prompt compared in pairs, by the model itself or by a judge behind an endpoint.

Every pair is shown in both orders, once for each kind of rubric (core, prescriptive, and the prompt's own, written by
people); a reply wins where both orders say so, else it is a draw. A reply's reward is its mean over pairs and kinds.

The loop is closed: of verifiable prompts it is known which reply is right, so a right and a wrong one make a comparison
with a known answer, which the policy practises like any other problem. So the critic keeps up with the policy, and how
often it agrees with the truth is known.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import torch

from model.chat import Chat, user
from model.transformer import Transformer
from training.draw import problem_id
from training.rl.environments import Problem
from training.rl.environments.open_ended import rubrics
from training.rl.judge import Judge
from training.rl.quoting import DATA, quoted
from training.rl.rollout import CRITIQUE, Group

QUESTION = (
    "Two replies to the same request are compared by these criteria:\n{criteria}\n\n"
    f"{DATA}\n\n"
    "Request:\n{request}\n\nReply A:\n{first}\n\nReply B:\n{second}\n\nWhich reply is better? Answer A or B."
)
CORRECT = ("It is correct.",)
ROWS = 16
Ask = Callable[[Sequence[str]], list[float]]
"""Questions -> for each the belief that A is the better reply, 0 to 1; 0.5 where there is none."""


def policy_asks(model: Transformer, chat: Chat, dtype: str) -> Ask:
    """The model's own belief: its probabilities of the two letters as the next token."""
    letters = [chat.encode(letter)[0] for letter in "AB"]

    @torch.inference_mode()
    def ask(questions: Sequence[str]) -> list[float]:
        prompts = [chat.prompt([user(question)]) for question in questions]
        device = model.embed_tokens.weight.device
        beliefs: dict[int, float] = {}
        fitting = [place for place, prompt in enumerate(prompts) if len(prompt) <= model.config.max_position_embeddings]
        order = sorted(fitting, key=lambda place: len(prompts[place]))
        for first in range(0, len(order), ROWS):
            rows = order[first : first + ROWS]
            longest = max(len(prompts[place]) for place in rows)
            tokens_BS = torch.tensor([prompts[place] + [0] * (longest - len(prompts[place])) for place in rows])
            last_B = torch.tensor([len(prompts[place]) - 1 for place in rows])
            with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
                hidden_BSD = model(tokens_BS.to(device)).hidden_BSD
                logits_BV = model.logits(hidden_BSD[torch.arange(len(rows)), last_B])
            for place, value in zip(rows, logits_BV[:, letters].float().softmax(-1)[:, 0].tolist(), strict=True):
                beliefs[place] = value
        return [beliefs.get(place, 0.5) for place in range(len(prompts))]

    return ask


def judge_asks(judge: Judge) -> Ask:
    """The letter that a judge says."""

    def ask(questions: Sequence[str]) -> list[float]:
        return [{"A": 1.0, "B": 0.0}.get(letter_of(answer), 0.5) for answer in judge.all(questions)]

    return ask


def letter_of(answer: str) -> str:
    """The letter that an answer begins with, else the only one that stands in it; "" where there is none."""
    first = re.match(r"\W*([AB])\b", answer, re.IGNORECASE)
    named = {first[1].upper()} if first else set(re.findall(r"\b[AB]\b", answer))
    return named.pop() if len(named) == 1 else ""


def question(request: str, criteria: Sequence[str], first: str, second: str) -> str:
    """What the critic is asked about two replies."""
    listed = "\n".join(f"- {criterion}" for criterion in criteria)
    replies = {"first": quoted(first, "reply"), "second": quoted(second, "reply")}
    return QUESTION.format(criteria=listed, request=quoted(request, "request"), **replies)


def preferences(ask: Ask, request: str, kinds: Mapping[str, Sequence[str]], replies: Sequence[str]) -> list[float]:
    """For each reply its mean over all others and all kinds of rubrics: 1 won, 0.5 drawn, 0 lost."""
    if len(replies) < 2:
        return [0.5] * len(replies)
    pairs = list(combinations(range(len(replies)), 2))
    asked = [
        question(request, criteria, replies[first], replies[second])
        for criteria in kinds.values()
        for one, other in pairs
        for first, second in ((one, other), (other, one))
    ]
    beliefs = ask(asked)
    points = [0.0] * len(replies)
    for place, (one, other) in enumerate(pairs * len(kinds)):
        straight, swapped = beliefs[2 * place], beliefs[2 * place + 1]
        won = 1.0 if straight > 0.5 > swapped else 0.0 if straight < 0.5 < swapped else 0.5
        points[one] += won
        points[other] += 1.0 - won
    return [value / (len(kinds) * (len(replies) - 1)) for value in points]


def critiqued(ask: Ask, chat: Chat, group: Group) -> Group:
    """A group of open-ended replies with the critic's rewards; those that a rule refused, or that were cut, keep
    theirs, and so do verifiable groups. Replies that ended earlier are compared once more, with all that there are
    now: what one is worth depends on the others."""
    if group.problem.verifier != CRITIQUE:
        return group
    turns = [one.turn for one in group.before if one.score == 1.0]
    turns += [one.turns()[-1] for one in group.responses if one.score == 1.0]
    kinds = rubrics() | {"human": group.problem.answer["human"]}
    found = preferences(ask, _request(group.problem), kinds, [said(chat, turn) for turn in turns])
    rewards = [*group.earlier, *group.rewards]
    scores = [*(one.score for one in group.before), *group.scores]
    compared = [place for place, score in enumerate(scores) if score == 1.0]
    for place, value in zip(compared, found, strict=True):
        rewards[place] = value
    first = len(group.before)
    return replace(group, rewards=rewards[first:], earlier=tuple(rewards[:first]))


def comparisons(chat: Chat, groups: Sequence[Group], count: int, seed: str) -> list[Problem]:
    """At most `count` comparisons of a right and a wrong reply, one a group, whose answer is the right one's letter."""
    draw, found = random.Random(seed), []
    for group in groups:
        right = [one for one in group.responses if one.score == 1.0 and len(one.turns()) == 1]
        wrong = [one for one in group.responses if one.score == 0.0 and len(one.turns()) == 1 and one.finished]
        if group.problem.verifier == CRITIQUE or not right or not wrong:
            continue
        pair = [said(chat, draw.choice(those).turns()[-1]) for those in (right, wrong)]
        if pair[0] == pair[1]:  # a call under a number that does not count on: what is wrong cannot be seen
            continue
        answer = draw.choice("AB")
        first, second = pair if answer == "A" else reversed(pair)
        text = question(_request(group.problem), CORRECT, first, second)
        found.append(Problem(problem_id("critic", text), "critic", "exact", (user(text),), answer))
    draw.shuffle(found)
    return found[:count]


def said(chat: Chat, turn: Sequence[int]) -> str:
    """A turn as a judge reads it."""
    reply = chat.parse(turn)
    calls = "\n".join(f"{call.name}({call.written})" for call in reply.calls)
    return "\n".join(part for part in (reply.content, calls) if part)


def _request(problem: Problem) -> str:
    return "\n\n".join(str(message["content"]) for message in problem.messages)
