"""What the parts of the RL recipe do, each left out or put in: docs/claims/rl.md.

    python -m benchmarks.rl_ablations [--work ablations] [--out docs/claims/rl] [--tables]

A network of some ten thousand parameters learns bytes of text (the topics of Python's help) and to name the larger of
two digits behind a random number of dots, which stand for reasoning that may be long and helps nobody. From that one
model every row of `ARMS` is practised with sixteen seeds, as the recipe starts it (`training.rl.train`); then each is
measured alike: replies to held-out prompts at temperature 1 within the same budget, and the loss on held-out text.

Finished runs are skipped, one that was stopped goes on. One thread; the whole study takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.common import cpu
from benchmarks.studies import Row, read_table, spread, table, write_table
from model.chat import Chat, assistant, user
from model.transformer import Transformer
from tasks.agentic.dialogues import SCHEMA
from tasks.artifact import Artifact, Step
from tasks.part import write_table as write_rows
from tests.posttraining import (
    VOCABULARY,
    Label,
    byte_tokenizer,
    go,
    model_artifact,
    tiny_config,
    tokenizer_artifact,
    write_job,
)
from tests.shards import publish_shards
from training.checkpoint import load_model
from training.draw import problem_id
from training.inputs import load_splits
from training.loader import Loader
from training.metrics import read_metrics
from training.rl.config import RewardConfig
from training.rl.environments import Services
from training.rl.rollout import Group, Player, evaluate
from training.rl.train import Reinforcement
from training.sft import Tuning

BUDGET, TIGHT, SEGMENTS = 64, 16, (12, 32)
SEEDS = range(1, 17)
DOTS = 32
"""Most dots of the replies that SFT shows."""
RIGHT = (0.3, 0.9)
"""Share of them that is right, without a dot and with all: who reasons longer is right more often, at first."""
SFT = {
    "sequence_length": 320,
    "rows": 4,
    "learning_rate": 0.03,
    "final_learning_rate": 0.003,
    "warmup": 4,
    "dtype": "float32",
    "max_updates": 480,
    "evaluate_every": 240,
    "evaluate_samples": 4,
    "band": [0.98, 0.99],  # no rest: it takes all its updates
    "budget": BUDGET,
    "text_samples": 4,
    "text_sequence_length": 64,
    "optimizer": {"newton_schulz_dtype": "float32"},
    "seed": 5,
}
ITERATIONS, RATES = 24, {"learning_rate": 0.02, "final_learning_rate": 0.005}
SLOWER = 3
SLOW = {key: rate / SLOWER for key, rate in RATES.items()} | {"iterations": SLOWER * ITERATIONS}
"""A third of the learning rates, for three times the iterations."""
RL = {
    "iterations": ITERATIONS,
    "prompts": 12,
    "responses": 8,
    **RATES,
    "rewards": {"budget": BUDGET},
    "environments": {"larger": 1.0},
    "dtype": "float32",
    "optimizer": {"newton_schulz_dtype": "float32"},
    "agreement": 1.0,  # a mismatch is what is looked at, and no reason to stop
    "ptx_weight": 0.1,
    "ptx_samples": 4,
    "ptx_sequence_length": 64,
    "evaluate_prompts": 1,
    "evaluate_samples": 1,
    "record": {"every": 1, "prompts": 1000},
    "run": {"checkpoint_every": 24},
}
ARMS: Mapping[str, Mapping[str, Any]] = {
    "all alike": {},
    "without PTX": {"ptx_weight": 0.0},
    f"budget of {TIGHT}": {"rewards": {"budget": TIGHT}},
    "length reward": {"rewards": {"budget": BUDGET, "length_weight": 0.5, "length_from": 0.0}},
    "temperature 1.0 to 0.8": {"temperature": [1.0, 0.8]},
    **{f"pauses at {segment}": {"segment": segment} for segment in SEGMENTS},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, corrected": {"dtype": "bfloat16", "correction": 2.0},
}
"""What differs from `RL`, by arm."""
ALIKE, BEFORE = "all alike", "before RL"
AGAINST = {arm: ALIKE for arm in ARMS if arm != ALIKE} | {"bfloat16, corrected": "bfloat16"}
"""What each arm is held against."""
MEASURES = {
    "right": "right, sampled",
    "greedy": "right, greedy",
    "tokens": "tokens of a reply",
    "text": "held-out text, nats",
    "longest": "tokens that an iteration waits for",
    "disagreement": "mismatch, nats a token",
}
FORMS = {"right": ".2f", "greedy": ".2f", "tokens": ".1f", "text": ".2f", "longest": ".1f", "disagreement": ".0e"}
FORMS |= {"paused": ".2f"}
NAMES = MEASURES | {"seeds": "seeds", "paused": "paused, of all replies"}
"""Columns of tables."""


# --------------------------------------------------------------------------------------------------------- the world


def tokens_artifact(root: Path) -> Artifact:
    """Bytes of the help of Python, the last of them held out."""
    text = "\n\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore").decode()
    ids = np.array(byte_tokenizer().encode(text[:240_000], add_special_tokens=False).ids, "<u4")
    shards = {}
    for split, part in (("train", ids[:-24_000]), ("heldout", ids[-24_000:])):
        shards[f"{split}/knowledge/topics/0"] = (part, pa.table({"start": [0], "end": [len(part)], "id": [split]}))
    step = Step("tokens", Label(name="tokens"), str(root))
    return publish_shards(step, shards, {"vocabulary": VOCABULARY, "end_of_document": 257})


def dialogues_artifact(root: Path, chat: Chat) -> Artifact:
    """Pairs of digits: 14 held out for development, 14 for test, the others six times each."""
    draw = random.Random(0)
    pairs = [(one, other) for one in range(10) for other in range(10) if one != other]
    draw.shuffle(pairs)
    step = Step("dialogues", Label(name="larger"), str(root))
    splits = {"development": pairs[:14], "test": pairs[14:28], "train": pairs[28:] * 6}
    for split, those in splits.items():
        rows = [_dialogue(chat, one, other, draw) for one, other in those]
        made = pa.Table.from_pylist(rows, SCHEMA)
        step.put(f"dialogues/{split}/larger", ".parquet", partial(write_rows, table=made))
    return step.publish({})


def _dialogue(chat: Chat, one: int, other: int, draw: random.Random) -> dict[str, Any]:
    """A reply behind 0 to 32 dots, the more of them the likelier right."""
    dots = draw.randrange(DOTS + 1)
    said = max(one, other) if draw.random() < RIGHT[0] + (RIGHT[1] - RIGHT[0]) * dots / DOTS else min(one, other)
    messages = [user(f"Larger of {one} and {other}?"), assistant(f"{'.' * dots}\n{said}")]
    ids, mask = [], []
    for piece, trained in chat.render(messages):
        ids += piece
        mask += [trained] * len(piece)
    problem = problem_id("larger", one, other)
    return {
        **{"id": f"{problem}/{dots}", "problem": problem, "environment": "larger", "topic": "larger", "unseen": []},
        **{"player": "script", "verdicts": "{}", "verifier": "logic", "prompt_turns": 1, "ids": ids, "mask": mask},
        **{"messages": json.dumps(messages), "tools": "[]", "answer": json.dumps({"gold": str(max(one, other))})},
    }


class Study:
    """The one model that every run begins with, and what is measured of each."""

    def __init__(self, work: Path) -> None:
        self.work, self.chat = work, Chat(byte_tokenizer())
        self.inputs = {
            "tokens": tokens_artifact(work),
            "dialogues": dialogues_artifact(work, self.chat),
            "tokenizer": tokenizer_artifact(work),
        }
        self.problems = load_splits(self.inputs["dialogues"].uri).test.problems
        base = model_artifact(work, Transformer(tiny_config(max_position_embeddings=512), seed=0))
        tuned = write_job(work / "sft", SFT, {**self.inputs, "base": base})
        if go(Tuning, tuned):
            sys.exit("SFT failed: its last line says why")
        self.start = model_artifact(work, load_model(work / "sft" / "final"), "sft")

    def practise(
        self, arm: str, changes: Mapping[str, Any], seed: int, kind: type[Reinforcement] = Reinforcement
    ) -> tuple[Path, dict[str, float]]:
        """The folder of one run, which is made unless it is there, and what is measured of its model."""
        folder = self.work / f"{arm.replace(' ', '-').replace(',', '')}-{seed}"
        job = write_job(folder, {**RL, "seed": seed, **changes}, {**self.inputs, "sft": self.start})
        if go(kind, job):
            sys.exit(f"{arm}, seed {seed} failed: its last line says why")
        return folder, self.measured(load_model(folder / "final"), seed)

    def run(
        self, arm: str, changes: Mapping[str, Any], seed: int, kind: type[Reinforcement] = Reinforcement
    ) -> dict[str, Any]:
        """One run and what came of it."""
        folder, measured = self.practise(arm, changes, seed, kind)
        updates = read_metrics(folder / "metrics.jsonl", "update")
        return {
            **{"arm": arm, "seed": seed, **measured},
            "longest": round(statistics.fmean(waits(folder, changes.get("segment"))), 2),
            "disagreement": statistics.fmean(line["disagreement"] for line in updates),
        }

    @torch.no_grad()
    def measured(self, model: Transformer, seed: int) -> dict[str, float]:
        """Replies to the test prompts within the same budget for all, and the loss on held-out text."""
        replies: list[Group] = []
        with Services() as services:
            player = Player(model, self.chat, 1.0, RewardConfig(budget=BUDGET), "float32", services)
            found = evaluate(
                player, self.problems, 16, f"ablations/{seed}", seen=lambda sampled, greedy: replies.extend(sampled)
            )
        batch = Loader(self.inputs["tokens"].uri, "heldout", {"knowledge": 1.0}, 0, 64).batch(0, 200)
        hidden_BSD = model(batch.tokens_BS, document_ids_BS=batch.document_ids_BS).hidden_BSD
        return {
            "right": round(statistics.fmean(found.sampled), 4),
            "greedy": round(statistics.fmean(found.greedy), 4),
            "tokens": round(statistics.fmean(one.written for group in replies for one in group.responses), 3),
            "text": round(float(model.loss(hidden_BSD, batch.targets_BS)), 4),
        }


def waits(folder: Path, segment: int | None) -> list[int]:
    """For each iteration the most tokens that one response drew in it: so many steps all others waited for."""
    found = []
    for path in sorted((folder / "rollouts").glob("practice-*.parquet")):
        rows = pq.read_table(path, columns=["iteration", "versions"]).to_pylist()
        longest = max(row["versions"].count(row["iteration"] - 1) for row in rows)
        found.append(longest if segment is None else segment)  # what is paused stands in a later file
    return found


# ---------------------------------------------------------------------------------------------------------- the tables


def markdown(runs: Sequence[Mapping[str, Any]]) -> str:
    """The two tables of the page: what every arm came to, and by how much it differs, seed by seed."""
    by_arm = {arm: {run["seed"]: run for run in runs if run["arm"] == arm} for arm in (BEFORE, *ARMS)}
    head = ["mean, 95 % interval", *MEASURES.values()]
    whole = []
    for arm, own in by_arm.items():
        values = {name: [run[name] for run in own.values() if run[name] != ""] for name in MEASURES}
        whole.append([arm, *(_said(values[name], FORMS[name]) for name in MEASURES)])
    apart, measured = [], [name for name in MEASURES if name != "disagreement"]
    for arm, other in AGAINST.items():
        pairs = [(by_arm[arm][seed], by_arm[other][seed]) for seed in by_arm[arm]]
        rises = {name: [run[name] - base[name] for run, base in pairs] for name in measured}
        apart.append([f"{arm}, less {other}", *(_said(rises[name], f"+{FORMS[name]}") for name in measured)])
    return f"{table(head, whole)}\n\n{table(['seed by seed', *(MEASURES[name] for name in measured)], apart)}"


def compared(
    runs: Sequence[Row],
    arms: Iterable[str],
    measures: Sequence[str],
    against: Mapping[str, Mapping[str, str]],
    forms: Mapping[str, str] = FORMS,
) -> str:
    """One table: what each arm came to, and by how much its pass rates differ, seed by seed, from those of another
    arm, which `against` gives, under the name that a column has for it."""
    by_arm = {arm: {run["seed"]: run for run in runs if run["arm"] == arm} for arm in arms}
    rates = ("right", "greedy")
    head = ["mean, 95 % interval", *(NAMES[name] for name in measures)]
    head += [f"{rate}, less {other}" for other in against for rate in rates]
    rows = []
    for arm, own in by_arm.items():
        row = [arm]
        for name in measures:
            row.append(str(len(own)) if name == "seeds" else spread([run[name] for run in own.values()], forms[name]))
        for others in against.values():
            base = by_arm[others.get(arm, arm)]
            for rate in rates:
                rises = [own[seed][rate] - base[seed][rate] for seed in own] if base is not own else []
                row.append(_said(rises, f"+{forms[rate]}"))
        rows.append(row)
    return table(head, rows)


def _said(values: Sequence[float], form: str) -> str:
    return spread(values, form) if values else "–"


def runs(study: Study) -> Iterator[Row]:
    """What was measured before RL, and of every run."""
    before = study.measured(load_model(study.work / "sft" / "final"), 0)
    yield {"arm": BEFORE, "seed": 0, **before, "longest": "", "disagreement": "", "seconds": ""}
    for seed in SEEDS:
        for arm in ARMS:
            began = cpu()
            yield study.run(arm, ARMS[arm], seed) | {"seconds": round(cpu() - began, 1)}


def carry_out(
    about: str | None,
    work: str,
    file: str,
    rows: Callable[[Study], Iterable[Row]],
    page: Callable[[Sequence[Row]], str],
    arguments: Sequence[str] | None = None,
) -> None:
    """The command line of a study of RL: its `rows` to the CSV file `file`, and what `page` makes of them printed."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(work), help="where the runs lie")
    parser.add_argument("--out", type=Path, default=Path("docs/claims/rl"))
    parser.add_argument("--tables", action="store_true", help="run nothing, print the tables of what is there")
    options = parser.parse_args(arguments)
    path = options.out / file
    if not options.tables:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        torch.set_num_threads(1)
        made = []
        for row in rows(Study(options.work.resolve())):
            made.append(row)
            print(json.dumps(row), flush=True)
        write_table(path, made)
    print(page(read_table(path)))


if __name__ == "__main__":
    carry_out(__doc__, "ablations", "runs.csv", runs, markdown)
