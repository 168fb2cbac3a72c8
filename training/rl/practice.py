"""What an iteration is trained on: prompts drawn, episodes played, groups without a difference replaced, replies that
no rule can judge compared, and comparisons practised."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from training.inputs import Dialogues, Example
from training.job import JobError
from training.rl.config import RlConfig
from training.rl.critic import comparisons, critiqued, judge_asks, policy_asks
from training.rl.curriculum import Curriculum, key
from training.rl.judge import Judge
from training.rl.rollout import CRITIQUE, Group, Open, Player, opened


class Practice:
    """The prompts of a run, and whoever judges what no rule can."""

    def __init__(self, config: RlConfig, curriculum: Curriculum, judge: Judge | None) -> None:
        """Raises JobError where there are fewer problems than prompts."""
        if config.prompts > (left := len(curriculum.problems)):
            raise JobError(
                f"rl.prompts = {config.prompts}: the selection of SFT (sft.band), rl.environments and rl.sets leave "
                f"{left} problems to practise on; lower it, or let more of them in"
            )
        self.config, self.curriculum, self.judge = config, curriculum, judge
        self.under_way: list[Group] = []
        """What the last iteration left paused, as groups without rewards: with the experts that tokens were routed to,
        which nothing of what is saved knows."""

    def play(
        self, player: Player, paused: Sequence[dict[str, Any]]
    ) -> tuple[list[Group], list[Group], list[Group], list[dict[str, Any]]]:
        """What `iterate` gives, with `closed_loop`'s groups, which are trained on as well, before what is paused."""
        groups, drawn, left = self.iterate(player, paused)
        verdicts = self.closed_loop(player, groups)
        player.rest()
        return groups, drawn, verdicts, left

    def iterate(
        self, player: Player, paused: Sequence[dict[str, Any]]
    ) -> tuple[list[Group], list[Group], list[dict[str, Any]]]:
        """The groups that iteration `player.version`, from 0, is trained on, all that it drew (those that were replaced
        are told of and nothing is learned from them), and what is paused at its end.

        Args:
            paused: what was paused at the end of the last one.
        """
        config, problems, self.under_way = self.config, self.curriculum.problems, []
        seed = f"rl/{config.seed}/{player.version}"
        first = self.curriculum.draw(config.prompts, f"{seed}/prompts")
        work = [*(Open.of(record, problems) for record in paused), *opened(first, config.responses, seed)]
        groups, left = self._roll_out(player, work)
        drawn = list(groups)
        tried, spare, awaited = {key(one.problem) for one in work}, config.refill, 0
        while spare and len(dull := [place for place, group in enumerate(groups) if self._dull(group)]) > awaited:
            # Of an environment that is mastered or never right others would be dull as well.
            lively = {group.problem.environment for group in groups if group.informative}
            count = min(spare, len(dull) - awaited, len(problems))
            fresh = self.curriculum.draw(count, f"{seed}/refill/{spare}", tried, lively)
            if not fresh:
                break
            more, late = self._roll_out(player, opened(fresh, config.responses, f"{seed}/refill/{spare}"))
            drawn += more
            replaced = set(dull[: len(more)])
            groups = [one for place, one in enumerate(groups) if place not in replaced] + more
            left, spare, tried = left + late, spare - len(fresh), tried | set(map(key, fresh))
            awaited += len(fresh) - len(more)  # paused before any response has ended: what they replace stays till then
        self.under_way = [Group(one.problem, one.episodes, [0.0] * len(one.episodes)) for one in left]
        return groups, drawn, [one.record(self.curriculum.place(one.problem)) for one in left]

    def _dull(self, group: Group) -> bool:
        """Whether its prompt teaches nothing: all K responses have ended, and all were worth the same. Of a prompt with
        paused ones nobody knows yet."""
        return not group.informative and len(group.responses) + len(group.before) == self.config.responses

    def closed_loop(self, player: Player, groups: Sequence[Group]) -> list[Group]:
        """Comparisons with known answers, made of the iteration's verifiable groups and answered by the policy."""
        critic = self.config.critic
        if critic is None or not critic.comparisons:
            return []
        seed = f"rl/{self.config.seed}/{player.version}/critic"
        questions = comparisons(player.chat, groups, critic.comparisons, seed)
        window = player.model.config.max_position_embeddings
        fitting = [one for one in questions if len(player.chat.prompt(one.messages)) < window]
        return player.sampled(fitting, self.config.responses, seed)

    def _roll_out(self, player: Player, work: Sequence[Open]) -> tuple[list[Group], list[Open]]:
        """What came of it; the curriculum hears how it went, and the critic compares what no rule could judge."""
        groups, left = player.roll_out(work)
        for group in groups:
            if group.problem.verifier == CRITIQUE:
                continue  # that a reply may be compared is no success: such prompts would hardly be drawn again
            self.curriculum.record(group.problem, int(sum(group.scores)), len(group.scores))
        if self.config.critic is None or not any(group.problem.verifier == CRITIQUE for group in groups):
            return groups, left
        if self.config.critic.judge == "endpoint" and self.judge is not None:
            ask = judge_asks(self.judge)
        else:
            ask = policy_asks(player.model, player.chat, player.dtype)
        return player.share(groups, lambda group: critiqued(ask, player.chat, group)), left


def unpractised(dialogues: Dialogues, selected: Mapping[str, float]) -> list[Example]:
    """Dialogues of what is not practised, and of all that have tools: practice sees the first turns of those alone.
    The other answers are to be found, not told."""
    practised = [each for each in dialogues.problems if not selected or selected.get(each.environment)]
    found = {problem.environment for problem in practised if not problem.tools}
    return [each for each in dialogues.examples if each.environment not in found]


def numbers(groups: Sequence[Group], verdicts: Sequence[Group], paused: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What is worth recording of an iteration's responses."""
    responses = [response for group in groups for response in group.responses]
    values = {
        "reward": mean(reward for group in groups for reward in group.rewards),
        "right": mean(score for group in groups for score in group.scores),
        "finished": mean(float(response.finished) for response in responses),
        "response_tokens": mean(response.written for response in responses),
        "turns": mean(len(response.turns()) for response in responses),
        "informative": mean(float(group.informative) for group in groups),
        "responses": len(responses),
        "paused": sum(len(one["episodes"]) for one in paused),
    }
    if verdicts:
        values["critic_right"] = mean(score for group in verdicts for score in group.scores)
    return values


def mean(values: Iterable[float]) -> float:
    """0 of nothing."""
    found = list(values)
    return statistics.fmean(found) if found else 0.0
