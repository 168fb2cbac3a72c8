"""Domains and tools that a model proposes, in the layout of spec.py. Its answers are hostile until they fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from model.cache import cache_folder
from model.engines.answers import Answers
from model.engines.choice import open_engine
from model.engines.engine import Message, Prompt, PromptRefused
from tasks.agentic.synthesis.config import ToolsConfig
from tasks.agentic.synthesis.evolve import categories, words
from tasks.launch import Execution
from training.rl.worlds.synthetic.operations import OPERATIONS
from training.rl.worlds.synthetic.spec import DomainSpec, ToolSpec

PROMPT = Path(__file__).with_name("propose.yaml")
ANSWER_MAX = 60_000
"""Characters of an answer that are looked at."""
TOOLS_MAX = 40


@dataclass(frozen=True)
class Proposed:
    """One answer: what fits the layout, and what does not with the reason."""

    domain: DomainSpec | None
    tools: tuple[ToolSpec, ...]
    misfits: tuple[tuple[str, str], ...]
    """(reason, detail)."""


def proposals(config: ToolsConfig, execution: Execution, root: str) -> Iterator[Proposed]:
    """One for every domain that is asked for, in order. Answers are kept, so that nothing is asked twice."""
    proposer = config.proposer
    assert proposer is not None
    folder = execution.answers_folder(root) or cache_folder() / "proposed"
    slots = execution.slots(proposer.engine)
    asked = list(enumerate(islice(cycle(categories()), proposer.domains)))
    with (
        closing(Answers(folder)) as answers,
        open_engine(
            proposer, execution.engine_url, slots, "tools.proposer", "engine_url", execution.engine_requests
        ) as engine,
        ThreadPoolExecutor(engine.slots) as pool,
    ):

        def ask(place: tuple[int, str]) -> Proposed:
            try:
                answer, _ = answers.complete(engine, prompt(config, *place))
            except PromptRefused as error:
                return Proposed(None, (), (("the model gave no answer", str(error)[:200]),))
            return read(answer.text, place[1])

        yield from pool.map(ask, asked)


def prompt(config: ToolsConfig, number: int, category: str) -> Prompt:
    """The question for one domain."""
    assert config.proposer is not None
    told, proposer = _told(), config.proposer
    kinds = "\n".join(
        f"  {name}: {', then '.join(' or '.join(sorted(kinds)) for kinds in one.takes) or 'no field'}"
        for name, one in OPERATIONS.items()
    )
    asked = told["user"].format(
        category=category, tools=proposer.tools, operations=kinds, taken=", ".join(words()["categories"][category])
    )
    chat = (Message("system", told["system"]), Message("user", asked))
    return Prompt(chat, proposer.sampling, proposer.max_tokens, config.seed * 100_003 + number)


def read(text: str, category: str) -> Proposed:
    """An answer, taken apart; never raises on what a model wrote."""
    start, end = text.find("{"), text.rfind("}")
    try:
        answer = json.loads(text[start : end + 1]) if 0 <= start < end and len(text) <= ANSWER_MAX else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("tools"), list):
        return Proposed(None, (), (("the answer is no JSON object in the layout", text[:200]),))
    try:
        domain = DomainSpec.model_validate(answer.get("domain"))
    except ValidationError as error:
        return Proposed(None, (), (("the domain does not fit the layout", _first(error)),))
    if domain.category != category:
        return Proposed(None, (), (("the domain is of another category", domain.category),))
    tools, misfits = [], []
    for given in answer["tools"][:TOOLS_MAX]:
        try:
            tools.append(ToolSpec.model_validate(given))
        except ValidationError as error:
            misfits.append(("the tool does not fit the layout", _first(error)))
    return Proposed(domain, tuple(tools), tuple(misfits))


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}"[:200]


@cache
def _told() -> dict[str, Any]:
    return yaml.safe_load(PROMPT.read_text(encoding="utf-8"))
