"""What a post-training job reads: the artifacts that it names, the model and the dialogues in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer

from model.chat import Chat
from model.transformer import Transformer
from training.cache import File, read_manifest
from training.checkpoint import read_model
from training.job import Job, JobError
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


def device_of(job: Job) -> torch.device:
    """The device that the job asks for."""
    if job.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(job.device)


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


def load_model(uri: str) -> Transformer:
    """The model that a training stage published (parts `model/config...` and `model/model...`), float32 on the CPU."""
    found = parts(uri, "model")
    config = next((path for key, path in found.items() if key.startswith("model/config")), None)
    weights = [path for key, path in found.items() if key.startswith("model/model")]
    if config is None or not weights:
        raise JobError(f"{uri} lists {', '.join(found)}: a model needs its config.json and its weights")
    return read_model(config, weights).float()  # of a base in bfloat16 too: its masters stayed with its run


def load_dialogues(uri: str, split: str) -> Dialogues:
    """The dialogues of `split` ("train" or "heldout")."""
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


def load_splits(uri: str) -> tuple[Dialogues, Dialogues]:
    """(train, held-out); refuses an artifact whose splits share a problem.

    Raises:
        JobError: a problem is in both.
    """
    train, heldout = load_dialogues(uri, "train"), load_dialogues(uri, "heldout")
    shared = {problem.id for problem in train.problems} & {problem.id for problem in heldout.problems}
    if shared:
        raise JobError(f"{len(shared)} problems of {uri} are in both splits ({min(shared)}): make the dialogues again")
    return train, heldout
