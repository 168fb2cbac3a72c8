"""The recipe as a graph of steps, each with its identity known before anything has run.

Pure: no Prefect, and nothing is imported of the stages but their configurations. What the recipe says of a preset
(`flows.recipe`) is noted here; commands and flows read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from model.config import Config
from tasks.artifact import NotReady, Step

GATE = "tasks.gate"


@dataclass
class Graph:
    """The steps of one recipe, in the order in which they run."""

    steps: list[Step] = field(default_factory=list)
    flow_of: dict[str, str] = field(default_factory=dict)
    """The flow that runs a step, by the step's name."""
    other: Graph | None = None
    """The same recipe in the other precision, where the preset leaves that open."""

    def __getitem__(self, name: str) -> Step:
        """The step of that name; of several snapshots the newest."""
        for step in reversed(self.steps):
            if step.name == name:
                return step
        raise KeyError(f"the recipe has no step '{name}'")

    def newest(self) -> list[Step]:
        """The steps without those of snapshots before the newest."""
        return [step for step in self.steps if self[step.name] is step]

    def of(self, flow: str) -> list[Step]:
        """The steps that a flow runs, in their order."""
        return [step for step in self.steps if self.flow_of[step.name] == flow]

    def trains(self, flow: str) -> bool:
        """Whether the flow multiplies matrices, and so has to know in which precision."""
        return any(step.module.startswith("training.") for step in self.of(flow))

    def made_by_other_code(self) -> list[str]:
        """The published steps that code has made which has changed since."""
        found = []
        for step in self.steps:
            with suppress(NotReady):
                if (artifact := step.artifact()) and artifact.other_code(step.code):
                    found.append(step.name)
        return found

    def published(self, *names: str) -> bool:
        """Whether these steps, or all of them, are published and made from what their inputs hold now."""
        try:
            return all(
                step.artifact() is not None and not step.outdated()
                for step in self.steps
                if not names or step.name in names
            )
        except NotReady:
            return False


class Stages:
    """Notes what a recipe says: every stage that is called with its inputs becomes a step of the graph."""

    def __init__(self, root: str, pinned: int | None = None) -> None:
        """Steps under `root`; of the snapshots those up to the `pinned` one, or all."""
        self.root, self.pinned = root, pinned
        self.graph = Graph()
        self._flow = ""

    def flow(self, name: str) -> None:
        """The flow that runs the stages from here on."""
        self._flow = name

    def __call__(self, name: str, module: str, config: Config, *inputs: Step | None, leaf: bool = False) -> Step:
        """A stage that reads `inputs`; None is no input. `leaf`: the outside world has a part in its bytes."""
        step = Step.of(name, module, config, self.root, tuple(step for step in inputs if step is not None))
        return self._noted(replace(step, leaf=leaf))

    def gate(self, config: Config, judged: Step | None) -> Step:
        """`judged` as those may read it that come after its gate. A gate depends on what it judges and nobody depends
        on a gate's identity: a stricter rule judges the same data again, it does not make them anew."""
        assert judged is not None
        gate = self._noted(Step.of(f"{judged.name}-gate", GATE, config, self.root, (judged,)))
        return replace(judged, gate=gate)

    def snapshots(self, name: str, module: str, config: Config) -> Iterator[Step]:
        """A stage whose bytes the outside world decides: the first snapshot, published or not, and those that refreshes
        published after it. Raises NotReady where a pinned one does not exist."""

        def following(*before: Step) -> Step:
            return replace(Step.of(name, module, config, self.root, before), leaf=True)

        for step in newest(following, self.pinned).versions():
            yield self._noted(step)

    def _noted(self, step: Step) -> Step:
        self.graph.steps.append(step)
        self.graph.flow_of[step.name] = self._flow
        return step


def newest(following: Callable[..., Step], pinned: int | None) -> Step:
    """The newest published snapshot (the first, published or not, where there is none), or the `pinned` one;
    `following` makes the step that comes after another. Raises NotReady where the pinned one does not exist."""
    found = following()
    while pinned is None or len(found.versions()) <= pinned:
        try:
            after = following(found)
            exists = after.artifact() is not None
        except NotReady:
            exists = False  # the first has not been fetched: nothing follows it
        if not exists:
            break
        found = after
    if pinned and len(found.versions()) <= pinned:
        raise NotReady(
            f"sources.snapshot is {pinned} but the newest snapshot is {len(found.versions()) - 1}: "
            "name one of those, or null for the newest"
        )
    return found
