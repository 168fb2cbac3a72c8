"""Configuration of the dialogues stage."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from model.config import Config
from model.engines.choice import EngineConfig
from model.engines.engine import Sampling
from training.rl.worlds.task import Kind

NOVELTIES = {
    "tool_call": "arguments that no training dialogue has for that function",
    "tool_call_wording": "new arguments in a wording that no training dialogue has",
    "tool_call_name": "new arguments for a known function under an unknown name",
    "tool_call_tool": "a function that occurs in no training dialogue",
    "no_call": "tools, and a request that needs none or has none that fits",
}
"""Environments of call dialogues, by what is new in their first request; training has the first and the last."""
OF_SERVERS = "tool_call_server"
"""The environment of calls of real servers; what is new in its held-out splits are arguments."""
Family = Literal["addition", "subtraction", "larger", "reverse", "copy", "sort", "rotate", "successor"]
ENVIRONMENTS = (*get_args(Family), *NOVELTIES, OF_SERVERS, "world", "world_synthetic")
"""All that dialogues may be of."""
Style = Literal["terse", "polite", "chatty", "formal"]


class SplitsConfig(Config):
    """How many dialogues each split has."""

    train: int = Field(default=1000, ge=0)
    """To learn from."""
    development: int = Field(default=100, ge=1)
    """To stop, select and gate by, of problems that no training dialogue has."""
    test: int = Field(default=100, ge=1)
    """To measure with once, of problems that neither of the other two has."""


class TaskConfig(SplitsConfig):
    """One family of verifiable tasks."""

    family: Family
    """What is asked (tasks/agentic/problems.py)."""
    size: int = Field(default=2, ge=1, le=6)
    """Digits of a number."""


class CallsConfig(SplitsConfig):
    """Call dialogues: small tools that really run (tasks/agentic/calls.py). `train` 0 leaves them out."""

    train: int = Field(default=300, ge=0)
    """Dialogues to learn from whose first request needs a call."""
    no_call: float = Field(default=0.3, gt=0, le=2)
    """So many training dialogues whose first request needs none, for each that needs one: without them a model calls
    always."""
    development: int = Field(default=20, ge=1)
    """Of each environment."""
    test: int = Field(default=20, ge=1)
    """Of each environment."""
    offered: int = Field(default=3, ge=1, le=12)
    """Most tools that a dialogue declares."""
    names: int = Field(default=3, ge=1, le=3)
    """Most names that a function is known by: which of several is declared has to be read, which a model of some
    million parameters hardly learns."""
    requests: int = Field(default=2, ge=1, le=8)
    """Most requests of a dialogue: several pay for the tokens of one declaration."""
    silent: float = Field(default=0.3, ge=0, le=1)
    """Share of the later requests that need no call."""
    chinese: float = Field(default=0.3, ge=0, le=1)
    """Share of dialogues in Chinese; the others are in English."""
    styles: tuple[Style, ...] = Field(default=("terse", "polite", "chatty", "formal"), min_length=1)
    """How people speak: users are personas of these styles (training/rl/worlds/personas.py)."""
    descriptions: bool = True
    """Declare tools with their descriptions; a small model reads names alone, in half the tokens."""


class ServersConfig(SplitsConfig):
    """Dialogues with the real tools of `tools.servers`; what `calls` says of tools holds for these, too."""

    train: int = Field(default=0, ge=0)
    """Dialogues to learn from; 0 leaves them out."""
    requests: int = Field(default=1, ge=1, le=8)
    """Most requests of a dialogue: what servers answer is long."""


class WorldsConfig(Kind, SplitsConfig):
    """Dialogues in worlds with state, hand-written or synthetic (training/rl/worlds). `train` 0 leaves them out."""

    train: int = Field(default=0, ge=0)
    """Dialogues to learn from; the same tasks are problems of RL."""
    development: int = Field(default=10, ge=1)
    """Tasks that stop and select."""
    test: int = Field(default=10, ge=1)
    """Tasks that are looked at once."""
    wrong: float = Field(default=0.3, ge=0, le=1)
    """Share of the plays whose assistant is wrong in a known way: the filters have to refuse every one of them."""

    @property
    def kind(self) -> Kind:
        """What is drawn of tasks."""
        return Kind(**{name: getattr(self, name) for name in Kind.model_fields})


class PlayerConfig(EngineConfig):
    """A model that plays dialogues in worlds. Its URL is `execution.engine_url`."""

    engine: Literal["endpoint"] = "endpoint"
    """Only endpoints take tools."""
    model: str = "kimi-k2"
    """Its name there."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Of the dialogues in worlds, so many have it as their assistant; scripts play the others."""
    candidates: int = Field(default=1, ge=1, le=64)
    """Plays of each task, each with a seed of its own. The best is kept of those that the rules and the judge pass: by
    the judge's score, where the judge refuses at all, then the shortest."""
    user: bool = True
    """Whether it words what the user says, too. What that is, scripts decide."""
    max_tokens: int = Field(default=2048, ge=16)
    """Longest turn."""
    sampling: Sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0)
    """How it draws."""


class JudgeConfig(EngineConfig):
    """A model that holds what a model played against the rubric, after the rules. Its URL is `execution.judge_url`."""

    calibration: int = Field(default=100, ge=10)
    """Scripted dialogues whose verdict is known, half of them right, that it is tried on first."""
    kappa: float = Field(default=0.4, ge=0, le=1)
    """Where it agrees less with the known verdicts (Cohen's kappa), its word is kept and refuses nothing."""
    max_tokens: int = Field(default=512, ge=16)
    """Longest answer."""
    sampling: Sampling = Sampling(temperature=0.0)
    """How it draws."""


class DialoguesConfig(Config):
    """Verifiable tasks, call dialogues and worlds."""

    seed: int = 0
    """Decides every draw."""
    tasks: tuple[TaskConfig, ...] = (TaskConfig(family="addition"),)
    """Families of verifiable tasks."""
    calls: CallsConfig = CallsConfig()
    """Dialogues with small tools."""
    worlds: WorldsConfig = WorldsConfig()
    """Dialogues in hand-written worlds with state."""
    servers: ServersConfig = ServersConfig()
    """Dialogues with the real tools of `tools.servers`."""
    synthetic: WorldsConfig = WorldsConfig()
    """Dialogues with the synthetic tools, each domain being a world."""
    player: PlayerConfig | None = None
    """A model that plays in worlds; None leaves it to scripts."""
    judge: JudgeConfig | None = None
    """A model that judges what a model played; None leaves it to rules."""
    heldout_share: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of all problems whose hash puts them into development; as many are put into test."""
    max_tokens: int = Field(default=512, ge=32)
    """The longest dialogue that is kept."""
    refused: tuple[str, ...] = ()
    """Ids of dialogues that people refused, each replaced by another; `openk2 review` adds those of its file."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        names = [task.family for task in self.tasks]
        if len(set(names)) != len(names):
            raise ValueError(f"a family of tasks is listed twice in {names}: give each one entry")
        if empty := [task.family for task in self.tasks if not task.train]:
            raise ValueError(f"the family {empty[0]!r} has no training dialogues: raise its train, or leave it out")
        return self

    @property
    def environments(self) -> dict[str, int]:
        """Training dialogues by environment."""
        found: dict[str, int] = {task.family: task.train for task in self.tasks}
        if self.calls.train:
            found |= {"tool_call": self.calls.train, "no_call": max(1, round(self.calls.no_call * self.calls.train))}
        if self.servers.train:
            found[OF_SERVERS] = self.servers.train
        return found | {name: world.train for name, world in self.in_worlds.items()}

    @property
    def in_worlds(self) -> dict[str, WorldsConfig]:
        """Environments of dialogues in worlds; those that are left out are not there."""
        both = {"world": self.worlds, "world_synthetic": self.synthetic}
        return {name: world for name, world in both.items() if world.train}

    @property
    def measured(self) -> int:
        """Environments of a held-out split."""
        return sum(key.startswith("test/") for key in self.wanted)

    @property
    def wanted(self) -> dict[str, int]:
        """Dialogues of each `SPLIT/ENVIRONMENT`."""
        found = {f"train/{name}": count for name, count in self.environments.items()}
        for split in ("development", "test"):
            found |= {f"{split}/{task.family}": getattr(task, split) for task in self.tasks}
            if self.calls.train:
                found |= {f"{split}/{name}": getattr(self.calls, split) for name in NOVELTIES}
            if self.servers.train:
                found[f"{split}/{OF_SERVERS}"] = getattr(self.servers, split)
            found |= {f"{split}/{name}": getattr(world, split) for name, world in self.in_worlds.items()}
        return found
