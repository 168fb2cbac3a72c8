"""What a post-training job reads: the artifacts that it names, the model and the dialogues in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from tokenizers import Tokenizer

from model.chat import Chat
from model.config import ModelConfig
from model.transformer import Transformer
from training.cache import File, read_manifest
from training.checkpoint import Stored, fill, read_model
from training.expert_parallel import pieces
from training.job import JobError
from training.rl.environments import Problem


@dataclass(frozen=True)
class Example:
    """One dialogue to learn from."""

    environment: str
    ids: list[int]
    mask: list[bool]
    """True at tokens that are trained."""


@dataclass(frozen=True)
class Dialogues:
    """One split of the dialogues artifact, in the order of its parts and rows."""

    examples: list[Example]
    problems: list[Problem]
    """The same rows as prompts with answers."""


def parts(uri: str, group: str) -> dict[str, Path]:
    """Key -> local path, checked, of an artifact's parts under `group`.

    Raises:
        ShardError: there is no manifest, or a file is not the one that it lists.
        JobError: it lists nothing there.
    """
    found = {
        part["key"]: File(uri, part["path"], part["sha256"], part["bytes"]).local
        for part in sorted(read_manifest(uri)["parts"], key=lambda part: part["key"])
        if part["key"] == group or part["key"].startswith(f"{group}/")
    }
    if not found:
        raise JobError(f"{uri} lists no part '{group}': this is not the artifact that the job needs")
    return found


def load_chat(uri: str) -> Chat:
    """The chat format on a tokenizer artifact."""
    return Chat(Tokenizer.from_file(str(parts(uri, "tokenizer")["tokenizer"])))


@dataclass(frozen=True)
class Published:
    """The model that a training stage published: parts `model/config...` and `model/model...`."""

    uri: str
    config: ModelConfig
    config_file: Path
    files: list[Path]
    """Its weights."""

    @classmethod
    def at(cls, uri: str) -> Published:
        """Raises `JobError` where the artifact holds no model."""
        found = parts(uri, "model")
        config = next((path for key, path in found.items() if key.startswith("model/config")), None)
        weights = [path for key, path in found.items() if key.startswith("model/model")]
        if config is None or not weights:
            raise JobError(f"{uri} lists {', '.join(found)}: a model needs its config.json and its weights")
        return cls(uri, ModelConfig.model_validate_json(config.read_text(encoding="utf-8")), config, weights)

    def fill(self, model: Transformer) -> None:
        """Copy the weights, or those that a rank's part of the network holds, into `model`."""
        fill(model, Stored.of_files(self.files), self.uri, pieces(model))


def load_model(uri: str) -> Transformer:
    """The model that a training stage published, float32 on the CPU."""
    found = Published.at(uri)
    return read_model(found.config_file, found.files).float()  # of a base in bfloat16 too: its masters stayed behind


def fingerprints(inputs: Mapping[str, str]) -> dict[str, str]:
    """What the artifacts at these places are, by name. Raises `ShardError` where one has no manifest."""
    return {name: str(read_manifest(uri)["fingerprint"]) for name, uri in inputs.items()}


def load_dialogues(uri: str, split: str) -> Dialogues:
    """The dialogues of a split: "train", "development" or "test"."""
    examples, problems = [], []
    for path in parts(uri, f"dialogues/{split}").values():
        for row in pq.read_table(path).to_pylist():
            examples.append(Example(row["environment"], row["ids"], row["mask"]))
            problems.append(
                Problem(
                    id=row["problem"],
                    environment=row["environment"],
                    verifier=row["verifier"],
                    messages=tuple(json.loads(row["messages"])[: row["prompt_turns"]]),
                    answer=json.loads(row["answer"]),
                    tools=tuple(json.loads(row["tools"])),
                )
            )
    return Dialogues(examples, problems)


class Splits(NamedTuple):
    """The three splits of the dialogues artifact."""

    train: Dialogues
    development: Dialogues
    """Stops, selects and gates."""
    test: Dialogues
    """Looked at once: by the evaluation and by RL's report."""


def load_splits(uri: str) -> Splits:
    """All three; refuses an artifact of which two share a problem.

    Raises:
        JobError: a problem is in two of them.
    """
    splits = Splits(*(load_dialogues(uri, name) for name in Splits._fields))
    for one, other in combinations(Splits._fields, 2):
        shared = {each.id for each in getattr(splits, one).problems} & {
            each.id for each in getattr(splits, other).problems
        }
        if shared:
            raise JobError(
                f"{len(shared)} problems of {uri} are in {one} and in {other} ({min(shared)}): make the dialogues again"
            )
    return splits
