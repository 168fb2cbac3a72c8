"""A model to be measured that no stage of this run has made: a folder of ours, a checkpoint by name, an endpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.chat import Chat
from model.engines.engine import RequestLimits
from model.engines.openai import OpenAI
from model.storage import local_path
from tasks.artifact import Artifact
from tasks.evaluate.checkpoint import read_checkpoint
from tasks.evaluate.config import MODELS, VARIANTS
from tasks.evaluate.release import load_checkpoint
from tasks.evaluate.suites.config import SuitesConfig
from tasks.evaluate.suites.subject import Endpoint, Network, Subject
from tasks.evaluate.suites.table import Chosen, measure
from training.inputs import load_chat


class TargetError(ValueError):
    """What was named is no model that can be measured; the sentence says what to name."""


@contextmanager
def opened(target: str, served: str, made: Mapping[str, Artifact | None], limits: RequestLimits) -> Iterator[Subject]:
    """The model that `target` names.

    Args:
        target: an address, a Hugging Face folder of ours, or one of MODELS.
        served: the model's name at an address.
        made: what the run published, by stage; None for what it has not.
    """
    if target.startswith(("http://", "https://")):
        if not served:
            raise TargetError(f"say which model of {target} is meant: `--model NAME`")
        with OpenAI(target, served, limits=limits) as engine:
            yield Endpoint(engine)
    elif target in MODELS:
        stage = "release" if target in VARIANTS else target
        artifact, tokenizer = made[stage], made["tokenizer"]
        if artifact is None or tokenizer is None:
            raise TargetError(f"'{stage}' is not published under this root: run it, or name a folder")
        yield Network(load_checkpoint(target, artifact), load_chat(tokenizer.uri))
    else:
        folder = local_path(target)
        if not (folder / "tokenizer.json").is_file():
            raise TargetError(
                f"{target} is no address, no released folder (it has no tokenizer.json) and none of {', '.join(MODELS)}"
            )
        yield Network(read_checkpoint(folder), Chat(Tokenizer.from_file(str(folder / "tokenizer.json"))))


def measured(
    config: SuitesConfig, subject: Subject, chosen: Mapping[str, Chosen], tokens: Artifact | None, label: str
) -> dict[str, Any]:
    """The record of one model, as `openk2 evaluate --compare` reads it."""
    records, rows = measure(config, subject, chosen, tokens, label)
    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        scores.setdefault(row["suite"], {})[row["item"]] = row["score"]
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"label": label, "finished": finished, "suites": records, "scores": scores}


def labelled(target: str, served: str, given: str) -> str:
    """What to call a model: as asked, else by its name, else by its folder's."""
    return given or (target if target in MODELS else served or Path(target).resolve().name)
