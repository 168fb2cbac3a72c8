"""Configuration of the dialogues stage."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from model.config import Config


class TaskConfig(Config):
    """One family of verifiable tasks."""

    family: Literal["addition", "subtraction", "larger", "reverse", "copy", "sort"]
    """What is asked (tasks/agentic/problems.py)."""
    size: int = Field(default=2, ge=1, le=6)
    """Digits of a number."""
    train: int = Field(default=1000, ge=1)
    """Prompts to learn from."""
    heldout: int = Field(default=100, ge=1)
    """Prompts to measure with, of problems that no training prompt has."""


class DialoguesConfig(Config):
    """Verifiable tasks and tool-call dialogues."""

    seed: int = 0
    """Decides every draw."""
    tasks: tuple[TaskConfig, ...] = (TaskConfig(family="addition"),)
    """Families of verifiable tasks."""
    tool_train: int = Field(default=300, ge=0)
    """Tool-call dialogues to learn from; 0 leaves them out."""
    tool_heldout: int = Field(default=50, ge=0)
    """Tool-call dialogues to measure with; 0 leaves them out."""
    tools_offered: int = Field(default=2, ge=1, le=7)
    """Most tools a dialogue declares; the others than the needed ones are drawn."""
    follow_ups: float = Field(default=0.2, ge=0, le=1)
    """Share of tool dialogues with a second request, whose call is number 1."""
    heldout_share: float = Field(default=0.2, gt=0, lt=1)
    """Share of all problems whose hash puts them aside for measuring."""
    max_tokens: int = Field(default=512, ge=32)
    """The longest dialogue that is kept."""
    refused: tuple[str, ...] = ()
    """Ids of dialogues that people refused, each replaced by another; `openk2 review` adds those of its file."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        names = [task.family for task in self.tasks]
        if len(set(names)) != len(names):
            raise ValueError(f"a family of tasks is listed twice in {names}: give each one entry")
        return self

    @property
    def environments(self) -> dict[str, int]:
        """Prompts to learn from by environment: the families of tasks, and `tool_call`."""
        tools = {"tool_call": self.tool_train} if self.tool_train else {}
        return {task.family: task.train for task in self.tasks} | tools
