"""The evaluation stage: base, SFT, RL and both released checkpoints on the same held-out tokens, problems and turns.

Parts: `models/NAME` (JSON, everything measured on one model) and `replies/NAME` (Parquet, one row a problem). One model
is one unit of resumption.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer

from model.chat import Chat
from tasks.accounts import Balance
from tasks.artifact import Artifact, Step
from tasks.corpus.executor import Executor, Serial
from tasks.corpus.workers import workers_of
from tasks.evaluate import card
from tasks.evaluate.config import MODELS, VARIANTS, EvaluateConfig
from tasks.evaluate.measure import DTYPE, REPLIES, answer, even, heldout_loss, show
from tasks.evaluate.release import checkpoint_folder, load_checkpoint
from tasks.launch import Execution
from tasks.part import write_table
from tasks.progress import Progress
from training.fidelity import fidelity, tool_turns, try_tools
from training.inputs import load_dialogues
from training.intervals import mean, paired_difference, wilson

VERSION = 5  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

COMPARED = (("sft", "rl"), ("rl", "int4"), ("bf16", "int4"), ("sft", "int4"))
"""(before, after): differences on the same problems."""
NOT_MEASURED = (
    "General knowledge, reasoning or coding benchmarks: a model of this size and these tokens is at chance on them.",
    "Safety: harmful requests, prompt injection, privacy.",
    "Multi-turn agent tasks beyond the synthetic tool dialogues; long-context retrieval.",
    "Anything outside the task families and tools that it was trained on: pass rates do not transfer.",
    "Memorisation of training text, and contamination by it.",
)


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: measure every checkpoint on the same problems."""
    with workers_of(execution) as workers:
        return evaluate_release(step, step.read(), workers, execution.threads)


def run_page(artifact: Artifact) -> str:
    """Markdown for the page of a run in Prefect (`tasks.stage`)."""
    return table(artifact.statistics)


def evaluate_release(
    step: Step, inputs: Mapping[str, Artifact], executor: Executor | None = None, threads: int = 1
) -> Artifact:
    """Measure and publish; one model is one job of the executor (one after the other here where none is given).

    Args:
        step: the evaluation; its configuration is an EvaluateConfig.
        inputs: release, base, sft, rl, dialogues, tokens.
        threads: CPU threads of a job.
    """
    config = step.config
    assert isinstance(config, EvaluateConfig)
    problems = even(load_dialogues(inputs["dialogues"].uri, "test").problems, config.problems)
    turns = tool_turns(inputs["dialogues"].uri, "test", config.tool_dialogues)
    missing = [name for name in MODELS if step.part(f"models/{name}") is None or step.part(f"replies/{name}") is None]
    jobs = {name: (step, name, dict(inputs), threads) for name in missing}
    with Progress("evaluation", len(MODELS), "models", first=len(MODELS) - len(missing)) as progress:
        for name, _ in (executor or Serial()).map(_measure, jobs):
            progress.advance(note=name)
    records, replies = (step.parts([f"{group}/{name}" for name in MODELS]) for group in ("models", "replies"))
    measured = {name: json.loads(step.path(part).read_text()) for name, part in zip(MODELS, records, strict=True)}
    rates = {name: pq.read_table(step.path(part)).to_pylist() for name, part in zip(MODELS, replies, strict=True)}
    keys = [f"{group}/{name}" for name in MODELS for group in ("models", "replies")]
    balance = Balance("answers", taken=len(problems) * len(MODELS), out="replies")
    return step.publish(summary(measured, rates, len(turns), config), keys, balance)


def _measure(step: Step, name: str, inputs: Mapping[str, Artifact], threads: int) -> None:
    """Everything that is measured on one model, in a worker process of its own."""
    torch.set_num_threads(threads)
    config = step.config
    assert isinstance(config, EvaluateConfig)
    chat = Chat(Tokenizer.from_file(str(checkpoint_folder(inputs["release"], "bf16") / "tokenizer.json")))
    problems = even(load_dialogues(inputs["dialogues"].uri, "test").problems, config.problems)
    turns = tool_turns(inputs["dialogues"].uri, "test", config.tool_dialogues)
    model = load_checkpoint(name, inputs["release" if name in VARIANTS else name])
    answered = answer(model, chat, problems, config)
    record = {
        "heldout": heldout_loss(model, inputs["tokens"], config),
        "tools": fidelity(turns, try_tools(model, chat, turns, config.max_new_tokens, DTYPE)) if turns else {},
        "samples": show(model, chat, turns, config),
    }

    def write_record(path: Path) -> None:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")

    def write_replies(path: Path) -> None:
        write_table(path, pa.Table.from_pylist(answered, REPLIES))

    step.put(f"replies/{name}", ".parquet", write_replies, len(answered))
    step.put(f"models/{name}", ".json", write_record)


def summary(
    measured: Mapping[str, Mapping[str, Any]],
    rates: Mapping[str, Sequence[Mapping[str, Any]]],
    turns: int,
    config: EvaluateConfig,
) -> dict[str, Any]:
    """The stage's statistics, from what was measured on each model.

    Args:
        measured: by model, the JSON of its `models/` part.
        rates: by model, the rows of its `replies/` part: the same problems in the same order.
    """
    last = list(rates)[-1]
    statistics: dict[str, Any] = {
        f"pass_rate_{name}": round(mean([row["sampled"] for row in rates[name]]).value, 4) for name in rates
    }
    statistics |= {"problems": len(rates[last]), "samples": config.samples, "tool_turns": turns, "seed": config.seed}
    statistics["models"] = {
        name: {
            "pass_rate": pass_rates(rows),
            "by_environment": {
                environment: pass_rates([row for row in rows if row["environment"] == environment])
                for environment in sorted({row["environment"] for row in rows})
            },
            **measured[name],
        }
        for name, rows in rates.items()
    }
    statistics["differences"] = {
        f"{before} to {after}": difference(rates[before], rates[after])
        for before, after in COMPARED
        if before in rates and after in rates
    }
    statistics["not_measured"] = list(NOT_MEASURED)
    return statistics


def pass_rates(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Greedy (Wilson) and sampled (over problems) pass rates with their 95 % intervals."""
    return {
        "problems": len(rows),
        "greedy": wilson(sum(row["greedy"] == 1.0 for row in rows), len(rows)).rounded(),
        "sampled": mean([row["sampled"] for row in rows]).rounded(),
    }


def difference(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Paired change of both pass rates.

    Raises:
        ValueError: the two were not measured on the same problems in the same order.
    """
    if [row["problem"] for row in before] != [row["problem"] for row in after]:
        raise ValueError("two models were measured on different problems: delete the evaluation and run it again")
    return {
        kind: paired_difference([row[kind] for row in before], [row[kind] for row in after]).rounded()
        for kind in ("greedy", "sampled")
    }


def table(statistics: Mapping[str, Any]) -> str:
    """The evaluation as markdown, for people."""
    domains = sorted({name for model in statistics["models"].values() for name in model["heldout"]})
    header = ["model", "greedy", "sampled", "trigger F1", "schema", *(f"{name}, nats" for name in domains)]
    rows = []
    for name, model in statistics["models"].items():
        cells = [name, *(_interval(model["pass_rate"][kind]) for kind in ("greedy", "sampled"))]
        cells += [_share(model["tools"].get(key)) for key in ("trigger_f1", "schema_accuracy")]
        cells += [f"{model['heldout'][domain]['nats']:.3f}" if domain in model["heldout"] else "" for domain in domains]
        rows.append(tuple(cells))
    lines = [
        card.table(*rows, header=tuple(header)),
        "",
        f"{statistics['problems']} held-out problems, {statistics['samples']} samples each; 95 % intervals.",
        "",
    ]
    for name, change in statistics["differences"].items():
        lines.append(f"- {name}: sampled {_interval(change['sampled'], sign='+')}, paired")
    lines += ["", "Not measured:", "", *(f"- {sentence}" for sentence in statistics["not_measured"])]
    return "\n".join(lines) + "\n"


def _interval(found: Mapping[str, float], sign: str = "") -> str:
    return f"{100 * found['value']:{sign}.1f} % [{100 * found['low']:{sign}.1f}, {100 * found['high']:{sign}.1f}]"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.1f} %"
