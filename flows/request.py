"""What a person asks of a flow: the form in Prefect's UI, and the options of `openk2 run`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath

from pydantic import Field, field_validator

from model.config import Config
from tasks.address import Address, Keyless


class PresetName(StrEnum):
    """The presets that come with openk2 (`flows/presets/*.yaml`): `test` is the smallest whole recipe, `laptop` the one
    for two cores, `evening` is laptop's for about two hours, `library` laptop's with a corpus of 275 MB, `gpu`
    and `node` are drafts for one GPU and for eight, `k2` is the report's own."""

    test = "test"
    laptop = "laptop"
    evening = "evening"
    library = "library"
    gpu = "gpu"
    node = "node"
    k2 = "k2"


class Request(Config):
    """Which recipe to run, and where its artifacts lie."""

    preset: PresetName = PresetName.laptop
    """The recipe's size: `laptop` takes minutes on two cores, `evening` hours, `library` curates a corpus of over 150
    MB, `k2` is the report's own."""
    root: Address = "data"
    """Where artifacts are kept: a folder, or any fsspec URL such as s3://bucket/openk2."""
    preset_file: Address | None = None
    """A preset of your own (a YAML file), used instead of `preset`."""
    overrides: list[Keyless] = Field(default_factory=list)
    """Single fields to change, such as `rephrase.documents=40` or `pretrain.seed=1`."""

    rebuild: bool = False
    """Whether stages that are done are made anew where their code has changed since (`openk2 status` says which)."""

    @field_validator("root")
    @classmethod
    def _shared(cls, root: str) -> str:
        if root.startswith("memory://"):
            raise ValueError(
                "what is in memory is one process's own, and a run has several: name a folder, or a store that all see"
            )
        return root

    @property
    def name(self) -> str:
        """What to call the recipe: its own file, else its preset."""
        return self.preset_file or self.preset.value

    @property
    def recipe(self) -> str:
        """The recipe's name without a folder, by which verdicts on its dialogues know it."""
        return PurePath(self.name).stem
