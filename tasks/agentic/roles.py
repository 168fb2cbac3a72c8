"""A model in the roles of dialogues in worlds: the assistant, the voice of the user, the judge.

What a model writes is hostile until the rules have passed it: its calls go through the world, which refuses what does
not fit; its wording of a request is used where it keeps every name and number. Answers are kept, so that nothing is
asked twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from model.cache import cache_folder
from model.dialogue import ChatError, compact
from model.engines.answers import Answers
from model.engines.choice import EngineConfig, open_engine
from model.engines.engine import Completion, Engine, Message, Prompt, PromptRefused
from tasks.agentic.config import DialoguesConfig, PlayerConfig
from tasks.agentic.judging import Judge
from tasks.evaluate.suites.subject import reply_of
from tasks.launch import Execution
from training.draw import draw
from training.rl.worlds.episode import Episode, User
from training.rl.worlds.filters import NUMBER, Verdict, says, verify
from training.rl.worlds.task import Task

log = logging.getLogger(__name__)

PERSONA = (
    "You are {who}. You talk to the assistant of an application. Say what you are given as you would say it, in your "
    "own words and in its language. Keep every name, number, date, id and quotation letter by letter, and add nothing. "
    "Answer with your message alone."
)


@dataclass(frozen=True)
class Played:
    """What came of a play."""

    messages: tuple[Mapping[str, Any], ...]
    verdict: Verdict
    player: str


class Player:
    """A model as the assistant, and as the voice of the user where the configuration says so."""

    def __init__(self, config: PlayerConfig, seed: int, engine: Engine, answers: Answers) -> None:
        self.config, self.seed, self.engine, self.answers = config, seed, engine, answers

    def plays(self, seed: str) -> bool:
        """Whether the task of that seed is for it."""
        return draw("agentic-player", self.seed, seed) < self.config.share

    def play(self, task: Task, seed: str, candidate: int = 0) -> Played:
        """A dialogue of the task, with what the rules say of it. Each candidate draws other turns of the assistant; all
        of them hear the same user."""
        who = f"model: {self.config.model}" + ("; user: model" if self.config.user else "")
        number = int(draw("agentic-play", self.seed, seed) * 2**31)
        own = int(draw("agentic-play", self.seed, f"{seed}/{candidate}") * 2**31) if candidate else number
        try:
            episode = Episode(task, _Voiced(task, self, number) if self.config.user else None)
            broken = self._converse(episode, own)
        except PromptRefused as error:
            log.info("%s: %s", task.id, error)
            begun = tuple(Episode(task).messages)
            return Played(begun, Verdict(0.0, "player", "the model gave no answer"), who)
        return Played(tuple(episode.messages), broken or verify(episode), who)

    def ask(self, chat: tuple[Message, ...], seed: int, tools: str = "") -> Completion:
        """The model's next turn."""
        prompt = Prompt(chat, self.config.sampling, self.config.max_tokens, seed, tools=tools)
        return self.answers.complete(self.engine, prompt)[0]

    def _converse(self, episode: Episode, seed: int) -> Verdict | None:
        """Play to the end; a verdict where a turn cannot be read."""
        tools = compact(episode.task.tools)
        while not episode.done:
            reply = reply_of(self.ask(tuple(map(Message.of, episode.messages)), seed, tools))
            if not reply.finished:
                return Verdict(0.0, "player", "a turn is too long")
            first = len(episode.calls)
            calls = tuple(replace(call, index=first + place) for place, call in enumerate(reply.calls))
            try:
                turn = None if reply.errors else replace(reply, calls=calls).message()
                compact(turn)
            except ChatError:  # half a character in an argument, or in a name
                turn = None
            if turn is None:
                return Verdict(0.0, "player", "a call cannot be read")
            episode.step(turn)
        return None


class _Voiced(User):
    """A user whose sentences a model words; what they say, and when, stays the script's."""

    def __init__(self, task: Task, player: Player, seed: int) -> None:
        super().__init__(task)
        self.player, self.seed = player, seed
        self.values = {str(value) for one in task.requests for _, given in one.plan for value in given.values()}

    def opening(self) -> str:
        return self._worded(super().opening())

    def reply(self, text: str, pending: bool = False) -> str | None:
        said = super().reply(text, pending)
        return None if said is None else self._worded(said)

    def _worded(self, said: str) -> str:
        chat = (Message("system", PERSONA.format(who=self.task.persona.who)), Message("user", said))
        worded = self.player.ask(chat, self.seed).text.strip()
        kept = {*NUMBER.findall(said), *(value for value in self.values if says(said, value))}
        fits = len(worded) <= 4 * len(said) + 200 and all(says(worded, value) for value in kept)
        return worded if worded and fits else said


@dataclass(frozen=True)
class Roles:
    """Who plays and judges besides scripts and rules."""

    player: Player | None = None
    judge: Judge | None = None

    @property
    def slots(self) -> int:
        """Dialogues that are worth having under way at once."""
        return self.player.engine.slots if self.player else 1


@contextmanager
def open_roles(config: DialoguesConfig, execution: Execution, root: str) -> Iterator[Roles]:
    """The roles that the configuration gives to models. Raises EngineError where an endpoint is missing."""
    if not config.in_worlds or not (config.player or config.judge):
        yield Roles()
        return
    with ExitStack() as stack:
        answers = stack.enter_context(closing(Answers(execution.answers_folder(root) or cache_folder() / "dialogues")))

        def engine(one: EngineConfig, url: str | None, who: str, field: str) -> Engine:
            slots, limits = execution.slots(one.engine), execution.engine_requests
            where = url if one.engine == "endpoint" else None  # other stages may have their own use of it
            opened: Engine = open_engine(one, where, slots, f"dialogues.{who}", field, limits)
            stack.enter_context(opened)
            return opened

        player = judge = None
        if config.player:
            asked = engine(config.player, execution.engine_url, "player", "engine_url")
            player = Player(config.player, config.seed, asked, answers)
        if config.judge:
            asked = engine(config.judge, execution.judge_url, "judge", "judge_url")
            several = config.player is not None and config.player.candidates > 1
            judge = Judge(config.judge, asked, answers, scores=several)
        yield Roles(player, judge)
